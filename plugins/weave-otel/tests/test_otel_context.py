"""What is current where: a node's own spans are inside the node's, and afterwards all is as it was."""

from __future__ import annotations

import contextvars
import logging
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from weave import FunctionTarget, RunOptions, StitchedModuleException
from weave.plugins import Observer

from conftest import Way
from traces import EXT, Traces, diamond, flow, knot, plus_one


def test_a_nodes_own_spans_are_inside_its_span(traces: Traces, way: Way) -> None:
    def f(x: Any) -> Any:
        traces.own("in f")
        return x

    def g(x: Any) -> Any:
        traces.own("in g")
        return x

    way(flow(f, g, plugins=traces.plugins), {"x": 1})
    assert traces.parent("in f") == "weave.node f"
    assert traces.parent("in g") == "weave.node g"


@pytest.mark.anyio
async def test_an_async_nodes_own_spans_too(traces: Traces) -> None:
    arrived = 0
    both = anyio.Event()

    async def meet(x: Any) -> Any:
        nonlocal arrived
        arrived += 1
        traces.own(f"before {arrived}")
        mine = arrived
        if arrived == 2:
            both.set()
        await both.wait()  # the two are interleaved
        traces.own(f"after {mine}")
        return x

    await diamond(meet, plugins=traces.plugins).run({"x": 1}, {})
    for n in (1, 2):
        assert traces.parent(f"before {n}") == traces.parent(f"after {n}")
    assert {traces.parent("before 1"), traces.parent("before 2")} == {"weave.node b", "weave.node c"}


@pytest.mark.anyio
async def test_a_plain_function_that_gives_something_to_await(traces: Traces, caplog: pytest.LogCaptureFixture) -> None:
    """It ends in another context than it started in, which OpenTelemetry would complain of."""

    async def later(x: Any) -> Any:
        traces.own("awaited")
        await anyio.lowlevel.checkpoint()
        return x

    def plain(x: Any) -> Any:
        traces.own("called")
        return later(x)

    with caplog.at_level(logging.WARNING):
        assert (await flow(plain, plus_one, plugins=traces.plugins).run({"x": 1}, {}))["y"] == 2
    assert traces.parent("called") == traces.parent("awaited") == "weave.node plain"
    assert caplog.records == []


def test_adapters_are_inside_the_run(traces: Traces, way: Way) -> None:
    def adapt(x: Any) -> Any:
        traces.own("adapter")
        return x

    f = FunctionTarget("f", plus_one)
    way(knot((EXT.input("x"), f.input(adapter=adapt)), (f.output(), EXT.output("y")), plugins=traces.plugins), {"x": 1})
    assert traces.parent("adapter") == "weave.run"


def test_the_callers_baggage_is_there(traces: Traces, way: Way) -> None:
    seen: list[object] = []

    def look(x: Any) -> Any:
        seen.append(baggage.get_baggage("user"))
        return x

    token = context.attach(baggage.set_baggage("user", "me"))
    try:
        way(flow(look, plugins=traces.plugins), {"x": 1})
    finally:
        context.detach(token)
    assert seen == ["me"]


def raises(x: Any) -> Any:
    raise ValueError("no good")


@pytest.mark.parametrize("function", [plus_one, raises])
def test_afterwards_the_callers_context_is_as_it_was(traces: Traces, function: Any) -> None:
    stitched = flow(function, plugins=traces.plugins)
    before = contextvars.copy_context()
    try:
        stitched({"x": 1}, {})
    except ValueError:
        assert function is raises
    assert dict(contextvars.copy_context()) == dict(before)


@pytest.mark.anyio
@pytest.mark.parametrize("function", [plus_one, raises])
async def test_on_a_loop_too(traces: Traces, function: Any) -> None:
    stitched = flow(function, plugins=traces.plugins)
    with traces.caller() as caller:
        try:
            await stitched.run({"x": 1}, {})
        except ValueError:
            assert function is raises
        assert trace.get_current_span() is caller
    assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.anyio
async def test_a_chain_of_async_nodes_stays_in_one_task(traces: Traces) -> None:
    """A worker whose context a node left changed hands over to another task; an observed node changes nothing."""
    tasks: list[int] = []

    def step(name: str) -> Any:
        async def step(x: Any) -> Any:
            tasks.append(anyio.get_current_task().id)
            await anyio.lowlevel.checkpoint()
            return x

        step.__name__ = name
        return step

    await flow(*(step(f"s{i}") for i in range(5)), plugins=traces.plugins).run({"x": 1}, {})
    assert len(tasks) == 5
    assert len(set(tasks)) == 1
    assert len(traces.spans) == 6


def test_what_a_node_leaves_attached_reaches_no_other(traces: Traces, way: Way) -> None:
    left = traces.tracer.start_span("left behind")

    def leave(x: Any) -> Any:
        context.attach(trace.set_span_in_context(left))
        return x

    def look(x: Any) -> Any:
        traces.own("own")
        return x

    way(flow(leave, look, plugins=traces.plugins), {"x": 1})
    left.end()
    assert traces.parent("own") == "weave.node look"
    assert traces.parent("weave.node look") == "weave.run"
    assert not trace.get_current_span().get_span_context().is_valid


def test_nor_what_an_adapter_leaves_attached(traces: Traces, way: Way) -> None:
    left = traces.tracer.start_span("left behind")

    def leave(x: Any) -> Any:
        context.attach(trace.set_span_in_context(left))
        return x

    f = FunctionTarget("f", plus_one)
    way(knot((EXT.input("x"), f.input(adapter=leave)), (f.output(), EXT.output("y")), plugins=traces.plugins), {"x": 1})
    left.end()
    assert traces.parent("weave.node f") == "weave.run"
    assert not trace.get_current_span().get_span_context().is_valid


def test_what_a_synchronous_call_refuses_to_await_has_ended(traces: Traces) -> None:
    async def later(x: Any) -> Any:
        return x

    def plain(x: Any) -> Any:
        return later(x)

    with traces.caller() as caller:
        with pytest.raises(StitchedModuleException, match="something to await"):
            flow(plain, plugins=traces.plugins)({"x": 1}, {})
        assert trace.get_current_span() is caller
    assert traces.parent("weave.node plain") == "weave.run"
    assert traces.node("plain").attributes["weave.status"] == "failed"


class Tape(Observer):
    """Keeps a run's events, to be played to another observer."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def run_started(self, event: Any) -> None:
        self.events.append(("run_started", event))

    def node_started(self, event: Any) -> None:
        self.events.append(("node_started", event))

    def run_finished(self, event: Any) -> None:
        self.events.append(("run_finished", event))


def test_a_node_whose_end_is_never_told_ends_with_the_run(traces: Traces) -> None:
    tape = Tape()
    flow(plus_one, options=RunOptions(observers=(tape,)), plugins=())({"x": 1}, {})
    with traces.caller() as caller:
        observer = traces.telemetry.weave_observer(tape.events[0][1].run)
        for name, event in tape.events:
            getattr(observer, name)(event)
        assert trace.get_current_span() is caller
    assert traces.parent("weave.run") == "caller"
    assert traces.parent("weave.node plus_one") == "weave.run"
    node = traces.node("plus_one")
    assert node.attributes["weave.status"] == "cancelled"
    assert node.end_time == traces.run.end_time


class Breaks(SpanProcessor):
    """Somebody's processor that raises at nodes."""

    def __init__(self, at: str) -> None:
        self.at = at

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if self.at == "start" and span.name.startswith("weave.node"):
            raise RuntimeError("broken processor")

    def on_end(self, span: ReadableSpan) -> None:
        if self.at == "end" and span.name.startswith("weave.node"):
            raise RuntimeError("broken processor")


@pytest.mark.parametrize("at", ["start", "end"])
def test_a_broken_processor_spoils_no_run(traces: Traces, way: Way, at: str, caplog: pytest.LogCaptureFixture) -> None:
    traces.provider.add_span_processor(Breaks(at))
    with traces.caller() as caller, caplog.at_level(logging.WARNING, "weave"):
        assert way(flow(plus_one, plugins=traces.plugins), {"x": 1})["y"] == 2
        assert trace.get_current_span() is caller, "the run's is current no longer"
    assert traces.parent("weave.run") == "caller", "and has ended"
    assert traces.run.attributes["weave.status"] == "ok"
    (record,) = [r for r in caplog.records if r.name == "weave"]
    assert "Telemetry" in record.getMessage()
    assert "broken processor" in record.getMessage()
