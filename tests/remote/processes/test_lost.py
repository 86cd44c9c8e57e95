"""Ranks that are killed or frozen: every other one raises."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.remote.processes.crew import PATIENCE, Crew

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="signals and forks of POSIX")


def test_a_killed_one_at_once_and_one_that_only_falls_silent_by_its_heartbeat(tmp_path: Path) -> None:
    with Crew(4, "lost", folder=tmp_path, warm=True, WEAVE_LINK_HEARTBEAT=0.5) as crew:
        crew.said(3, "3 computes")
        crew.ranks[3].signal(signal.SIGKILL)
        for rank in (0, 1, 2):
            crew.said(rank, "lost 3")

        crew.said(2, "2 computes")
        child = int(re.findall(r"2 computes, child (\d+)", crew.output(2))[0])
        try:
            crew.ranks[2].signal(signal.SIGKILL)
            for rank in (0, 1):
                crew.said(rank, "lost 2")
            os.kill(child, 0)  # it held the sockets all the time
        finally:
            os.kill(child, signal.SIGKILL)

        crew.said(1, "1 computes")
        crew.ranks[1].signal(signal.SIGSTOP)
        crew.ends(0)
        assert crew.output(0).splitlines() == ["lost 3", "lost 2", "lost 1"]
        assert crew.ranks[1].wait(0) is None


def test_a_program_that_closes_nothing_ends_and_one_that_closes_leaves_nothing(tmp_path: Path) -> None:
    with Crew(2, "leaving", folder=tmp_path) as crew:
        crew.ends(patience=PATIENCE)
        for rank in range(2):
            assert crew.output(rank).splitlines() == ["nothing left", "nothing left", "the end"]
