"""A few kills at random moments. `python -m tests.remote.processes.kills 200` makes more."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.remote.processes.kills import WORLD, kill_one


@pytest.mark.parametrize("turn", range(5))
def test_survivors_of_a_kill_raise(turn: int, tmp_path: Path) -> None:
    assert len(kill_one(random.Random(turn), tmp_path)) == WORLD - 1
