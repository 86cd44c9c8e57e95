"""What a run says of itself, as types: one class an event, one field a fact, units in the field's name.

Values are never in them: shapes and bytes at most. Times are nanoseconds of `time.perf_counter_ns`, which differences
are taken of; `started_at` says when that was, in seconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from weave.graph.plan import Plan


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """A run, as the hook `weave_observer(run)` and every event see it.

    Attributes:
        run: the run's id, 12 hex digits.
        plan: the graph as it runs.
        driver: `"inline"` for a synchronous call, `"tasks"` for `await stitched.run(...)`.
        started_at: seconds since the epoch.
        time_ns: the clock that the events use, at that moment.
    """

    run: str
    plan: Plan
    driver: Literal["inline", "tasks"]
    started_at: float
    time_ns: int


@dataclass(frozen=True, kw_only=True)
class Event:
    """An event of a run."""

    run: RunInfo
    time_ns: int


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    """The run begins: its arguments were accepted."""


@dataclass(frozen=True, kw_only=True)
class RunFinished(Event):
    """The run is over. `status`: "ok", "failed" or "cancelled"; `error`: what it raised."""

    status: Literal["ok", "failed", "cancelled"]
    duration_ns: int
    error: BaseException | None = None


@dataclass(frozen=True, kw_only=True)
class NodeEvent(Event):
    """An event of a node. `unit` is its place in `run.plan.units`; `thread` names the thread that computes it."""

    node: str
    unit: int
    thread: str


@dataclass(frozen=True, kw_only=True)
class NodeStarted(NodeEvent):
    """A node fires: its inputs are there."""


@dataclass(frozen=True, kw_only=True)
class NodeFinished(NodeEvent):
    """A node has returned."""

    duration_ns: int


@dataclass(frozen=True, kw_only=True)
class NodeFailed(NodeEvent):
    """A node has raised `error`."""

    duration_ns: int
    error: BaseException


@dataclass(frozen=True, kw_only=True)
class NodeCancelled(NodeEvent):
    """A node was cancelled while it waited, because the run is being stopped."""

    duration_ns: int


class Observer:
    """Hears of a run's events. Override the methods for those you want; the others cost nothing.

    A plugin's `weave_observer(run)` returns one for a run, or `None`. The methods are called one at a time for each node,
    but from several threads for several nodes; they are called in line, so what takes long belongs in a queue. A method
    that raises is reported once, and the observer hears no more of that run; the run goes on.
    """

    def run_started(self, event: RunStarted) -> Any:
        """The run begins."""

    def run_finished(self, event: RunFinished) -> Any:
        """The run is over."""

    def node_started(self, event: NodeStarted) -> Any:
        """A node fires."""

    def node_finished(self, event: NodeFinished) -> Any:
        """A node has returned."""

    def node_failed(self, event: NodeFailed) -> Any:
        """A node has raised."""

    def node_cancelled(self, event: NodeCancelled) -> Any:
        """A node was cancelled."""
