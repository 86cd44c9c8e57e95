"""A failure is heard everywhere with its cause, and nothing else is harmed."""

from __future__ import annotations

from pathlib import Path

from tests.remote.processes.crew import Crew

SCENARIOS = [
    "a_node_raises",
    "a_run_is_refused",
    "a_receive_is_cancelled",
    "one_of_two_fails",
    "a_group_counts_its_own_ranks",
    "the_group_goes_on",
]


def test_failures_that_leave_the_ranks_alive(tmp_path: Path) -> None:
    with Crew(4, "failing", folder=tmp_path, warm=True) as crew:
        crew.ends()
        for rank in range(4):
            said = crew.output(rank).splitlines()
            assert [line.removeprefix("passed ") for line in said if line.startswith("passed ")] == SCENARIOS
            assert sum("heard within" in line for line in said) == 3
