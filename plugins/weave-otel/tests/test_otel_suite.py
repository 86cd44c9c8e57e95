"""Weave's own suite for observers, and the spans against the events that it heard beside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from weave.plugins import NodeCancelled, NodeFailed, NodeFinished, RunFinished
from weave.testing import ObserverSuite

from traces import Traces


class Open(SpanProcessor):
    """The spans that have begun and not ended."""

    def __init__(self) -> None:
        self.spans: dict[int, str] = {}

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self.spans[span.context.span_id] = span.name

    def on_end(self, span: ReadableSpan) -> None:
        del self.spans[span.context.span_id]


class TestTelemetry(ObserverSuite):
    def setup_method(self) -> None:
        self.traces, self.open = Traces(), Open()
        self.traces.provider.add_span_processor(self.open)
        self.plugin = self.traces.telemetry

    def unfinished(self) -> Sequence[Any]:
        return list(self.open.spans.values())

    def check(self, events: Sequence[Any]) -> None:
        """Each start has its span and each end its status; a run's spans are its own."""
        told: Counter[tuple[Any, ...]] = Counter()
        for event in events:
            match event:
                case RunFinished():
                    told[event.run.run, "weave.run", event.status] += 1
                case NodeFinished():
                    told[event.run.run, f"weave.node {event.node}", "ok"] += 1
                case NodeFailed():
                    told[event.run.run, f"weave.node {event.node}", "failed"] += 1
                case NodeCancelled():
                    told[event.run.run, f"weave.node {event.node}", "cancelled"] += 1
        spans = self.traces.spans
        made = Counter(
            (s.attributes["weave.run.id"], s.name, s.attributes["weave.status"]) for s in spans if s.attributes
        )
        assert made == told
        runs = {
            s.context.span_id: s.attributes["weave.run.id"] for s in spans if s.name == "weave.run" and s.attributes
        }
        for span in spans:
            if span.name != "weave.run":
                assert span.parent is not None
                assert span.attributes is not None
                assert runs[span.parent.span_id] == span.attributes["weave.run.id"]
        assert sum(point.count for point in self.traces.points("weave.run.duration")) == len(runs)
