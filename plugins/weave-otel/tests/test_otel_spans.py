"""Spans: one for a run and each node, their parents, links, attributes and times."""

from __future__ import annotations

import threading
import time
from typing import Any

import anyio
import pytest
import torch
from opentelemetry.trace import SpanKind, StatusCode
from torch import nn
from weave import ConstantTarget, FunctionTarget, ModuleTarget
from weave.plugins import PluginSet
from weave.testing import Gate

from conftest import Way
from traces import EXT, Traces, add, diamond, flow, knot, plus_one
from weave_otel import Telemetry


def test_nested_under_the_callers_span(traces: Traces, way: Way) -> None:
    stitched = flow(plus_one, plugins=traces.plugins)
    with traces.caller():
        assert way(stitched, {"x": 1})["y"] == 2
    assert traces.names == ["caller", "weave.run", "weave.node plus_one"]
    assert traces.parent("caller") is None
    assert traces.parent("weave.run") == "caller"
    assert traces.parent("weave.node plus_one") == "weave.run"


def test_without_a_caller_the_run_is_the_root(traces: Traces, way: Way) -> None:
    way(flow(plus_one, plugins=traces.plugins), {"x": 1})
    assert traces.parent("weave.run") is None
    assert traces.parent("weave.node plus_one") == "weave.run"


def test_links_of_a_diamond(traces: Traces, way: Way) -> None:
    assert way(diamond(plus_one, plugins=traces.plugins), {"x": 1})["y"] == 6
    assert traces.links("a") == []
    assert traces.links("b") == [("weave.node a", "a.output()", "b.input()")]
    assert traces.links("c") == [("weave.node a", "a.output()", "c.input()")]
    assert traces.links("d") == [
        ("weave.node b", "b.output()", "d.input()"),
        ("weave.node c", "c.output()", "d.input()"),
    ]
    assert {span.parent.span_id for span in traces.spans[1:] if span.parent} == {traces.run.context.span_id}
    for span in traces.spans:
        assert all(link.context.trace_id == span.context.trace_id for link in span.links)


def test_a_link_for_each_stitch_and_none_for_the_callers_values(traces: Traces, way: Way) -> None:
    c, f = ConstantTarget("c", 5), FunctionTarget("f", lambda *values: sum(values))
    way(
        knot(
            (EXT.input("x"), f.input()),
            (c.output(), f.input()),
            (c.output(adapter=plus_one), f.input()),
            (f.output(), EXT.output("y")),
            plugins=traces.plugins,
        ),
        {"x": 1},
    )
    assert traces.links("f") == [("weave.node c", "c.output()", "f.input()")] * 2
    assert traces.links("c") == []
    assert traces.node("c").attributes["weave.target"] == "ConstantTarget"


def test_attributes(traces: Traces, way: Way) -> None:
    way(diamond(plus_one, plugins=traces.plugins), {"x": 1})
    run, node = traces.run, traces.node("d")
    run_id = run.attributes["weave.run.id"]
    assert isinstance(run_id, str)
    assert len(run_id) == 12
    assert dict(run.attributes) == {
        "weave.run.id": run_id,
        "weave.driver": way.driver,  # type: ignore[attr-defined]
        "weave.graph.nodes": 4,
        "weave.graph.stitches": 6,
        "weave.status": "ok",
    }
    thread = node.attributes["thread.name"]
    assert (thread == threading.current_thread().name) == (way.driver == "inline")  # type: ignore[attr-defined]
    assert dict(node.attributes) == {
        "weave.run.id": run_id,
        "weave.node": "d",
        "weave.target": "FunctionTarget",
        "thread.name": thread,
        "weave.status": "ok",
    }
    for span in traces.spans:
        assert span.kind is SpanKind.INTERNAL
        assert span.status.status_code is StatusCode.UNSET
        assert span.events == ()
        assert span.instrumentation_scope is not None
        assert span.instrumentation_scope.name == "weave_otel"


def test_times_are_on_the_epoch_and_a_node_lies_inside_its_run(traces: Traces, way: Way) -> None:
    before = time.time_ns()
    way(flow(plus_one, plugins=traces.plugins), {"x": 1})
    after = time.time_ns()
    run, node = traces.run, traces.node("plus_one")
    slack = 1_000_000  # a float of seconds since the epoch, and two clocks
    assert before - slack <= run.start_time <= node.start_time <= node.end_time <= run.end_time <= after + slack


@pytest.mark.anyio
async def test_concurrent_runs_do_not_mix(traces: Traces) -> None:
    gate = Gate("gate")
    f = FunctionTarget("f", plus_one)
    stitched = knot(
        (EXT.input("x"), f.input()),
        (f.output(), gate.input()),
        (gate.output(), EXT.output("y")),
        plugins=traces.plugins,
    )
    results: dict[str, Any] = {}

    async def request(name: str, x: int) -> None:
        with traces.caller(name):
            results[name] = (await stitched.run({"x": x}, {}))["y"]

    async with anyio.create_task_group() as group:
        for name, x in (("one", 1), ("two", 2), ("three", 3)):
            group.start_soon(request, name, x)
        await gate.until_arrived(3)  # all of them are under way
        gate.open()

    assert results == {"one": 2, "two": 3, "three": 4}
    assert len(traces.spans) == 3 * 4
    for caller in results:
        root = traces.one(caller)
        mine = [span for span in traces.spans if span.context.trace_id == root.context.trace_id]
        assert sorted(span.name for span in mine) == sorted([caller, "weave.run", "weave.node f", "weave.node gate"])
        ids = {span.name: span.context.span_id for span in mine}
        assert {s.name: s.parent.span_id for s in mine if s.parent} == {
            "weave.run": ids[caller],
            "weave.node f": ids["weave.run"],
            "weave.node gate": ids["weave.run"],
        }
        (link,) = next(span for span in mine if span.name == "weave.node gate").links
        assert link.context.span_id == ids["weave.node f"]
        assert len({span.attributes["weave.run.id"] for span in mine if span.name != caller}) == 1


def test_synchronous_calls_from_threads_do_not_mix(traces: Traces) -> None:
    both = threading.Barrier(2)

    def meet(x: int) -> int:
        both.wait(10)
        return x

    stitched = flow(plus_one, meet, plugins=traces.plugins)

    def request(name: str) -> None:
        with traces.caller(name):
            stitched({"x": 1}, {})

    threads = [threading.Thread(target=request, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for caller in ("one", "two"):
        trace = traces.one(caller).context.trace_id
        mine = [span.name for span in traces.spans if span.context.trace_id == trace]
        assert mine == [caller, "weave.run", "weave.node plus_one", "weave.node meet"]


@pytest.mark.anyio
async def test_a_stream_has_a_span_for_each_of_its_runs(traces: Traces) -> None:
    stitched = flow(plus_one, plugins=traces.plugins)
    with traces.caller():
        async with stitched.stream([{"x": i} for i in range(3)], in_flight=2) as results:
            assert [out["y"] async for out in results] == [1, 2, 3]
    caller = traces.one("caller")
    runs = traces.all("weave.run")
    assert [run.parent.span_id for run in runs if run.parent] == [caller.context.span_id] * 3
    nodes = traces.all("weave.node plus_one")
    assert {node.parent.span_id for node in nodes if node.parent} == {run.context.span_id for run in runs}


@pytest.mark.anyio
async def test_a_synchronous_call_of_an_asynchronous_graph(traces: Traces) -> None:
    """It goes through another thread's loop here; the caller's span is its parent all the same."""

    async def halve(x: Any) -> Any:
        return x / 2

    with traces.caller():
        assert flow(halve, plugins=traces.plugins)({"x": 1}, {})["y"] == 0.5
    assert traces.parent("weave.run") == "caller"
    assert traces.parent("weave.node halve") == "weave.run"


class Waits(nn.Module):
    """Its second layer is reached when the value of the first has been used."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Identity(), nn.Identity()
        self.used = threading.Event()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        assert self.used.wait(10)
        return self.second(x)


@pytest.mark.anyio
async def test_a_link_to_a_module_that_still_goes_on(traces: Traces) -> None:
    net = Waits()

    def use(x: torch.Tensor) -> torch.Tensor:
        net.used.set()
        return x

    m, f, d = ModuleTarget("net", net), FunctionTarget("use", use), FunctionTarget("add", add)
    stitched = knot(
        (EXT.input("x"), m.input("")),
        (m.output("first"), f.input()),
        (f.output(), d.input()),
        (m.output(""), d.input()),
        (d.output(), EXT.output("y")),
        plugins=traces.plugins,
    ).with_options(max_workers=2)
    await stitched.run({"x": torch.ones(1)}, {})
    assert traces.links("use") == [("weave.node net", "net.output('first')", "use.input()")]
    assert traces.links("add")[1] == ("weave.node net", "net.output('')", "add.input()")
    assert traces.node("use").start_time < traces.node("net").end_time


def test_a_run_inside_a_node_is_inside_its_span(traces: Traces, way: Way) -> None:
    inner = flow(plus_one, plugins=traces.plugins)

    def outer(x: int) -> Any:
        return inner({"x": x}, {})["y"]

    assert way(flow(outer, plugins=traces.plugins), {"x": 1})["y"] == 2
    first, second = traces.all("weave.run")
    assert first.parent is None
    assert second.parent.span_id == traces.node("outer").context.span_id
    assert traces.node("plus_one").parent.span_id == second.context.span_id


def test_runs_only(traces: Traces, way: Way) -> None:
    telemetry = Telemetry(tracer_provider=traces.provider, meter_provider=traces.meters, nodes=False)
    way(diamond(plus_one, plugins=PluginSet(telemetry)), {"x": 1})
    assert traces.names == ["weave.run"]
    assert len(traces.points("weave.run.duration")) == 1
    assert traces.points("weave.node.duration") == []
