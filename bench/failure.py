"""Section *engine*: one node fails while a thousand others wait. From the raise until the caller has the exception."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import anyio

from bench.comparing import Comparison, Entry, Experiment
from bench.graphs import Graph, side_by_side
from bench.pairing import CLOCKS, Pace, Timed
from bench.peers import weave_graphs
from bench.rows import Row

SECTION = "engine"
SIBLINGS = 1_000


class Boom(Exception):
    """What the node raises."""


class Scene:
    """One failure: counts who is in flight, who has ended, and when the exception was on its way."""

    def __init__(self, siblings: int, now: Callable[[], float]) -> None:
        self.siblings, self.now = siblings, now
        self.begin()

    def begin(self) -> None:
        self.waiting = self.ended = 0
        self.raised = 0.0
        self.all_in: anyio.Event | None = None

    async def sibling(self, x: Any) -> None:
        self.waiting += 1
        if self.waiting == self.siblings and self.all_in is not None:
            self.all_in.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.ended += 1

    async def boom(self, x: Any) -> None:
        if self.waiting < self.siblings:
            self.all_in = anyio.Event()
            await self.all_in.wait()
        self.raised = self.now()
        raise Boom

    def told(self, error: BaseException | None) -> Timed:
        """Called when the caller has it: what it is, and how many had ended by then."""
        seconds = self.now() - self.raised
        return Timed(seconds, (type(error).__name__, self.ended))


def experiments(pace: Pace) -> list[Experiment]:
    return [
        Experiment(f"a failure, {backend}", partial(_failing, backend, pace.pick(SIBLINGS, 100)))
        for backend in ("asyncio", "trio")
    ]


def _failing(backend: str, siblings: int, pace: Pace) -> list[Row]:
    now = CLOCKS[pace.clock("cpu")]
    comparison = Comparison(
        section=SECTION,
        what=f"a failure among {siblings:,} that wait, until the caller has it, {backend}",
        same=lambda expected, got: expected.result == got.result,
    )
    entries = [
        Entry("anyio task group", lambda: _bare(Scene(siblings, now)), lambda: Timed(0.0, (Boom.__name__, siblings))),
        Entry("weave", lambda: _weave(Scene(siblings, now)), target=1.5),
    ]
    return anyio.run(comparison.run_async, entries, pace.times(0.6), backend=backend).rows


def _bare(scene: Scene) -> Callable[[], Any]:
    async def run() -> Timed:
        scene.begin()
        try:
            async with anyio.create_task_group() as group:
                for _ in range(scene.siblings):
                    group.start_soon(scene.sibling, 1)
                group.start_soon(scene.boom, 1)
        except BaseExceptionGroup as group_of_one:
            return scene.told(group_of_one.exceptions[0])
        raise AssertionError("it didn't fail")

    return run


def _weave(scene: Scene) -> Callable[[], Any]:
    nodes = [scene.sibling] * scene.siblings + [scene.boom]
    stitched = weave_graphs.knot(Graph(side_by_side(len(nodes)), nodes, waits=True))

    async def run() -> Timed:
        scene.begin()
        try:
            await stitched.run({"x": 1}, {})
        except Boom as error:
            told = scene.told(error)
            notes = getattr(error, "__notes__", [""])
            if f"n{scene.siblings}" not in notes[0]:
                raise AssertionError(f"the node is not named: {notes}") from None
            return told
        raise AssertionError("it didn't fail")

    return run
