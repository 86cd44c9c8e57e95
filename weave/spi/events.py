"""What a run says of itself, as types: one class an event, one field a fact, units in the field's name.

Values are never in them: shapes, dtypes and bytes at most. `time_ns` is `time.perf_counter_ns`, which differences are
taken of; `RunInfo` has one moment on both clocks. What is said of a field stands beside it: the documentation, the
table of `weave.observe` and the check of a recorded line are all made from here.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field
from typing import Any, Literal

from weave.graph.plan import Plan

Status = Literal["ok", "failed", "cancelled"]


def fact(doc: str, default: Any = MISSING) -> Any:
    """A field of an event, and what it says."""
    if default is MISSING:
        return field(metadata={"doc": doc})
    return field(default=default, metadata={"doc": doc})


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
class Output:
    """A value that a node gave at a port: never the value itself.

    Attributes:
        port: as people write it, without the node: `output('layers.3')`.
        time_ns: when it was handed on, on the clock of the events.
        value: what it was, such as `float32[8, 16]` or `(float32[8, 16], None)`.
        bytes: of all its tensors.
    """

    port: str
    time_ns: int
    value: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Event:
    """An event of a run."""

    run: RunInfo = fact("the run's id, 12 hex digits")
    time_ns: int = fact("when, in nanoseconds; in a trace since the trace began")


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    """The run begins: its arguments were accepted."""


@dataclass(frozen=True, kw_only=True)
class RunFinished(Event):
    """The run is over. What only a recording knows is `None` for an observer that is told in line."""

    status: Status = fact("`ok`, `failed` or `cancelled`")
    duration_ms: float = fact("from its start, in milliseconds")
    nodes: int | None = fact("how many nodes have finished", None)
    bytes: int | None = fact("of all tensors that nodes handed on", None)
    critical_path_ms: float | None = fact(
        "the longest chain of nodes, each waiting for the one before: no machine could be faster", None
    )
    overlap_pct: float | None = fact(
        "how much of the time in which something was waited for or transferred, something else computed; "
        "absent where nothing was",
        None,
    )
    error: BaseException | None = fact("what it raised", None)


@dataclass(frozen=True, kw_only=True)
class NodeEvent(Event):
    """An event of a node. `unit` is its place in `run.plan.units`."""

    node: str = fact("the node's id, such as `student` or `student#3`")
    unit: int = fact("its place in the order in which one thread fires the graph")


@dataclass(frozen=True, kw_only=True)
class NodeReady(NodeEvent):
    """A node has all that is stitched to it, and waits for its turn."""

    by: str = fact("the node that gave the last of it; empty for the caller, and where the node needs nothing", "")


@dataclass(frozen=True, kw_only=True)
class NodeStarted(NodeEvent):
    """A node fires: its inputs are there."""

    thread: str = fact("the thread that computes it")


@dataclass(frozen=True, kw_only=True)
class NodeFinished(NodeEvent):
    """A node has returned."""

    thread: str = fact("the thread that computed it")
    duration_ms: float = fact("from its start, in milliseconds")
    awaited: bool = fact("whether it was awaited on the loop, so that part of its time may be waiting", False)
    outputs: tuple[Output, ...] = fact(
        "what it handed on, and when: objects with `port`, `time_ns`, `value`, `bytes`", ()
    )


@dataclass(frozen=True, kw_only=True)
class NodeFailed(NodeEvent):
    """A node has raised."""

    thread: str = fact("the thread that computed it")
    duration_ms: float = fact("from its start, in milliseconds")
    error: BaseException = fact("what it raised")
    awaited: bool = fact("whether it was awaited on the loop, so that part of its time may be waiting", False)


@dataclass(frozen=True, kw_only=True)
class NodeCancelled(NodeEvent):
    """A node was cancelled while it waited, because the run is being stopped."""

    thread: str = fact("the thread that computed it")
    duration_ms: float = fact("from its start, in milliseconds")
    awaited: bool = fact("whether it was awaited on the loop, so that part of its time may be waiting", False)


@dataclass(frozen=True, kw_only=True)
class TransferEvent(Event):
    """An event of a value's way to another rank, or from it."""

    transfer: str = fact("its id, the same on both ranks")
    node: str = fact("the node that sends or receives")
    direction: Literal["send", "receive"] = fact("`send` or `receive`, seen from this rank")
    peer: int = fact("the other rank")
    port: str = fact("the name under which both ranks know the edge")


@dataclass(frozen=True, kw_only=True)
class TransferStarted(TransferEvent):
    """A value is handed to the transport, or a node begins to wait for one."""


@dataclass(frozen=True, kw_only=True)
class TransferFinished(TransferEvent):
    """The transport no longer needs the value, or has brought it."""

    duration_ms: float = fact("from its start, in milliseconds")
    value: str = fact("what it was, such as `float32[8, 16]`", "")
    bytes: int = fact("on the wire, without headers", 0)


@dataclass(frozen=True, kw_only=True)
class TransferFailed(TransferEvent):
    """The value could not be sent, or did not come."""

    duration_ms: float = fact("from its start, in milliseconds")
    error: BaseException = fact("why")


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

    def node_ready(self, event: NodeReady) -> Any:
        """A node has all it needs."""

    def node_started(self, event: NodeStarted) -> Any:
        """A node fires."""

    def node_finished(self, event: NodeFinished) -> Any:
        """A node has returned."""

    def node_failed(self, event: NodeFailed) -> Any:
        """A node has raised."""

    def node_cancelled(self, event: NodeCancelled) -> Any:
        """A node was cancelled."""

    def transfer_started(self, event: TransferStarted) -> Any:
        """A value begins its way between ranks."""

    def transfer_finished(self, event: TransferFinished) -> Any:
        """A value has gone, or has come."""

    def transfer_failed(self, event: TransferFailed) -> Any:
        """A value did not get through."""
