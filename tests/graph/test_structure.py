"""Containers that weave looks into: list, tuple, dict, their subclasses, and `InputArgs`."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weave import InputArgs
from weave.graph.structure import leaves, map_leaves, rebuild

Pair = namedtuple("Pair", "left right")


class Output(OrderedDict[str, Any]):
    """As Hugging Face's ModelOutput is: a dict that carries more than its items."""

    extra: Any = None


@dataclass
class Cache:
    keys: Any


nested = st.recursive(
    st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.builds(Pair, inner, inner)
        | st.builds(
            lambda a, k: InputArgs(*a, **k), st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=1), inner)
        )
    ),
    max_leaves=8,
)


def plain(value: Any) -> Any:
    """A structure that compares by what is in it, with its types."""
    if isinstance(value, InputArgs):
        return "call", plain(value.args), plain(value.kwargs)
    if isinstance(value, dict):
        return type(value), [(k, plain(v)) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [plain(v) for v in value]
    return value


@given(nested)
def test_mapping_the_identity_gives_an_equal_structure(value: Any) -> None:
    assert plain(map_leaves(lambda leaf: leaf, value)) == plain(value)


@given(nested)
def test_mapping_meets_each_leaf_once_in_order(value: Any) -> None:
    met: list[Any] = []
    before = plain(value)
    map_leaves(met.append, value)
    # An empty tuple has nothing in it and may be met as it is.
    assert [leaf for leaf in met if leaf != ()] == list(leaves(value))
    assert plain(value) == before


@given(nested, st.integers(-3, 3))
def test_rebuilding_from_equal_structures(value: Any, by: int) -> None:
    other = map_leaves(lambda leaf: leaf if leaf == () else leaf * by, value)
    got = rebuild(value, [other, other], lambda a, b, c: a if a == () else a + b - c)
    assert plain(got) == plain(value)


@pytest.mark.parametrize(
    "value",
    [
        OrderedDict(a=1),
        defaultdict(list, a=1),
        Pair(1, [2]),
        torch.Size([2, 3]),
        torch.return_types.max((torch.ones(1), torch.zeros(1))),
    ],
    ids=lambda v: type(v).__name__,
)
def test_containers_keep_their_type(value: Any) -> None:
    got = map_leaves(lambda leaf: leaf, value)
    assert type(got) is type(value)
    assert got == value or torch.equal(got[0], value[0])


def test_what_a_container_carries_beside_its_items_is_kept() -> None:
    value = Output(a=torch.ones(1))
    value.extra = "kept"
    got = map_leaves(lambda leaf: leaf + 1, value)
    assert got["a"] == 2
    assert got.extra == "kept"
    assert value["a"] == 1, "the original is as it was"
    grown = map_leaves(lambda leaf: leaf, defaultdict(list, a=1))
    assert grown["new"] == []


def test_other_objects_are_passed_on_as_they_are() -> None:
    cache = Cache([torch.ones(1)])
    assert list(leaves([cache, {1, 2}])) == [cache, {1, 2}]
    assert map_leaves(lambda leaf: leaf, cache) is cache


def test_a_container_that_holds_itself_ends() -> None:
    value: list[Any] = [1]
    value.append(value)
    assert list(leaves(value)) == [1]


def test_deep_structures_are_walked_without_recursion() -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    assert list(leaves(value)) == [1]
    while type(value) is list:  # taken apart by hand: the interpreter would recurse to free it
        value = value.pop()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1], (1,)),
        ([1], [1, 2]),
        ({"a": 1}, {"b": 1}),
        (1, [1]),
        (InputArgs(1), InputArgs(k=1)),
        (InputArgs(1), [1]),
        ([[1], 2], [1, [2]]),
    ],
)
def test_structures_that_differ(one: Any, other: Any) -> None:
    for a, b in ((one, other), (other, one)):
        with pytest.raises(ValueError, match="different structure"):
            rebuild(a, [b], lambda x, y: x)
