"""The exceptions: text that is text, facts beside it, and surviving the way between processes."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest

import weave
from weave import errors

ALL = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if not cls.__name__.startswith("_") and cls.__module__ == errors.__name__
]
WITH_FACTS = {
    "UnknownPortException": {"node": "m", "port": "m.input('a')", "nearest": ("b",)},
    "ContradictionException": {"node": "m", "port": "p"},
    "OverridesException": {"missing": ("input 'x'",), "extra": (), "expected": ("input 'x'",)},
    "PortNotReachedException": {"node": "m", "ports": ("p", "q")},
    "ChangedInPlaceException": {"node": "m", "port": "p", "suspects": ("f",)},
    "CheckpointException": {"node": "m", "port": "p"},
    "RemoteException": {"node": "r", "rank": 3, "kind": "ValueError", "cause_text": "no", "cancelled": True},
    "PeerLostException": {"node": "r", "rank": 3},
    "WireException": {"node": "r", "rank": 3},
    "GraphMismatchException": {"edges": ("e",)},
    "PluginException": {"name": "n", "nearest": ("m",)},
    "TraceException": {"path": "run.jsonl"},
}


def test_every_exception_is_public_and_in_one_family() -> None:
    assert {cls.__name__ for cls in ALL} <= set(weave.__all__)
    for cls in ALL:
        assert cls.__doc__
        if issubclass(cls, Warning):
            continue
        families = (errors.KnotException, errors.StitchedModuleException, errors.PluginException, errors.TraceException)
        assert sum(issubclass(cls, family) for family in families) == 1, cls


def test_the_table_names_them_all() -> None:
    assert {cls.__name__ for cls in ALL if issubclass(cls, errors._Report)} == set(WITH_FACTS)


@pytest.mark.parametrize("name", WITH_FACTS)
def test_the_message_is_text_and_the_facts_are_attributes(name: str) -> None:
    cls, facts = getattr(weave, name), WITH_FACTS[name]
    error = cls("a message\nof two lines", **facts)
    assert str(error) == "a message\nof two lines", "not its repr, as KeyError prints"
    assert {k: getattr(error, k) for k in facts} == facts
    bare = cls()
    assert str(bare) == ""
    assert not any(getattr(bare, k) for k in facts)


@pytest.mark.parametrize("name", WITH_FACTS)
@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_a_copy_has_the_facts(name: str, way: Any) -> None:
    facts = WITH_FACTS[name]
    error = getattr(weave, name)("message", **facts)
    error.add_note("where")
    other = way(error)
    assert type(other) is type(error)
    assert str(other) == "message"
    assert {k: getattr(other, k) for k in facts} == facts
    assert other.__notes__ == ["where"]


@pytest.mark.parametrize("cls", ALL, ids=lambda c: c.__name__)
def test_each_can_be_raised_and_caught_with_a_message_alone(cls: Any) -> None:
    with pytest.raises(cls) as raised:
        raise cls("said")
    assert str(raised.value) == "said"
