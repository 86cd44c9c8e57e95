"""What a node raises arrives as it is, with a note that says where."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.small import EXT, Tiny, appearance, constant, flow, knot, module, plus_one
from weave import (
    CantResolveNodeDependenciesException,
    FunctionTarget,
    PortNotReachedException,
    StitchedModuleException,
)


class Odd(Exception):
    """Takes what no copy would give it, and can't be printed."""

    def __init__(self, a: int, *, b: int) -> None:
        super().__init__()

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Refuses(Exception):
    """Will have no notes."""

    def add_note(self, note: str) -> None:
        raise TypeError("no notes")


class Slotted(Exception):
    __slots__ = ()

    @property
    def __notes__(self) -> Any:
        raise RuntimeError("no notes here")


def raiser(error: BaseException) -> Callable[..., Any]:
    def f(*args: Any, **kwargs: Any) -> Any:
        raise error

    return f


def arriving(stitched: Any, inputs: Any = None) -> BaseException:
    with pytest.raises(BaseException) as raised:
        stitched(inputs if inputs is not None else {"x": 1}, {})
    return raised.value


ERRORS = [
    ValueError("mine"),
    StopIteration("end"),
    StopAsyncIteration(),
    MemoryError(),
    RecursionError(),
    Odd(1, b=2),
    KeyError("k"),
    AssertionError(),
    ExceptionGroup("several", [ValueError(1), TypeError(2)]),
    StitchedModuleException("thrown by a node"),
]
BASE_ERRORS = [KeyboardInterrupt(), SystemExit(3), GeneratorExit(), BaseExceptionGroup("x", [KeyboardInterrupt()])]


@pytest.mark.parametrize("error", [*ERRORS, *BASE_ERRORS], ids=lambda e: type(e).__name__)
def test_the_very_exception_arrives_from_a_function(error: BaseException) -> None:
    cause = error.__cause__, error.__context__
    assert arriving(flow(plus_one, raiser(error))) is error
    assert (error.__cause__, error.__context__) == cause


@pytest.mark.parametrize("error", [*ERRORS, *BASE_ERRORS], ids=lambda e: type(e).__name__)
def test_the_very_exception_arrives_from_a_module(error: BaseException) -> None:
    class Net(Tiny):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.a(x)
            raise error

    m = module(Net())
    stitched = knot((EXT.input("x"), m.input("")), (m.output("a"), EXT.output("a")), (m.output("b"), EXT.output("b")))
    before = appearance(m.module)
    assert arriving(stitched, {"x": torch.ones(1, 3)}) is error
    assert appearance(m.module) == before


@pytest.mark.parametrize("where", ["adapter of a source", "adapter", "reducer"])
def test_the_very_exception_arrives_from_everything_that_runs_for_a_node(where: str) -> None:
    error = ValueError("mine")
    fail = raiser(error)

    f, g = FunctionTarget("f", plus_one), FunctionTarget("g", plus_one)
    stitches = {
        "adapter of a source": [(f.output(adapter=fail), g.input())],
        "adapter": [(f.output(), g.input(adapter=fail))],
        "reducer": [(f.output(), g.input(reducer=fail))],
    }[where]
    stitched = knot((EXT.input("x"), f.input()), *stitches, (g.output(), EXT.output("y")))
    assert arriving(stitched) is error
    due = {"adapter of a source": "f", "adapter": "g", "reducer": "g"}[where]
    assert f"node {due!r}" in "".join(error.__notes__)


@pytest.mark.parametrize(
    "stitch",
    [
        lambda fail: (EXT.input("x", adapter=fail), EXT.input("y")),
        lambda fail: (EXT.input("x"), EXT.input("y", adapter=fail)),
        lambda fail: (EXT.input("x"), EXT.input("y", reducer=fail)),
        lambda fail: (EXT.input("x"), EXT.output("y", adapter=fail)),
    ],
)
def test_the_very_exception_arrives_from_the_boundary(stitch: Callable[[Any], Any]) -> None:
    error = ValueError("mine")
    assert arriving(knot(stitch(raiser(error)))) is error


# --- the note ---


def test_the_note_names_the_node_what_fed_it_and_the_run() -> None:
    error = ValueError("mine")
    f, g = FunctionTarget("f", plus_one), FunctionTarget("f", raiser(error))
    m = module(nn.Sequential(nn.Identity()))
    stitched = knot(
        (EXT.input("x"), f.input()),
        (EXT.input("x"), m.input("")),
        (f.output(), g.input()),
        (m.output("0", call=0), g.input()),
        (g.output(), EXT.output("y")),
    )
    arriving(stitched)
    (note,) = error.__notes__
    assert note.startswith("weave: ")
    assert "node 'f#2'" in note
    assert "f.output() -> f#2.input()" in note
    assert "m.output('0', call=0) -> f#2.input()" in note
    (run,) = re.findall(r"\(run ([0-9a-f]{12})\)", note)
    arriving(stitched)
    assert len(error.__notes__) == 2
    assert run not in error.__notes__[1], "another run, another id"


def test_the_note_is_printed_with_the_traceback() -> None:
    error = ValueError("mine")
    arriving(flow(raiser(error)))
    assert "weave: raised in node 'f0'" in "".join(traceback.format_exception(error))


def test_a_node_with_very_many_feeders_has_a_note_of_bounded_length() -> None:
    error = ValueError("mine")
    f = FunctionTarget("f", raiser(error))
    arriving(knot(*[(EXT.input("x"), f.input()) for _ in range(1000)], (f.output(), EXT.output("y"))))
    (note,) = error.__notes__
    assert "and 992 more" in note
    assert len(note) < 1000


def test_a_node_that_nothing_feeds() -> None:
    error = ValueError("mine")
    f = FunctionTarget("f", raiser(error))
    arriving(knot((f.output(), EXT.output("y"))), {})
    assert "node 'f' (run " in error.__notes__[0]


@pytest.mark.parametrize("error", [Refuses("mine"), Slotted("mine")], ids=lambda e: type(e).__name__)
def test_an_exception_that_refuses_notes_arrives_all_the_same(error: BaseException) -> None:
    assert arriving(flow(raiser(error))) is error


@pytest.mark.parametrize("error", BASE_ERRORS, ids=lambda e: type(e).__name__)
def test_what_is_no_error_of_a_node_is_left_untouched(error: BaseException) -> None:
    arriving(flow(raiser(error)))
    assert not hasattr(error, "__notes__")


def test_a_graph_within_a_graph_adds_a_note_of_its_own() -> None:
    error = ValueError("mine")
    inner = FunctionTarget("inner", flow(raiser(error)))
    outer = knot((constant({"x": 1}), inner.input()), (constant({}), inner.input()), (inner.output(), EXT.output("y")))
    assert arriving(outer, {}) is error
    first, second = error.__notes__
    assert "'f0'" in first
    assert "'inner'" in second


def test_what_weave_itself_raises_in_a_node_has_the_note_too() -> None:
    class Never(Tiny):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    m = module(Never())
    error = arriving(knot((EXT.input("x"), m.input("")), (m.output("a"), EXT.output("y"))), {"x": torch.ones(1, 3)})
    assert isinstance(error, PortNotReachedException)
    assert "node 'm'" in error.__notes__[0]


# --- after a failure ---


def test_later_nodes_do_not_run_and_the_next_run_is_as_new() -> None:
    ran: list[str] = []
    fail = [True]

    def sometimes(x: Any) -> Any:
        if fail[0]:
            raise ValueError("planned")
        return x + 1

    f = FunctionTarget("f", sometimes)
    after = FunctionTarget("after", lambda x: ran.append("after") or x)
    stitched = knot((EXT.input("x"), f.input()), (f.output(), after.input()), (after.output(), EXT.output("y")))
    assert isinstance(arriving(stitched), ValueError)
    assert ran == []
    fail[0] = False
    assert stitched({"x": 1}, {})["y"] == 2
    assert ran == ["after"]


def test_a_type_error_of_a_wrong_number_of_arguments_names_the_node() -> None:
    """The graph's affair, found by Python when the function is called."""
    f = FunctionTarget("f", lambda a, b: a)
    error = arriving(knot((EXT.input("x"), f.input()), (f.output(), EXT.output("y"))))
    assert isinstance(error, TypeError)
    assert "node 'f', fed by external.input('x') -> f.input()" in error.__notes__[0]


def test_the_family() -> None:
    assert issubclass(CantResolveNodeDependenciesException, StitchedModuleException)
