"""The table of `tests/behaviour` is whole, its tests exist, and each of them ran and passed in this session.

The last is asked behind all other tests, and only where all that the table names was selected.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.behaviour import DIFFERS, LATER, PLACES, TABLE, session
from tests.behaviour.later import OBSERVED, RANKS

ROOT = Path(__file__).parents[1]
ENTRIES = [(place, says, ids) for place, entries in TABLE.items() for says, ids in entries.items()]
IDS = sorted({nodeid for _, _, ids in ENTRIES for nodeid in ids})


def section(place: str) -> str:
    return place.split()[0]


def functions_of(path: Path) -> set[str]:
    """The tests in a file, read and not imported."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_place_of_the_definition_is_there() -> None:
    found = {*TABLE, *(place for place, _, _ in LATER)}
    assert found == {f"{name} {number}" for name, numbers in PLACES.items() for number in numbers}


def test_everything_that_differs_is_marked() -> None:
    found: dict[str, set[str]] = {name: set() for name in PLACES}
    for place, says, _ in ENTRIES:
        if says.startswith("differs: "):
            found[section(place)].add(place)
    assert found == DIFFERS


def test_no_entry_is_empty_and_none_names_a_test_twice() -> None:
    for place, says, ids in ENTRIES:
        assert says.removeprefix("differs: ").strip(), place
        assert isinstance(ids, tuple), (place, says)
        assert ids, (place, says)
        assert not [nodeid for nodeid, count in Counter(ids).items() if count > 1], (place, says)
    assert all(TABLE.values()), [place for place, entries in TABLE.items() if not entries]
    assert max(Counter((place, says) for place, says, _ in LATER).values()) == 1


def test_what_comes_later_has_one_of_three_reasons() -> None:
    assert {reason for _, _, reason in LATER} <= {RANKS, OBSERVED}
    assert all(says.strip() for _, says, _ in LATER)


def test_each_test_exists() -> None:
    missing: list[str] = []
    known: dict[str, set[str]] = {}
    for nodeid in IDS:
        file, _, name = nodeid.partition("::")
        path = ROOT / file
        if file not in known:
            known[file] = functions_of(path) if path.is_file() and path.name.startswith("test_") else set()
        if name not in known[file] or not name.startswith("test_"):
            missing.append(nodeid)
    assert missing == [], "renamed or removed? Change tests/behaviour along with it"


def test_each_test_ran(request: pytest.FixtureRequest) -> None:
    if hasattr(request.config, "workerinput"):
        pytest.skip("the suite is spread over processes, and this one knows only its own part")
    left_out = [nodeid for nodeid in IDS if nodeid not in session.collected]
    if left_out:
        pytest.skip(
            f"only a part of the suite was selected: {len(left_out)} of the table's {len(IDS)} tests are not in it"
        )
    wrong = {nodeid: session.other.get(nodeid, "did not run") for nodeid in IDS if nodeid not in session.passed}
    wrong |= {nodeid: why for nodeid, why in session.other.items() if nodeid in IDS}
    assert not wrong, "\n".join(f"{nodeid}: {why}" for nodeid, why in wrong.items())
