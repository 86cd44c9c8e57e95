"""What the tests look at: finished spans by name, durations by name, and the smallest graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from weave import ExternalTarget, FunctionTarget, Needle, StitchedModule
from weave.plugins import PluginSet

from weave_otel import Telemetry

EXT = ExternalTarget()


class Traces:
    """An SDK in memory, and a `Telemetry` that tells it."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("the application")
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        self.telemetry = Telemetry(tracer_provider=self.provider, meter_provider=self.meters)
        self.plugins = PluginSet(self.telemetry)

    @property
    def spans(self) -> list[ReadableSpan]:
        """What was exported, in the order of the starts."""
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time)

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def all(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """The only span of that name."""
        (span,) = self.all(name)
        return span

    @property
    def run(self) -> ReadableSpan:
        return self.one("weave.run")

    def node(self, node: str) -> ReadableSpan:
        return self.one(f"weave.node {node}")

    def parent(self, name: str) -> str | None:
        """The name of the parent of the only span of that name; `None` for a root."""
        span = self.one(name)
        if span.parent is None:
            return None
        (parent,) = [other for other in self.spans if other.context.span_id == span.parent.span_id]
        assert span.context.trace_id == parent.context.trace_id
        return parent.name

    def links(self, node: str) -> list[tuple[str, str, str]]:
        """Of the node's links: the span linked to, the stitch's two ports."""
        names = {span.context.span_id: span.name for span in self.spans}
        said = []
        for link in self.node(node).links:
            assert link.attributes is not None
            assert set(link.attributes) == {"weave.stitch.source", "weave.stitch.destination"}
            source, destination = link.attributes["weave.stitch.source"], link.attributes["weave.stitch.destination"]
            said.append((names[link.context.span_id], str(source), str(destination)))
        return said

    def points(self, name: str) -> list[Any]:
        """The points of a metric; none if it was never recorded."""
        data = self.reader.get_metrics_data()
        metrics = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics] if data else []
        return [point for metric in metrics if metric.name == name for point in metric.data.data_points]

    def counts(self, name: str) -> list[dict[str, Any]]:
        """Of each point of a metric: its attributes, and how many values under `n`."""
        return sorted(({**p.attributes, "n": p.count} for p in self.points(name)), key=str)

    def own(self, name: str) -> None:
        """A span of the application's, opened wherever this is called."""
        with self.tracer.start_as_current_span(name):
            pass

    @contextmanager
    def caller(self, name: str = "caller") -> Iterator[ReadableSpan]:
        """A span around what is run. What is raised is not recorded on it, so that tests see what weave recorded."""
        with self.tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False) as span:
            assert isinstance(span, ReadableSpan)
            yield span


def knot(*stitches: tuple[Any, Any], **options: Any) -> StitchedModule:
    needle = Needle()
    for source, destination in stitches:
        needle.stitch(source, destination)
    return needle.knot(**options)


def flow(*functions: Callable[..., Any], **options: Any) -> StitchedModule:
    """The caller's "x" through one function after another, to "y". Nodes are called after their functions."""
    stitches = []
    last: Any = EXT.input("x")
    for function in functions:
        target = FunctionTarget(function.__name__, function)
        stitches.append((last, target.input()))
        last = target.output()
    return knot(*stitches, (last, EXT.output("y")), **options)


def diamond(middle: Callable[..., Any], **options: Any) -> StitchedModule:
    """a feeds b and c, both feed d."""
    a, d = FunctionTarget("a", plus_one), FunctionTarget("d", add)
    b, c = FunctionTarget("b", middle), FunctionTarget("c", middle)
    return knot(
        (EXT.input("x"), a.input()),
        (a.output(), b.input()),
        (a.output(), c.input()),
        (b.output(), d.input()),
        (c.output(), d.input()),
        (d.output(), EXT.output("y")),
        **options,
    )


def plus_one(x: Any) -> Any:
    return x + 1


def add(x: Any, y: Any) -> Any:
    return x + y
