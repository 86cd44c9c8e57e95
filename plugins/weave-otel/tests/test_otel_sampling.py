"""What nobody would see is not told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Decision, ParentBased, Sampler, SamplingResult
from weave.plugins import Observer, PluginSet, RunInfo, hookimpl

import weave_otel
from conftest import Way
from traces import Traces, diamond, flow, plus_one
from weave_otel import Telemetry


class Answers:
    """A plugin that asks another what it would observe a run with."""

    def __init__(self, asked: Any) -> None:
        self.asked = asked
        self.got: list[Observer | None] = []

    @hookimpl
    def weave_observer(self, run: RunInfo) -> Observer | None:
        self.got.append(self.asked.weave_observer(run))
        return self.got[-1]


NOBODY: dict[str, Any] = {
    "nothing configured": weave_otel,
    "nothing configured, by hand": Telemetry(),
    "no-op providers": Telemetry(
        tracer_provider=trace.NoOpTracerProvider(), meter_provider=metrics.NoOpMeterProvider()
    ),
}


@pytest.mark.parametrize("asked", NOBODY.values(), ids=NOBODY)
def test_without_an_sdk_nothing_observes(asked: Any, way: Way) -> None:
    answers = Answers(asked)
    assert way(flow(plus_one, plugins=PluginSet(answers)), {"x": 1})["y"] == 2
    assert answers.got == [None]


def test_a_disabled_sdk_is_none(monkeypatch: pytest.MonkeyPatch, way: Way) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    answers = Answers(Telemetry(tracer_provider=TracerProvider(), meter_provider=MeterProvider()))
    way(flow(plus_one, plugins=PluginSet(answers)), {"x": 1})
    assert answers.got == [None]


class Counted(Sampler):
    """Leaves out what has one of these names, and notes what it was asked for."""

    def __init__(self, *dropped: str) -> None:
        self.dropped = dropped
        self.asked: list[str] = []

    def should_sample(self, parent_context: Any, trace_id: int, name: str, *args: Any, **kwargs: Any) -> SamplingResult:
        self.asked.append(name)
        decision = Decision.DROP if name in self.dropped else Decision.RECORD_AND_SAMPLE
        return SamplingResult(decision)

    def get_description(self) -> str:
        return "counted"


def without_metrics(traces: Traces) -> Telemetry:
    return Telemetry(tracer_provider=traces.provider)


def test_below_a_caller_who_is_not_sampled_nothing_observes(way: Way) -> None:
    traces = Traces(sampler=ParentBased(ALWAYS_OFF))
    answers = Answers(without_metrics(traces))
    with traces.tracer.start_as_current_span("caller"):
        way(diamond(plus_one, plugins=PluginSet(answers)), {"x": 1})
    assert answers.got == [None]
    assert traces.spans == []


def test_a_trace_that_begins_with_the_run_is_left_out_as_a_whole(way: Way) -> None:
    sampler = Counted("weave.run")
    traces = Traces(sampler=ParentBased(sampler))

    def own(x: Any) -> Any:
        traces.own("own")
        return x

    way(flow(own, plugins=PluginSet(without_metrics(traces))), {"x": 1})
    assert traces.spans == [], "the node's own span would be a root without its run"
    assert sampler.asked == ["weave.run"]
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_sampler_may_leave_out_nodes(way: Way) -> None:
    traces = Traces(sampler=Counted("weave.node b"))
    way(diamond(plus_one, plugins=PluginSet(without_metrics(traces))), {"x": 1})
    assert traces.names.count("weave.run") == 1
    assert sorted(traces.names[1:]) == ["weave.node a", "weave.node c", "weave.node d"]


def test_the_sampler_sees_the_attributes(way: Way) -> None:
    seen: dict[str, Any] = {}

    class Looks(Counted):
        def should_sample(
            self,
            parent_context: Any,
            trace_id: int,
            name: str,
            kind: Any = None,
            attributes: Any = None,
            links: Sequence[Any] | None = None,
            trace_state: Any = None,
        ) -> SamplingResult:
            seen[name] = dict(attributes)
            return SamplingResult(Decision.RECORD_AND_SAMPLE)

    traces = Traces(sampler=Looks())
    way(flow(plus_one, plugins=PluginSet(without_metrics(traces))), {"x": 1})
    assert seen["weave.run"]["weave.graph.nodes"] == 1
    assert seen["weave.node plus_one"]["weave.node"] == "plus_one"


def test_providers_set_later_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin is loaded at a first knot, often before the application has set up its SDK."""
    stitched = flow(plus_one, plugins=PluginSet(Telemetry()))
    stitched({"x": 1}, {})
    first, second = Traces(), Traces()
    for traces in (first, second):
        monkeypatch.setattr(trace, "get_tracer_provider", lambda provider=traces.provider: provider)
        monkeypatch.setattr(metrics, "get_meter_provider", lambda provider=traces.meters: provider)
        for _ in range(2):
            stitched({"x": 1}, {})
    for traces in (first, second):
        assert traces.names == ["weave.run", "weave.node plus_one"] * 2
        assert [point["n"] for point in traces.counts("weave.run.duration")] == [2]
