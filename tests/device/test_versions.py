"""Marks: the tensors in a value and their version counters."""

from __future__ import annotations

import types
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch

import weave
from weave.device.versions import Mark, mark

Pair = namedtuple("Pair", "left right")


class Listed(list):  # type: ignore[type-arg]
    pass


CONTAINERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "itself": lambda t: t,
    "list": lambda t: [1, t],
    "tuple": lambda t: (t, None),
    "namedtuple": lambda t: Pair(1, t),
    "dict": lambda t: {"a": {"b": t}},
    "ordered": lambda t: OrderedDict(a=t),
    "subclass": lambda t: Listed([t]),
    "arguments": lambda t: weave.InputArgs(1, k=[t]),
    "parameter": lambda t: [torch.nn.Parameter(t, requires_grad=False)],
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_change_inside_a_container_is_seen(kind: str) -> None:
    tensor = torch.ones(3)
    marked = mark(CONTAINERS[kind](tensor))
    assert isinstance(marked, Mark)
    assert not marked.changed()
    _ = tensor + 1, tensor.view(-1), tensor.detach(), tensor.clone().add_(1)
    assert not marked.changed()
    tensor.add_(1)
    assert marked.changed()


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.view(-1).mul_(2),
        lambda t: t[0].zero_(),
        lambda t: t.__setitem__(0, 5.0),
        lambda t: t.detach().add_(1),
        lambda t: torch.add(t, 1, out=t),
        lambda t: t.copy_(torch.zeros(3)),
        lambda t: t.unsqueeze_(0),
    ],
)
def test_each_way_of_changing(change: Callable[[torch.Tensor], Any]) -> None:
    tensor = torch.ones(3)
    marked = mark(tensor)
    assert marked is not None
    change(tensor)
    assert marked.changed()


def test_a_view_shares_the_counter_of_its_base() -> None:
    base = torch.ones(2, 3)
    marked = mark([base[0]])
    assert marked is not None
    base[1].add_(1)
    assert marked.changed(), "another row of the same storage: as far as the counter can tell, a change"


@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        1.5,
        True,
        "text",
        b"bytes",
        1j,
        int,
        [],
        {},
        (),
        [1, "a"],
        {"a": (None,)},
        {1, 2},
        object(),
        weave.InputArgs(1, k=2),
    ],
    ids=repr,
)
def test_values_without_tensors_have_no_mark(value: Any) -> None:
    assert mark(value) is None


def test_tensors_inside_other_objects_are_theirs() -> None:
    tensor = torch.ones(3)
    assert mark(types.SimpleNamespace(t=tensor)) is None
    assert mark({frozenset([1]): object()}) is None


def test_inference_tensors_have_no_mark() -> None:
    with torch.inference_mode():
        tensor = torch.ones(3)
        assert mark(tensor) is None
        assert mark([tensor]) is None
    marked = mark([tensor, torch.ones(2)])
    assert marked is not None
    assert len(marked.pairs) == 1


def test_a_container_that_holds_itself_ends() -> None:
    value: list[Any] = [torch.ones(1)]
    value.append(value)
    marked = mark(value)
    assert marked is not None
    assert len(marked.pairs) == 1


def test_who_waits_and_since_when() -> None:
    marked = mark(torch.ones(1), since=3, waiting=2)
    assert marked is not None
    assert (marked.since, marked.waiting) == (3, 2)
