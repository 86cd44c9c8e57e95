"""`ObserverSuite`: what an observer must do, and must not do to a run."""

from __future__ import annotations

import difflib
import gc
import inspect
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import anyio
from torch import nn

from weave.engine.options import RunOptions
from weave.engine.watch import METHODS
from weave.graph.targets import FunctionTarget, ModuleTarget
from weave.spi.events import (
    Event,
    NodeEvent,
    NodeStarted,
    Observer,
    RunFinished,
    RunInfo,
    RunStarted,
)
from weave.stitched import StitchedModule
from weave.testing.condition import Condition
from weave.testing.suites.base import PluginSuite, drive, expect, on_loop, within
from weave.testing.suites.graphs import EXTERNAL, Echo, Stitch, tie

RUNS = 50
THREADS = 8


class NodeError(Exception):
    """What a node of the suite's graphs raises."""


class Told(Observer):
    """Writes down every event, in the order in which they came."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._condition = Condition()

    def _tell(self, event: Event) -> None:
        with self._condition.lock:
            self.events.append(event)
            self._condition.changed()

    run_started = run_finished = node_started = node_finished = node_failed = node_cancelled = _tell

    async def until_started(self, node: str, limit: float) -> None:
        """Wait until a node has started."""

        def started() -> bool:
            return any(isinstance(e, NodeStarted) and e.node == node for e in self.events)

        expect(await self._condition.until(started, limit), f"{node!r} did not start within {limit:g} s")


class ObserverSuite(PluginSuite):
    """Tests of an observer: of the one that a plugin's `weave_observer` gives, or of the one that `observer()` makes.

        class TestSpans(ObserverSuite):
            plugin = my_plugin

            def check(self, events):
                assert len(my_plugin.spans) == sum(isinstance(e, NodeStarted) for e in events)

    `setup_method` and `teardown_method` are pytest's: they may empty what the observer fills.
    """

    def observer(self) -> Observer | None:
        """An observer that is given by `RunOptions(observers=...)` instead of a plugin's hook."""
        return None

    def check(self, events: Sequence[Event]) -> None:
        """Look at what the observer made of the runs of one test. `events` is all that there was to be heard."""

    def unfinished(self) -> Sequence[Any]:
        """What the observer has begun and not ended, such as spans. Empty between runs."""
        return ()

    def parameters(self, test: str) -> dict[str, list[Any]]:
        """The methods of an observer."""
        return {"method": list(METHODS)}

    # --- checks ---

    def test_is_asked(self) -> None:
        """A run asks for it; its methods are known ones, and plain functions."""
        for observer in self._asked():
            expect(
                not isinstance(observer, type) and any(hasattr(observer, name) for name in METHODS),
                f"weave_observer(run) gave {observer!r}, which is no object with methods of an Observer",
            )
            for name, function in inspect.getmembers(type(observer), inspect.isfunction):
                if name.startswith(("run_", "node_")) and name not in METHODS:
                    near = difflib.get_close_matches(name, METHODS, n=1) or METHODS
                    expect(False, f"{type(observer).__name__}.{name} is never called; there is {', '.join(near)}")
                expect(
                    name not in METHODS or not inspect.iscoroutinefunction(function),
                    f"{type(observer).__name__}.{name} is an async function: it is called, and nobody awaits it",
                )

    def test_hears_of_runs(self, driver: str) -> None:
        """Runs go on as they would without it, and what began has ended."""
        with self._heard() as told:
            stitched = self._graph(told)
            for x in (1, 2):
                self._right(drive(driver, stitched, {"x": x}, {}), x)
        self._balanced(told.events, {"ok": 2})

    def test_hears_of_failures(self, driver: str) -> None:
        """A node's failure arrives as it is."""
        with self._heard() as told:
            stitched = self._graph(told, _fail)
            try:
                drive(driver, stitched, {"x": 1}, {})
            except NodeError:
                pass
            else:
                expect(False, "a node failed, and the run did not")
        self._balanced(told.events, {"failed": 1})

    def test_hears_of_cancellation(self, backend: str) -> None:
        """A run is cancelled while a node waits; cancellation stays what it is."""
        with self._heard() as told:
            stitched = self._graph(told, _wait_for_ever)

            async def main() -> bool:
                with anyio.CancelScope() as scope:
                    async with anyio.create_task_group() as group:

                        async def cancel() -> None:
                            await told.until_started("last", self.limit)
                            scope.cancel()

                        group.start_soon(cancel)
                        await stitched.run({"x": 1}, {})
                return scope.cancelled_caught

            stopped = within(self.limit, "a cancelled run", lambda: on_loop(backend, main))
            expect(stopped, "the run was cancelled, and was not")
        self._balanced(told.events, {"cancelled": 1})

    def test_many_runs_at_once(self, backend: str) -> None:
        """Runs under way at once are told apart by `event.run`."""
        with self._heard() as told:
            stitched = self._graph(told)

            async def one(x: int) -> None:
                self._right(await stitched.run({"x": x}, {}), x)

            async def main() -> None:
                async with anyio.create_task_group() as group:
                    for x in range(RUNS):
                        group.start_soon(one, x)

            on_loop(backend, main)
        self._balanced(told.events, {"ok": RUNS})

    def test_calls_in_threads(self) -> None:
        """Synchronous calls from several threads."""
        wrong: list[BaseException] = []
        with self._heard() as told:
            stitched = self._graph(told)

            def call(x: int) -> None:
                try:
                    self._right(stitched({"x": x}, {}), x)
                except BaseException as error:
                    wrong.append(error)

            threads = [threading.Thread(target=call, args=(x,)) for x in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if wrong:
            raise wrong[0]
        self._balanced(told.events, {"ok": THREADS})

    def test_runs_inside_runs(self, driver: str) -> None:
        """A node runs another graph."""
        with self._heard() as told:
            inner = self._graph(told)
            outer = self._graph(told, lambda x: inner({"x": x}, {})["y"])
            out = drive(driver, outer, {"x": 1}, {})["y"]
            expect(out == _due(2), f"a run inside a run gave {out!r}")
        self._balanced(told.events, {"ok": 2})

    def test_another_observer_that_raises(self, driver: str, method: Any) -> None:
        """Another observer is dropped from a run; that is nothing to this one."""
        raising = type("Raising", (Observer,), {method: _raise})()
        with self._heard(of_others=True) as told:
            stitched = self._graph(told, options=RunOptions(observers=(raising, told, *self._given())))
            self._right(drive(driver, stitched, {"x": 1}, {}), 1)
        self._balanced(told.events, {"ok": 1})

    def test_keeps_no_values(self, driver: str) -> None:
        """What went through a run is let go when the run is over, though the observer lives on."""
        with self._heard() as told:
            function = FunctionTarget("last", _Thing)
            stitches: list[Stitch] = [
                (EXTERNAL.input("x"), function.input()),
                (function.output(), EXTERNAL.output("y")),
            ]
            observers = (told, *self._given())
            stitched = tie(stitches, plugins=self.plugins, options=RunOptions(observers=observers))
            thing = weakref.ref(drive(driver, stitched, {"x": 1}, {})["y"])
            gc.collect()
            held_by = [] if thing() is None else [type(holder).__name__ for holder in gc.get_referrers(thing())]
            expect(thing() is None, f"a value of a run that is over is still held, by objects of the types {held_by}")

    # --- how ---

    def _asked(self) -> list[Any]:
        """What a run gets from the plugin, and what is given by hand."""
        plan = self._graph(Told()).plan
        info = RunInfo(run="0" * 12, plan=plan, driver="inline", started_at=time.time(), time_ns=time.perf_counter_ns())
        found: list[Any] = list(self._given())
        for record in self.plugins.records:
            if record.observe is not None:
                found += [answer for answer in record.observe(run=info) if answer is not None]
        expect(found, "no observer: the plugin's weave_observer(run) gave None, and observer() makes none")
        return found

    def _given(self) -> list[Observer]:
        made = self.observer()
        return [] if made is None else [made]

    def _graph(self, told: Told, last: Callable[..., Any] | None = None, **options: Any) -> StitchedModule:
        """x → a function and a module, both → the last node → y."""
        first, last_ = FunctionTarget("first", _more), FunctionTarget("last", last or _sum)
        module = ModuleTarget("module", nn.Sequential(Echo()))
        stitches: list[Stitch] = [
            (EXTERNAL.input("x"), first.input()),
            (first.output(), module.input("")),
            (module.output("0"), last_.input()),
            (last_.output(), EXTERNAL.output("y")),
        ]
        if "options" not in options:
            options["options"] = RunOptions(observers=(told, *self._given()))
        return tie(stitches, plugins=self.plugins, **options)

    def _right(self, out: Any, x: int) -> None:
        expect(out["y"] == _due(x), f"an observed run gave {out['y']!r}, due is {_due(x)}")

    @contextmanager
    def _heard(self, of_others: bool = False) -> Iterator[Told]:
        """Events of runs; what weave complains of meanwhile is a failure, and so is what stays unfinished."""
        told, complaints = Told(), _Complaints()
        logger = logging.getLogger("weave")
        level = logger.level
        logger.addHandler(complaints)
        logger.setLevel(logging.WARNING)
        try:
            yield told
        finally:
            logger.removeHandler(complaints)
            logger.setLevel(level)
        said = [line for line in complaints.lines if not (of_others and "(Raising)" in line)]
        expect(not said, f"the observer was dropped from a run: {said[:1]}")
        left = list(self.unfinished())
        expect(not left, f"runs are over, and the observer still has {left!r}")
        self.check(told.events)

    def _balanced(self, events: Sequence[Event], due: dict[str, int]) -> None:
        """What began has ended, in that order, and runs ended as they should: what every observer can rely on."""
        started = [e for e in events if isinstance(e, RunStarted)]
        ended = [e for e in events if isinstance(e, RunFinished)]
        statuses = {status: sum(e.status == status for e in ended) for status in {e.status for e in ended}}
        expect(statuses == due and len(started) == len(ended), f"runs ended as {statuses}, expected {due}")
        for run in {e.run.run for e in events}:
            of_it = [e for e in events if e.run.run == run]
            expect(isinstance(of_it[0], RunStarted) and isinstance(of_it[-1], RunFinished), f"events of a run: {of_it}")
            nodes = [e for e in of_it if isinstance(e, NodeEvent)]
            for unit in {e.unit for e in nodes}:
                told = [isinstance(e, NodeStarted) for e in nodes if e.unit == unit]
                expect(told == [True, False], f"a node's events, whether of its start: {told}")


class _Complaints(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class _Thing:
    def __init__(self, value: Any) -> None:
        self.value = value


def _more(x: int) -> int:
    return x + 1


def _sum(x: int) -> int:
    return x * 10


def _due(x: int) -> int:
    return (x + 1) * 10


def _fail(x: int) -> Any:
    raise NodeError


async def _wait_for_ever(x: int) -> Any:
    await anyio.sleep_forever()


def _raise(self: Observer, event: Event) -> None:
    raise RuntimeError("another observer")
