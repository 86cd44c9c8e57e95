"""The checks of a target type that are about time: many runs at once, failure, cancellation."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from weave.engine.options import RunOptions
from weave.graph.args import InputArgs
from weave.graph.targets import FunctionTarget
from weave.stitched import StitchedModule
from weave.testing.suites.base import expect, on_loop, within
from weave.testing.suites.graphs import EXTERNAL, Stitch, passed, tie
from weave.testing.suites.leftovers import no_task_left, no_thread_left
from weave.testing.suites.meeting import Meeting, Signals, held
from weave.testing.suites.target_graph import TargetExample, TargetSuiteBase

RUNS = 20
THREADS = 8


class SiblingError(Exception):
    """What another node raises."""


class DeliveryError(Exception):
    """What somebody behind the target raises, when he is handed its value."""


class LifeChecks(TargetSuiteBase):
    """Checks of `TargetTypeSuite`."""

    # --- several runs ---

    def test_many_runs_at_once(self, backend: str) -> None:
        """Runs of one graph under way at once, with different values, don't meet."""
        wrong: list[str] = []
        for example in self._one_of_each_shape():
            alike = self._alike(example)
            stitched = self.knot(example)

            async def one(index: int, alike: Any = alike, stitched: Any = stitched) -> None:
                try:
                    self.check(await self.arun(stitched, alike[index % len(alike)]), alike[index % len(alike)], "")
                except AssertionError as error:
                    wrong.append(str(error))

            async def all_of_them(stitched: Any = stitched, one: Any = one) -> None:
                async with stitched, anyio.create_task_group() as group:
                    for index in range(RUNS):
                        group.start_soon(one, index)

            on_loop(backend, all_of_them)
        expect(not wrong, f"{RUNS} runs at once: {wrong[:1]}. A firing's state belongs in its local variables")
        self.settled(f"after {RUNS} runs at once")

    def test_calls_in_threads(self) -> None:
        """Synchronous calls from several threads don't meet. Each is held at its first delivery until all are there."""
        self.needs_no_loop()
        for example in self._one_of_each_shape():
            alike = self._alike(example)
            stitched = held(self.knot(example), Meeting(THREADS))
            wrong: list[BaseException] = []

            def call(index: int, alike: Any = alike, stitched: Any = stitched, wrong: Any = wrong) -> None:
                mine = alike[index % len(alike)]
                try:
                    self.check(stitched(*self.given(mine), **dict(mine.kwargs)), mine, f"{THREADS} threads at once")
                except BaseException as error:
                    wrong.append(error)

            with stitched:
                threads = [threading.Thread(target=call, args=(index,), daemon=True) for index in range(THREADS)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(self.limit)
            expect(not any(t.is_alive() for t in threads), f"{THREADS} calls were not over after {self.limit:g} s")
            if wrong:
                raise wrong[0]

    # --- failure ---

    def test_failures(self, driver: str, failure: Any) -> None:
        """What it raises arrives as it is, with a note that names the node, and leaves nothing open."""
        stitched = self.knot(failure)
        node = stitched.plan.units[-1 if stitched.plan.units[0].node == "beside" else 0].node
        for _ in range(2):
            with pytest.raises(failure.raises) as raised:
                self.drive(driver, stitched, failure)
            notes = getattr(raised.value, "__notes__", [])
            expect(
                any(f"raised in node {node!r}" in note for note in notes),
                f"{raised.value!r} says nothing of the node that raised it: its notes are {notes}",
            )
            self.settled("after a failure")

    def test_an_error_behind_it(self, driver: str, example: Any) -> None:
        """`firing.deliver` may raise, for somebody else; an executor lets that through, and nothing stays open."""
        target = self._target(example)
        stitches: list[Stitch] = [
            (self.port(target, "output", source.name, adapter=_refuse), destination)
            if source.target is target and source.kind == "output"
            else (source, destination)
            for source, destination in self.stitches(example, target)
        ]
        try:
            self.drive(driver, tie(stitches, target, plugins=self.plugins), example)
        except DeliveryError:
            pass
        else:
            expect(
                False, "`firing.deliver` raised, and the run did not: the executor has swallowed another's exception"
            )
        self.settled("after an error behind it")

    # --- cancellation ---

    def test_cancelled_behind_it(self, backend: str, example: Any) -> None:
        """It has ended; another node still waits, and the run is cancelled. Nothing is left, and it can be run again."""
        target = self._target(example)
        signals = Signals()
        waits = FunctionTarget("waits", anyio.sleep_forever)
        stitches: list[Stitch] = [*self.stitches(example, target), (waits.output(), EXTERNAL.output("never"))]
        stitched = tie(stitches, target, plugins=self.plugins, options=RunOptions(observers=(signals,)))
        node = stitched.plan.nodes[target]
        self._cancel(backend, stitched, example, signals, [("finished", node), ("started", "waits")])
        self.check(self.drive(backend, self.knot(example), example)[0], example, "after a cancelled run")

    def test_cancelled_midway(self, backend: str) -> None:
        """Cancelled while it is going on, it ends; what it delivered early has arrived. Needs a `lasting` example."""
        example = self.lasting or TargetExample()
        stitched, signals, when = self._going_on(example)
        self._cancel(backend, stitched, example, signals, when)

    def test_a_siblings_failure_stops_it(self, backend: str) -> None:
        """Another node fails while it is going on: it ends, and that failure alone is raised. Needs `lasting`."""
        example = self.lasting or TargetExample()

        async def fail() -> None:
            await signals.until(when, self.limit)
            raise SiblingError

        sibling = FunctionTarget("sibling", fail)
        stitched, signals, when = self._going_on(example, (sibling.output(), EXTERNAL.output("never")))
        raised: list[BaseException] = []

        async def main() -> None:
            async with no_task_left("a failed run"), stitched:
                try:
                    await self.arun(stitched, example)
                except Exception as error:
                    raised.append(error)

        with no_thread_left("a failed run", min(self.limit, 5.0)):
            within(2 * self.limit, "a run that a node's failure ends", lambda: on_loop(backend, main))
        expect(
            raised and type(raised[0]) is SiblingError,
            f"another node raised SiblingError, and the run raised {raised!r}: cancellation is not to be caught, or to be "
            "raised again",
        )
        self.settled("after a sibling's failure")

    # --- how ---

    def _alike(self, example: TargetExample) -> list[TargetExample]:
        return [e for e in self._examples if e.shape == example.shape]

    def _one_of_each_shape(self) -> list[TargetExample]:
        return [e for i, e in enumerate(self._examples) if all(e.shape != o.shape for o in self._examples[:i])]

    def _going_on(self, example: TargetExample, *more: Stitch) -> tuple[StitchedModule, Signals, list[tuple[str, str]]]:
        """A graph with a lasting target, and what has happened when it is in the midst of it."""
        target = self._target(example)
        signals = Signals()
        stitches = self.stitches(example, target)
        when = []
        for name in example.outputs:
            hears = FunctionTarget(f"hears {name}", passed)
            stitches += [
                (self.port(target, "output", name), hears.input(adapter=InputArgs)),  # whatever the value is
                (hears.output(), EXTERNAL.output(f"got {name}")),
            ]
            when.append(("finished", hears.name))
        stitched = tie([*stitches, *more], target, plugins=self.plugins, options=RunOptions(observers=(signals,)))
        return stitched, signals, [("started", stitched.plan.nodes[target]), *when]

    def _cancel(
        self,
        backend: str,
        stitched: StitchedModule,
        example: TargetExample,
        signals: Signals,
        when: list[tuple[str, str]],
    ) -> None:
        ended: list[Any] = []
        never: list[AssertionError] = []

        async def main() -> None:
            async with no_task_left("a cancelled run"), stitched:
                with anyio.CancelScope() as scope:
                    async with anyio.create_task_group() as group:

                        async def cancel() -> None:
                            try:
                                await signals.until(when, self.limit)
                            except AssertionError as error:
                                never.append(error)
                            scope.cancel()

                        group.start_soon(cancel)
                        try:
                            ended.append(await self.arun(stitched, example))
                        except Exception as error:
                            ended.append(error)
                        scope.cancel()  # it has ended too early: nobody need wait for the right time any more

        with no_thread_left("a cancelled run", min(self.limit, 5.0)):
            within(2 * self.limit, "a cancelled run", lambda: on_loop(backend, main))
        if never and not ended:
            raise never[0]
        expect(
            not ended,
            f"the run was cancelled, and gave {ended!r} instead: cancellation is not to be caught, or to be raised again",
        )
        self.settled("after a cancelled run")


def _refuse(value: Any) -> Any:
    raise DeliveryError
