"""An observer that writes everything down, and the graphs and drivers that it hears."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from tests.small import EXT, knot
from weave import FunctionTarget, RunOptions, StitchedModule
from weave.engine.watch import METHODS
from weave.plugins import Observer, PluginSet, hookimpl
from weave.spi.events import NodeEvent, RunFinished, RunInfo

DRIVERS = ["inline", "asyncio", "trio"]
driver = pytest.mark.parametrize("driver", DRIVERS)


def drive(driver: str, stitched: StitchedModule, **inputs: Any) -> Any:
    """One run: a synchronous call, or `run` on a loop of its own."""
    if driver == "inline":
        return stitched(inputs, {})
    return anyio.run(stitched.run, inputs, {}, backend=driver)


class Ear(Observer):
    """Writes down everything."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def __getattribute__(self, name: str) -> Any:
        if name in METHODS:
            return lambda event: self.events.append((name, event))
        return super().__getattribute__(name)

    # Overridden, so that they are called; what is called is above.
    run_started = run_finished = node_started = node_finished = node_failed = node_cancelled = lambda self, event: None

    @property
    def said(self) -> list[str]:
        """`"node_started f0"`, in order."""
        return [
            " ".join([name, *([event.node] if isinstance(event, NodeEvent) else [])]) for name, event in self.events
        ]

    def of(self, node: str) -> list[str]:
        """What was said of a node."""
        return [name for name, event in self.events if isinstance(event, NodeEvent) and event.node == node]

    @property
    def end(self) -> RunFinished:
        (end,) = [event for name, event in self.events if name == "run_finished"]
        assert end is self.events[-1][1], "the last word"
        return end


class Listens:
    """A plugin that gives whatever a test wants, and keeps for which runs it was asked."""

    def __init__(self, answer: Callable[[RunInfo], Any]) -> None:
        self.answer = answer
        self.asked: list[RunInfo] = []

    @hookimpl
    def weave_observer(self, run: RunInfo) -> Any:
        self.asked.append(run)
        return self.answer(run)


def chain(*functions: Any, observers: Any = (), **options: Any) -> StitchedModule:
    """The caller's x through the functions, to y. The nodes are f0, f1, ..."""
    targets = [FunctionTarget(f"f{i}", f) if callable(f) else f for i, f in enumerate(functions)]
    between = [(a.output(), b.input()) for a, b in itertools.pairwise(targets)]
    ends = [(EXT.input("x"), targets[0].input()), (targets[-1].output(), EXT.output("y"))]
    return knot(*between, *ends, options=RunOptions(observers=observers), **{"plugins": PluginSet(), **options})


def plus(x: Any) -> Any:
    return x + 1


async def plus_later(x: Any) -> Any:
    await anyio.lowlevel.checkpoint()
    return x + 1
