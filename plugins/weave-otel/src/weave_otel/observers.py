"""The observers of one run: what is told of it, from as little as its duration to a span for each node.

Which one a run gets is decided as it starts (see `Telemetry`). Weave calls only the methods that a class overrides, so
what a run's telemetry doesn't need costs nothing.

Times are the events' own: `perf_counter_ns`, moved to the epoch by the pair of clocks in `RunInfo`. So spans of one run
are exact among each other, also where the system's clock is set meanwhile.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.metrics import Histogram
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, Tracer
from weave.plugins import Observer, RunInfo

from weave_otel import names
from weave_otel.attached import Attached

S = TypeVar("S", bound="RunTelemetry")


class Durations(NamedTuple):
    """The histograms."""

    runs: Histogram
    nodes: Histogram


def _kept(method: Callable[[S, Any], None]) -> Callable[[S, Any], None]:
    """What telemetry raises at a node is kept until the run ends.

    Weave drops an observer that raises, and it hears no more: the run's span would never end, and would stay the
    caller's current one.
    """

    @functools.wraps(method)
    def guarded(self: S, event: Any) -> None:
        try:
            method(self, event)
        except Exception as error:
            if self.raised is None:
                self.raised = error

    return guarded


class RunTelemetry(Observer):
    """The run's span, current while it goes on, and its duration."""

    def __init__(self, run: RunInfo, span: Span, parent: Context, durations: Durations | None) -> None:
        self.run = run
        self.raised: Exception | None = None
        self._span = span
        self._context = trace.set_span_in_context(span, parent)
        self._durations = durations
        self._to_epoch = int(run.started_at * 1e9) - run.time_ns
        self._attached: Attached | None = None
        self._recorded: list[BaseException] = []

    def run_started(self, event: Any) -> None:
        """Told in the caller's context, which adapters and reducers see too."""
        self._attached = Attached(self._context)

    def run_finished(self, event: Any) -> None:
        """Told there again, when all nodes have ended."""
        if self._attached is not None:
            self._attached.detach()
        try:
            if self._durations is not None:
                facts: dict[str, str] = {names.DRIVER: self.run.driver}
                self._measure(self._durations.runs, event, event.status, event.error, facts, self._context)
        finally:
            self._end(self._span, event.time_ns, event.status, event.error)
        if self.raised is not None:
            raise self.raised

    def _measure(
        self,
        histogram: Histogram,
        event: Any,
        status: str,
        error: BaseException | None,
        facts: dict[str, str],
        context: Context,
    ) -> None:
        facts[names.STATUS] = status
        if status == "failed" and error is not None:
            facts[names.ERROR_TYPE] = names.error_type(error)
        histogram.record(event.duration_ms / 1e3, facts, context=context)

    def _end(self, span: Span, time_ns: int, status: str, error: BaseException | None) -> None:
        """End a span. Being cancelled is no error: whoever did it meant to, and has the error that made him in his trace."""
        time = time_ns + self._to_epoch
        try:
            if span.is_recording():
                span.set_attribute(names.STATUS, status)
                if status == "failed" and error is not None:
                    span.set_attribute(names.ERROR_TYPE, names.error_type(error))
                    span.set_status(Status(StatusCode.ERROR, str(error)))
                    if not any(error is known for known in self._recorded):  # once, where it was raised
                        self._recorded.append(error)
                        span.record_exception(error, timestamp=time)
        finally:
            span.end(time)


class NodeDurations(RunTelemetry):
    """Besides, each node's duration."""

    @_kept
    def node_finished(self, event: Any) -> None:
        """A node has returned."""
        self._node_ended(event, "ok", None)

    @_kept
    def node_failed(self, event: Any) -> None:
        """A node has raised."""
        self._node_ended(event, "failed", event.error)

    @_kept
    def node_cancelled(self, event: Any) -> None:
        """A node was cancelled."""
        self._node_ended(event, "cancelled", None)

    def _node_ended(self, event: Any, status: str, error: BaseException | None) -> None:
        self._measure_node(event, status, error, self._context)

    def _measure_node(self, event: Any, status: str, error: BaseException | None, context: Context) -> None:
        if self._durations is not None:
            self._measure(self._durations.nodes, event, status, error, {names.NODE: event.node}, context)


class NodeSpans(NodeDurations):
    """Besides, a span for each node: a child of the run's, linked to those of the nodes that fed it.

    What feeds what is read off the plan as a node starts, an edge at a time. Rejected: a table made once a plan, which
    could be kept nowhere (a plan can be neither hashed nor referred to weakly, and a strong reference would keep the
    modules of a graph that nobody has any more).
    """

    def __init__(self, run: RunInfo, span: Span, parent: Context, durations: Durations | None, tracer: Tracer) -> None:
        super().__init__(run, span, parent, durations)
        self._tracer = tracer
        self._fed_by: dict[int, SpanContext] = {}  # by unit
        self._open: dict[int, tuple[Span, Context, Attached]] = {}  # by unit

    @_kept
    def node_started(self, event: Any) -> None:
        """Told where the node's code runs: whatever that traces itself is inside this span."""
        span = self._tracer.start_span(
            f"{names.NODE_SPAN} {event.node}",
            self._context,
            SpanKind.INTERNAL,
            {
                names.RUN_ID: self.run.run,
                names.NODE: event.node,
                names.TARGET: type(self.run.plan.units[event.unit].target).__name__,
                names.THREAD: event.thread,
            },
            tuple(self._links(event.unit)),
            event.time_ns + self._to_epoch,
        )
        self._fed_by[event.unit] = span.get_span_context()
        context = trace.set_span_in_context(span, contexts.get_current())
        self._open[event.unit] = (span, context, Attached(context))  # last: nothing may fail while it is attached

    def _links(self, unit: int) -> Iterator[Link]:
        """A link for each stitch that ends at the unit and starts at another one, with the ports' names."""
        plan = self.run.plan
        for edge in plan.units[unit].entries:
            fed_by = self._fed_by.get(plan.producers[edge.slot])
            if fed_by is not None:  # else the caller's own value, which no span gave
                said = {names.SOURCE: plan.source_text(edge.slot), names.DESTINATION: plan.text(edge.port)}
                yield Link(fed_by, said)

    def _node_ended(self, event: Any, status: str, error: BaseException | None) -> None:
        opened = self._open.pop(event.unit, None)
        if opened is None:  # its start could not be told
            self._measure_node(event, status, error, self._context)
            return
        span, context, attached = opened
        attached.detach()
        try:
            self._measure_node(event, status, error, context)
        finally:
            self._end(span, event.time_ns, status, error)

    def run_finished(self, event: Any) -> None:
        """A node that never said how it ended (what it gave to await was thrown away unawaited) ends here."""
        for span, _, attached in reversed(self._open.values()):
            attached.detach()
            self._end(span, event.time_ns, "cancelled", None)
        super().run_finished(event)
