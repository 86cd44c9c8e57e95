"""`Telemetry`: the plugin itself. It decides, as a run starts, what will be told of it."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, Tracer, TracerProvider
from weave.plugins import Observer, RunInfo, hookimpl

from weave_otel import names
from weave_otel.observers import Durations, NodeDurations, NodeSpans, RunTelemetry

SCOPE = "weave_otel"
VERSION = "0.1.0"


class _Tools(NamedTuple):
    """What two providers give; made once for them. `None` where one gives nothing."""

    providers: tuple[TracerProvider, MeterProvider]
    tracer: Tracer | None
    durations: Durations | None


class Telemetry:
    """Spans and durations of runs, by the OpenTelemetry API.

    The installed plugin is one with no arguments. Another is given to a knot:
    `knot(plugins=PluginSet(Telemetry(tracer_provider=provider)))`.

    Args:
        tracer_provider: where spans go. `None`: the global one, looked up at each run.
        meter_provider: where durations go, likewise.
        nodes: whether nodes are told of, or only runs. A graph of ten thousand small functions has ten thousand spans.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        nodes: bool = True,
    ) -> None:
        self._tracer_provider = tracer_provider
        self._meter_provider = meter_provider
        self._nodes = nodes
        self._made: _Tools | None = None
        self._lock = threading.Lock()  # two first runs in two threads would register the instruments twice

    @hookimpl
    def weave_observer(self, run: RunInfo) -> Observer | None:
        """An observer for the run, or `None` where nobody would see what it tells."""
        _, tracer, durations = self._tools()
        if tracer is None and durations is None:
            return None
        parent = contexts.get_current()
        span = INVALID_SPAN if tracer is None else self._start(tracer, run, parent)
        if tracer is not None and span.is_recording():
            if self._nodes:
                return NodeSpans(run, span, parent, durations, tracer)
            return RunTelemetry(run, span, parent, durations)
        if durations is not None:
            return (NodeDurations if self._nodes else RunTelemetry)(run, span, parent, durations)
        if span.get_span_context().is_valid and not trace.get_current_span(parent).get_span_context().is_valid:
            # A trace that begins here and was not sampled: what the nodes trace themselves must know, or it would begin
            # traces of its own. Below a span of the caller's it is known already.
            return RunTelemetry(run, span, parent, None)
        return None

    def _start(self, tracer: Tracer, run: RunInfo, parent: Context) -> Span:
        return tracer.start_span(
            names.RUN_SPAN,
            parent,
            SpanKind.INTERNAL,
            {
                names.RUN_ID: run.run,
                names.DRIVER: run.driver,
                names.NODES: len(run.plan.units),
                names.STITCHES: len(run.plan.edges),
            },
            start_time=int(run.started_at * 1e9),
        )

    def _tools(self) -> _Tools:
        tracers = self._tracer_provider or trace.get_tracer_provider()
        meters = self._meter_provider or metrics.get_meter_provider()
        made = self._made
        if made is None or made.providers != (tracers, meters):
            with self._lock:
                made = self._made
                if made is None or made.providers != (tracers, meters):
                    tracer = tracers.get_tracer(SCOPE, VERSION) if _gives(tracers) else None
                    durations = _durations(meters) if _gives(meters) else None
                    made = self._made = _Tools((tracers, meters), tracer, durations)
        return made

    # A provider belongs to its process and can be neither copied nor pickled, and a graph that names a plugin is both.

    def __deepcopy__(self, memo: Any) -> Telemetry:
        return self

    def __reduce__(self) -> Any:
        return _of_this_process, (self._nodes,)


def _of_this_process(nodes: bool) -> Telemetry:
    return Telemetry(nodes=nodes)


def _gives(provider: object) -> bool:
    """Whether it is an implementation. The API's own classes stand for one that is missing, and do nothing."""
    return not type(provider).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))


def _durations(provider: MeterProvider) -> Durations | None:
    meter = provider.get_meter(SCOPE, VERSION)

    def histogram(name: str, description: str) -> metrics.Histogram:
        return meter.create_histogram(
            name, unit="s", description=description, explicit_bucket_boundaries_advisory=names.BUCKETS
        )

    made = Durations(
        histogram(names.RUN_DURATION, "Duration of a run of a stitched graph."),
        histogram(names.NODE_DURATION, "Duration of a node of a stitched graph, from its start to its end."),
    )
    return None if isinstance(made.runs, metrics.NoOpHistogram) else made  # OTEL_SDK_DISABLED
