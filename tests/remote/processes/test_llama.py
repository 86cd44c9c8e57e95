"""A model split over real processes: exactly the logits of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.remote.processes.crew import Crew


@pytest.mark.parametrize("world", [1, 2, 4])
def test_exactly_the_logits_of_one_process(world: int, tmp_path: Path) -> None:
    with Crew(world, "llama", folder=tmp_path, warm=True) as crew:
        crew.ends()
        said = crew.output(world - 1).splitlines()
        assert said == ["sync: 8 right", "asyncio: 16 right", "trio: 16 right"]
