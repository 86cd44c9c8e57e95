"""Cancelled at each step in turn, in every way that somebody cancels: nothing is lost, nothing is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest
import torch
import trio
from torch import nn

from tests.engine.stepping import Census, Steps, computing, nothing_said_later, tasks
from tests.small import EXT, appearance, flow, knot
from weave import FunctionTarget, InputArgs, ModuleTarget, StitchedModule

NOTHING: Any = object()
Run = Callable[[], Awaitable[Any]]


# --- ways to cancel: each gives what the run gave, or NOTHING where it was cancelled ---


async def task(run: Run, steps: Steps, at: int) -> Any:
    async def whole() -> Any:
        return await run()

    asked: list[bool] = []
    running = asyncio.create_task(whole())
    steps.arm(at, lambda: asked.append(running.cancel()))
    await asyncio.wait([running])
    steps.armed = False
    if running.cancelled():
        return NOTHING
    assert asked != [True], "a cancellation was swallowed"
    return running.result()


async def timeout(run: Run, steps: Steps, at: int) -> Any:
    value = NOTHING
    try:
        async with asyncio.timeout(None) as limit:
            steps.arm(at, lambda: limit.reschedule(0))
            value = await run()
    except TimeoutError:
        assert limit.expired()
    this: Any = asyncio.current_task()
    assert not this.cancelling()
    return value


async def scope(run: Run, steps: Steps, at: int) -> Any:
    value = NOTHING
    with anyio.CancelScope() as around:
        steps.arm(at, around.cancel)
        value = await run()
    assert around.cancelled_caught is (value is NOTHING)
    return value


def _expire(around: Any) -> None:
    around.deadline = float("-inf")


async def move_on_after(run: Run, steps: Steps, at: int) -> Any:
    value = NOTHING
    with anyio.move_on_after(1e6) as around:
        steps.arm(at, lambda: _expire(around))
        value = await run()
    assert around.cancelled_caught is (value is NOTHING)
    return value


async def fail_after(run: Run, steps: Steps, at: int) -> Any:
    try:
        with anyio.fail_after(1e6) as around:
            steps.arm(at, lambda: _expire(around))
            return await run()
    except TimeoutError:
        assert around.cancelled_caught
    return NOTHING


async def group(run: Run, steps: Steps, at: int) -> Any:
    got = [NOTHING]

    async def one() -> None:
        got[0] = await run()

    async with anyio.create_task_group() as around:
        steps.arm(at, around.cancel_scope.cancel)
        around.start_soon(one)
    return got[0]


async def trio_move_on(run: Run, steps: Steps, at: int) -> Any:
    value = NOTHING
    with trio.move_on_after(1e6) as around:
        steps.arm(at, lambda: _expire(around))
        value = await run()
    assert around.cancelled_caught is (value is NOTHING)
    return value


async def nursery(run: Run, steps: Steps, at: int) -> Any:
    got = [NOTHING]

    async def one() -> None:
        got[0] = await run()

    async with trio.open_nursery() as around:
        steps.arm(at, around.cancel_scope.cancel)
        around.start_soon(one)
    return got[0]


WAYS = [
    ("asyncio", task),
    ("asyncio", timeout),
    *[(backend, way) for backend in ("asyncio", "trio") for way in (scope, move_on_after, fail_after, group)],
    ("trio", trio_move_on),
    ("trio", nursery),
]


# --- what is cancelled ---


class Scene:
    """Something to run, and what it gives when it is let run to its end."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.census = Census()
        self.net = nn.Identity()
        self.stitched: StitchedModule
        self.due: Any = None

    async def __call__(self) -> Any:
        return (await self.stitched.run({"x": 1}, {}))["y"]

    async def waits(self, x: Any, *more: Any) -> Any:
        with self.census.one():
            await anyio.lowlevel.checkpoint()
            await anyio.sleep(0)
        return x + 1

    def computes(self, x: Any, *more: Any) -> Any:
        with self.census.one():
            self.steps.point()
        return x + 1


class AsyncDiamond(Scene):
    """One of two async nodes waits for what the other does."""

    def __init__(self, steps: Steps) -> None:
        super().__init__(steps)

        async def left(x: int) -> int:
            with self.census.one():
                await self.event.wait()
            return x

        async def right(x: int) -> int:
            y = await self.waits(x)
            self.event.set()
            return int(y)

        first, last = FunctionTarget("first", self.waits), FunctionTarget("last", max)
        a, b = FunctionTarget("a", left), FunctionTarget("b", right)
        self.stitched = knot(
            (EXT.input("x"), first.input()),
            *[(first.output(), t.input()) for t in (a, b)],
            *[(t.output(), last.input()) for t in (a, b)],
            (last.output(), EXT.output("y")),
        )
        self.due = 3

    async def __call__(self) -> Any:
        self.event = anyio.Event()
        return await super().__call__()


class Threads(Scene):
    """A chain and a fan of functions in two worker threads."""

    def __init__(self, steps: Steps) -> None:
        super().__init__(steps)
        first, last = FunctionTarget("first", self.computes), FunctionTarget("last", lambda *values: sum(values))
        fan = [FunctionTarget(f"f{i}", self.computes) for i in range(4)]
        self.stitched = knot(
            (EXT.input("x"), first.input()),
            *[(first.output(), t.input()) for t in fan],
            *[(t.output(), last.input()) for t in fan],
            (last.output(), EXT.output("y")),
        ).with_options(max_workers=2)
        self.due = 12


class _Net(nn.Module):
    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self.scene = [scene]  # in a list, so that it is no attribute that torch looks into
        self.layers = nn.ModuleList(nn.Identity() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(self.scene[0].computes(x))
        return x


class Forward(Scene):
    """An async node consumes what a forward captures on its way; another forward takes its answer."""

    def __init__(self, steps: Steps) -> None:
        super().__init__(steps)
        self.net = _Net(self)
        teacher, student = ModuleTarget("teacher", self.net), ModuleTarget("student", self.net)
        f = FunctionTarget("f", self.waits)
        self.stitched = knot(
            (EXT.input("x"), teacher.input("")),
            (teacher.output("layers.0"), f.input()),
            (f.output(), student.input("layers.1")),
            (EXT.input("x"), student.input("")),
            (student.output("layers.2"), EXT.output("y")),
            (teacher.output(""), EXT.output("all")),
        ).with_options(max_workers=2)
        self.due = [4.0]

    async def __call__(self) -> Any:
        out = await self.stitched.run({"x": torch.zeros(1)}, {})
        assert out["all"].tolist() == [3.0]
        return [out["y"].item() + 1]


class InnerHops(Scene):
    """Adapters around an async node, which hop into threads."""

    def __init__(self, steps: Steps) -> None:
        super().__init__(steps)
        first, f = FunctionTarget("first", self.waits), FunctionTarget("f", self.waits)
        adapted = {"adapter": self.computes}
        self.stitched = knot(
            (EXT.input("x"), first.input()),
            (first.output(), f.input(**adapted)),
            (first.output(**adapted), f.input()),
            (f.output(**adapted), EXT.output("y")),
        )
        self.due = 5


class OuterHops(Scene):
    """Adapters and a reducer at the caller's boundary, which hop into threads before and after everything else."""

    def __init__(self, steps: Steps) -> None:
        super().__init__(steps)
        f = FunctionTarget("f", self.waits)
        self.stitched = knot(
            (EXT.input("x", adapter=lambda call: InputArgs(self.computes(call.args[0]))), f.input()),
            (f.output(), EXT.output("y", adapter=self.computes)),
            (f.output(), EXT.output("y", reducer=lambda acc, value, *more: acc + self.computes(value))),
        )
        self.due = 8


class LateAwaitable(Scene):
    """A plain function in a thread that gives a coroutine."""

    def __init__(self, steps: Steps) -> None:
        super().__init__(steps)
        self.stitched = flow(self.computes, lambda x: self.waits(self.computes(x)), self.computes)
        self.due = 5


class _Streamed(Scene):
    source: Any

    def __init__(self, steps: Steps) -> None:
        super().__init__(steps)
        self.stitched = flow(self.waits, self.computes)
        self.due = [2, 3]

    async def __call__(self) -> Any:
        got = []
        async with self.stitched.stream(self.source(), in_flight=2) as results:
            async for out in results:
                got.append(out["y"])
                await anyio.lowlevel.checkpoint()
        return got


class SyncSource(_Streamed):
    """A stream from a plain iterable, pulled in a thread."""

    def source(self) -> Iterator[Any]:
        for index in range(2):
            yield {"x": self.computes(index) - 1}


class AsyncSource(_Streamed):
    """A stream from an async iterable (no generator: those are closed by whoever made them)."""

    def source(self) -> AsyncIterator[Any]:
        left = list(range(2))

        class Source:
            def __aiter__(self) -> Any:
                return self

            async def __anext__(self) -> Any:
                await anyio.lowlevel.checkpoint()
                if not left:
                    raise StopAsyncIteration
                return {"x": left.pop(0)}

        return Source()


SCENES = [AsyncDiamond, Threads, Forward, InnerHops, OuterHops, LateAwaitable, SyncSource, AsyncSource]


@pytest.mark.parametrize(("backend", "way"), WAYS, ids=lambda value: getattr(value, "__name__", value))
@pytest.mark.parametrize("scene", SCENES)
def test_at_every_step(scene: Callable[[Steps], Scene], backend: str, way: Any) -> None:
    steps = Steps()
    thing = scene(steps)
    before = appearance(thing.net)
    cancelled: list[int] = []

    async def main() -> None:
        at = 0
        while True:
            there = tasks()
            got = await way(thing, steps, at)
            steps.armed = False
            assert thing.census.alive == 0, f"cancelled at step {at}: functions still run"
            assert not computing()
            assert tasks() <= there
            assert appearance(thing.net) == before
            assert got is NOTHING or got == thing.due
            if got is NOTHING:
                cancelled.append(at)
            assert await thing() == thing.due, "the run after it is as any other"
            if not steps.acted:
                return
            at += 1

    with nothing_said_later():
        steps.run(backend, main)
    assert cancelled[:3] == [0, 1, 2]
    assert len(cancelled) > 5, "most steps are in the middle"
