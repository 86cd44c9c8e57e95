"""The application's loop and its context variables: a run never holds the one and never changes the other.

User code is held in a thread until a task beside it has had the loop a few times.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import torch
from torch import nn

from tests.small import EXT, flow, knot
from weave import ConstantTarget, FunctionTarget, ModuleTarget, StitchedModule

pytestmark = pytest.mark.anyio


TICKS = 5


class Held:
    """Stands where user code may: `value` and `reduce` return only after so many ticks of a task beside the run."""

    def __init__(self) -> None:
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.ticks: list[int] = []
        self.loop = 0

    def value(self, value: Any, *more: Any) -> Any:
        self._hold()
        return value

    def reduce(self, acc: Any, value: Any, *more: Any) -> Any:
        self._hold()
        return value if acc is None else acc + value

    def _hold(self) -> None:
        if not self.entered.is_set():
            self.ticks.append(0)
            self.entered.set()
            assert threading.get_ident() != self.loop, "on the loop"
            assert self.go_on.wait(30), "the loop was held"
            self.ticks.append(TICKS)

    async def tick(self) -> None:
        while not self.entered.is_set():
            await anyio.lowlevel.checkpoint()
        for index in range(1, TICKS):
            self.ticks.append(index)
            await anyio.lowlevel.checkpoint()
        self.go_on.set()

    @asynccontextmanager
    async def beside(self) -> Any:
        self.loop = threading.get_ident()
        async with anyio.create_task_group() as group:
            group.start_soon(self.tick)
            yield
            group.cancel_scope.cancel()
        assert self.ticks == list(range(TICKS + 1)), "held, ticked so many times, let go"


async def waits(*values: Any) -> Any:
    await anyio.lowlevel.checkpoint()
    return values[0]


def _node(function: Callable[..., Any], **at: Any) -> StitchedModule:
    """One function between the caller and the caller, with something at its input or output."""
    f = FunctionTarget("f", function)
    entry, leave = at.get("entry", {}), at.get("leave", {})
    return knot((EXT.input("x"), f.input()), (EXT.input("x"), f.input(**entry)), (f.output(**leave), EXT.output("y")))


class _Net(nn.Module):
    def __init__(self, held: Held) -> None:
        super().__init__()
        self.held = held
        self.a, self.b = nn.Identity(), nn.Identity()

    def forward(self, x: Any) -> Any:
        return self.b(self.held.value(self.a(x)))


def _forward(held: Held) -> StitchedModule:
    m, f = ModuleTarget("m", _Net(held)), FunctionTarget("f", waits)
    return knot(
        (EXT.input("x"), m.input("")),
        (m.output("a"), f.input()),
        (f.output(), EXT.output("f")),
        (m.output("b"), EXT.output("y")),
    )


BLOCKING: dict[str, Callable[[Held], StitchedModule]] = {
    "a forward": _forward,
    "a function": lambda h: flow(waits, h.value, waits),
    "a function that gives a coroutine": lambda h: flow(lambda x: waits(h.value(x))),
    "the caller's adapter": lambda h: knot(
        (EXT.input("x", adapter=h.value), (f := FunctionTarget("f", waits)).input()), (f.output(), EXT.output("y"))
    ),
    "the adapter to the caller": lambda h: knot(
        (EXT.input("x"), (f := FunctionTarget("f", waits)).input()), (f.output(), EXT.output("y", adapter=h.value))
    ),
    "the reducer to the caller": lambda h: knot(
        (EXT.input("x"), (f := FunctionTarget("f", waits)).input()),
        (f.output(), EXT.output("y")),
        (f.output(), EXT.output("y", reducer=h.reduce)),
    ),
    "an adapter in front of an async node": lambda h: _node(waits, entry={"adapter": h.value}),
    "an adapter behind an async node": lambda h: _node(waits, leave={"adapter": h.value}),
    "an adapter in front of an inline node": lambda h: knot(
        (EXT.input("x"), (f := FunctionTarget("f", abs, inline=True)).input(adapter=h.value)),
        (f.output(), EXT.output("y")),
    ),
    "a reducer of a function": lambda h: _node(lambda *x: x[0], entry={"reducer": h.reduce}),
    "an adapter behind a function": lambda h: _node(lambda *x: x[0], leave={"adapter": h.value}),
    "a reducer of an async node": lambda h: _node(waits, entry={"reducer": h.reduce}),
    "an adapter behind an async node with a reducer": lambda h: _node(
        waits, entry={"reducer": lambda acc, value, *more: acc + value}, leave={"adapter": h.value}
    ),
    "an adapter behind a late coroutine with a reducer": lambda h: _node(
        lambda *x: waits(*x), entry={"reducer": lambda acc, value, *more: acc + value}, leave={"adapter": h.value}
    ),
    "an adapter behind a constant": lambda h: knot(
        (ConstantTarget("c", 1).output(adapter=h.value), EXT.output("y")), (EXT.input("x"), EXT.input("x"))
    ),
}


@pytest.mark.parametrize("what", BLOCKING)
@pytest.mark.parametrize("workers", [1, 3])
async def test_the_loop_ticks_while_something_is_held(what: str, workers: int) -> None:
    held = Held()
    stitched = BLOCKING[what](held).with_options(max_workers=workers)
    async with held.beside():
        assert (await stitched.run({"x": 1}, {}))["y"] in (1, 2)


async def test_the_loop_ticks_while_a_streams_source_is_held() -> None:
    held = Held()

    def source() -> Iterator[Any]:
        yield {"x": held.value(1)}

    async with held.beside(), flow(waits).stream(source()) as results:
        assert [out["y"] async for out in results] == [1]


# --- context variables ---

WHO: contextvars.ContextVar[Any] = contextvars.ContextVar("WHO", default="nobody")


class _Asks(nn.Module):
    def __init__(self, ask: Callable[[Any], Any]) -> None:
        super().__init__()
        self.a, self.ask = nn.Identity(), ask

    def forward(self, x: Any) -> Any:
        return self.ask(self.a(self.ask(x)))


async def test_the_callers_variables_are_seen_everywhere_and_a_nodes_nowhere() -> None:
    seen: list[str] = []

    def asks(value: Any, *more: Any) -> Any:
        seen.append(WHO.get())
        WHO.set("somebody else")
        return value

    def asks_reducing(acc: Any, value: Any, *more: Any) -> Any:
        return asks(value)

    async def sets(x: Any, *more: Any) -> Any:
        asks(x)
        await anyio.lowlevel.checkpoint()
        return x

    m, f, g = ModuleTarget("m", _Asks(lambda x: x)), FunctionTarget("f", sets), FunctionTarget("g", asks)
    h = FunctionTarget("h", sets)
    stitched = knot(
        (EXT.input("x", adapter=asks), m.input("")),
        (m.output("a", adapter=asks), f.input()),
        (f.output(), g.input(adapter=asks)),
        (g.output(), h.input(adapter=asks)),
        (h.output(), EXT.output("y", adapter=asks)),
        (m.output(""), EXT.output("y", reducer=asks_reducing)),
    )
    WHO.set("caller")
    for _ in range(3):
        seen.clear()
        await stitched.run({"x": torch.ones(1)}, {})
        assert set(seen) - {"somebody else"} == {"caller"}
        assert WHO.get() == "caller"


@pytest.mark.parametrize("workers", [1, 4])
async def test_each_node_begins_with_the_callers_variables(workers: int) -> None:
    """Also where one set by a node is deleted, set to nothing, or set by one of many that share a worker."""
    began: list[str] = []
    tokens: list[Any] = []

    async def sets(x: Any, *more: Any) -> Any:
        began.append(WHO.get())
        tokens.append(WHO.set(None))
        await anyio.lowlevel.checkpoint()
        WHO.set("a node")
        return x

    def computes(x: Any, *more: Any) -> Any:
        began.append(WHO.get())
        WHO.set("a thread")
        return x

    WHO.set("caller")
    targets = [FunctionTarget(f"f{i}", sets if i % 2 else computes) for i in range(40)]
    chain = [(a.output(), b.input()) for a, b in zip(targets, targets[3:], strict=False)]
    stitched = knot(*[(EXT.input("x"), t.input()) for t in targets[:3]], *chain).with_options(max_workers=workers)
    await stitched.run({"x": 1}, {})
    assert began == ["caller"] * 40


@pytest.mark.parametrize(
    ("before", "after"),
    [("a", "b"), ([], [1]), (torch.zeros(2), torch.ones(2))],
    ids=["strings", "lists", "tensors, which have no truth"],
)
async def test_a_variable_is_the_same_object_for_the_next_node(before: Any, after: Any) -> None:
    """Where it was set to something else, that is: what equals the old value passes for unchanged."""

    async def sets(x: Any) -> Any:
        WHO.set(after)
        return x

    async def looks(x: Any) -> Any:
        return WHO.get()

    WHO.set(before)
    assert (await flow(sets, looks).run({"x": 1}, {}))["y"] is before


async def test_two_runs_at_once_have_two_callers() -> None:
    both = threading.Barrier(2)
    got: dict[str, Any] = {}

    def looks(x: Any) -> Any:
        both.wait(30)
        return WHO.get()

    async def run(name: str) -> None:
        WHO.set(name)
        got[name] = (await flow(waits, looks).run({"x": 1}, {}))["y"]

    async with anyio.create_task_group() as group:
        group.start_soon(run, "a")
        group.start_soon(run, "b")
    assert got == {"a": "a", "b": "b"}
