"""What this pytest session collected and what came of it, by node id without parameters. Filled by `tests/conftest.py`."""

from __future__ import annotations

import pytest

LAST = "tests/test_behaviour_table.py"

collected: set[str] = set()
passed: set[str] = set()
other: dict[
    str, str
] = {}  # why an id does not count as having run: the first of its parametrizations that did not pass


def plain(nodeid: str) -> str:
    """A node id without its parameters."""
    return nodeid.split("[", 1)[0]


def arrange(items: list[pytest.Item]) -> None:
    """Note what was collected, and put the check of the table behind everything else."""
    collected.update(plain(item.nodeid) for item in items)
    items.sort(key=lambda item: item.nodeid.startswith(LAST))


def note(report: pytest.TestReport) -> None:
    """Note how a phase of a test ended. Skipped and expected to fail are not passed."""
    test = plain(report.nodeid)
    if report.outcome != "passed":
        other.setdefault(test, f"{report.outcome} ({report.nodeid})")
    elif report.when == "call":
        passed.add(test)
