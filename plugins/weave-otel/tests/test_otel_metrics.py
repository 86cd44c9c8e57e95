"""Durations: histograms in seconds."""

from __future__ import annotations

import itertools
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from weave.plugins import PluginSet
from weave.testing import Gate

from conftest import Way
from traces import Traces, diamond, flow, plus_one
from weave_otel import Telemetry


def fail(x: Any) -> Any:
    raise ValueError("no good")


def test_durations_of_runs_and_nodes(traces: Traces, way: Way) -> None:
    stitched = diamond(plus_one, plugins=traces.plugins)
    for _ in range(3):
        way(stitched, {"x": 1})
    driver = way.driver  # type: ignore[attr-defined]
    assert traces.counts("weave.run.duration") == [{"weave.driver": driver, "weave.status": "ok", "n": 3}]
    assert traces.counts("weave.node.duration") == [
        {"weave.node": node, "weave.status": "ok", "n": 3} for node in "abcd"
    ]


def test_they_are_the_spans_durations_in_seconds(traces: Traces, way: Way) -> None:
    way(flow(plus_one, plugins=traces.plugins), {"x": 1})
    for name, span in (("weave.run.duration", traces.run), ("weave.node.duration", traces.node("plus_one"))):
        (point,) = traces.points(name)
        length = (span.end_time - span.start_time) / 1e9
        if name == "weave.run.duration":
            assert point.sum == pytest.approx(length, abs=1e-6)
        else:  # a node's span begins before the observers hear of it, its duration after
            assert 0 <= point.sum <= length + 1e-6


def test_units_and_buckets(traces: Traces) -> None:
    flow(plus_one, plugins=traces.plugins)({"x": 1}, {})
    (scope,) = traces.reader.get_metrics_data().resource_metrics[0].scope_metrics
    assert scope.scope.name == "weave_otel"
    assert {metric.name: metric.unit for metric in scope.metrics} == {
        "weave.run.duration": "s",
        "weave.node.duration": "s",
    }
    for metric in scope.metrics:
        (point,) = metric.data.data_points
        bounds = point.explicit_bounds
        assert (bounds[0], bounds[-1]) == (1e-5, 600)
        assert list(bounds) == sorted(set(bounds))
        assert all(b / a <= 2.5 for a, b in itertools.pairwise(bounds))


def test_an_exemplar_leads_to_the_span(traces: Traces, way: Way) -> None:
    with traces.caller():
        way(flow(plus_one, plugins=traces.plugins), {"x": 1})
    (scope,) = traces.reader.get_metrics_data().resource_metrics[0].scope_metrics
    exemplars = {metric.name: metric.data.data_points[0].exemplars for metric in scope.metrics}
    assert {name: [exemplar.span_id for exemplar in found] for name, found in exemplars.items()} == {
        "weave.run.duration": [traces.run.context.span_id],
        "weave.node.duration": [traces.node("plus_one").context.span_id],
    }


def test_failures_have_their_type(traces: Traces, way: Way) -> None:
    with pytest.raises(ValueError, match="no good"):
        way(flow(plus_one, fail, plugins=traces.plugins), {"x": 1})
    driver = way.driver  # type: ignore[attr-defined]
    failed = {"weave.status": "failed", "error.type": "ValueError", "n": 1}
    assert traces.counts("weave.run.duration") == [{"weave.driver": driver, **failed}]
    assert traces.counts("weave.node.duration") == [
        {"weave.node": "fail", **failed},
        {"weave.node": "plus_one", "weave.status": "ok", "n": 1},
    ]


@pytest.mark.anyio
async def test_what_was_cancelled_has_none(traces: Traces) -> None:
    gate = Gate("gate")
    stitched = flow(gate.function, plugins=traces.plugins)
    async with anyio.create_task_group() as group:
        group.start_soon(stitched.run, {"x": 1}, {})
        await gate.until_arrived()
        group.cancel_scope.cancel()
    assert traces.counts("weave.run.duration") == [{"weave.driver": "tasks", "weave.status": "cancelled", "n": 1}]
    assert [point.pop("weave.status") for point in traces.counts("weave.node.duration")] == ["cancelled"]


@pytest.mark.parametrize("nodes", [True, False])
def test_durations_without_spans(way: Way, nodes: bool) -> None:
    """No tracer provider, or one that samples nothing: durations are of all runs."""
    for traces in (Traces(), Traces(sampler=ALWAYS_OFF)):
        given = {"tracer_provider": traces.provider} if traces.provider.sampler is ALWAYS_OFF else {}
        telemetry = Telemetry(meter_provider=traces.meters, nodes=nodes, **given)
        way(diamond(plus_one, plugins=PluginSet(telemetry)), {"x": 1})
        assert traces.spans == []
        assert [point["n"] for point in traces.counts("weave.run.duration")] == [1]
        assert [point["n"] for point in traces.counts("weave.node.duration")] == [1] * (4 if nodes else 0)
