"""Ranks without torch.distributed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.remote.processes.crew import Crew, free_port


@pytest.mark.parametrize("way", ["WEAVE_LINK_ADDRESS", "MASTER_ADDR"])
def test_ranks_meet_at_an_address(way: str, tmp_path: Path) -> None:
    given = {"WEAVE_LINK_ADDRESS": f"127.0.0.1:{free_port()}", "MASTER_ADDR": "nowhere.invalid"}
    with Crew(
        2, "joined", folder=tmp_path, warm=True, agent=False, **(given if way == "WEAVE_LINK_ADDRESS" else {})
    ) as crew:
        assert crew.ends() == "right\n" * 2
