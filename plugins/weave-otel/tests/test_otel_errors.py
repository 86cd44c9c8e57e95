"""What failed and what was cancelled: status, `error.type`, the exception, once."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode
from weave import FunctionTarget, StitchedModule
from weave.testing import Gate

from conftest import Way
from traces import EXT, Traces, add, flow, knot, plus_one


class OddError(Exception):
    """One that is no built-in."""


def fail(x: Any) -> Any:
    raise ValueError("no good")


def said(span: ReadableSpan) -> tuple[Any, ...]:
    """Status code and description, weave's status, error.type, and the types of the exceptions recorded."""
    exceptions = [event.attributes["exception.type"] for event in span.events if event.name == "exception"]
    assert len(exceptions) == len(span.events)
    attributes = span.attributes or {}
    status = span.status
    return (
        status.status_code,
        status.description,
        attributes["weave.status"],
        attributes.get("error.type"),
        exceptions,
    )


FINE = (StatusCode.UNSET, None, "ok", None, [])
CANCELLED = (StatusCode.UNSET, None, "cancelled", None, [])


def test_a_failure(traces: Traces, way: Way) -> None:
    stitched = flow(plus_one, fail, add, plugins=traces.plugins)
    with traces.caller(), pytest.raises(ValueError, match="no good"):
        way(stitched, {"x": 1})
    assert traces.names == ["caller", "weave.run", "weave.node plus_one", "weave.node fail"]
    assert said(traces.node("plus_one")) == FINE
    assert said(traces.node("fail")) == (StatusCode.ERROR, "no good", "failed", "ValueError", ["ValueError"])
    assert said(traces.run) == (StatusCode.ERROR, "no good", "failed", "ValueError", []), "recorded where it was raised"


def test_the_exception_is_recorded_with_its_traceback_inside_the_span(traces: Traces, way: Way) -> None:
    def odd(x: Any) -> Any:
        raise OddError("how odd")

    with pytest.raises(OddError):
        way(flow(odd, plugins=traces.plugins), {"x": 1})
    node = traces.node("odd")
    (event,) = node.events
    assert event.name == "exception"
    assert event.attributes["exception.message"] == "how odd"
    assert event.attributes["exception.type"] == node.attributes["error.type"] == f"{__name__}.OddError"
    assert "in odd" in event.attributes["exception.stacktrace"]
    assert node.start_time <= event.timestamp <= node.end_time


def test_what_fails_outside_a_node_is_recorded_on_the_run(traces: Traces, way: Way) -> None:
    """An adapter belongs to no node's span."""
    f = FunctionTarget("f", plus_one)
    with pytest.raises(ValueError, match="no good"):
        way(
            knot((EXT.input("x"), f.input()), (f.output(adapter=fail), EXT.output("y")), plugins=traces.plugins),
            {"x": 1},
        )
    assert said(traces.node("f")) == FINE
    assert said(traces.run) == (StatusCode.ERROR, "no good", "failed", "ValueError", ["ValueError"])


def test_an_exception_that_can_not_be_printed(traces: Traces, way: Way) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("I won't")

    def mute(x: Any) -> Any:
        raise Mute

    before = traces.exporter.get_finished_spans()
    with traces.caller(), pytest.raises(Mute):
        way(flow(mute, plugins=traces.plugins), {"x": 1})
    assert before == ()
    assert traces.names == ["caller", "weave.run", "weave.node mute"], "ended all the same"


def waiting(gate: Gate, traces: Traces) -> StitchedModule:
    f = FunctionTarget("f", plus_one)
    return knot(
        (EXT.input("x"), f.input()),
        (f.output(), gate.input()),
        (gate.output(), EXT.output("y")),
        plugins=traces.plugins,
    )


@pytest.mark.anyio
async def test_cancelled(traces: Traces) -> None:
    gate = Gate("gate")
    stitched = waiting(gate, traces)

    async def cancel(scope: anyio.CancelScope) -> None:
        await gate.until_arrived()
        scope.cancel()

    with anyio.CancelScope() as scope, traces.caller():
        async with anyio.create_task_group() as group:
            group.start_soon(cancel, scope)
            await stitched.run({"x": 1}, {})
    assert scope.cancelled_caught
    assert said(traces.node("f")) == FINE
    assert said(traces.node("gate")) == CANCELLED
    assert said(traces.run) == CANCELLED, "whoever cancelled it meant to: no error"
    assert traces.parent("weave.run") == "caller"


@pytest.mark.anyio
async def test_out_of_time(traces: Traces) -> None:
    with pytest.raises(TimeoutError):
        await waiting(Gate("gate"), traces).with_options(timeout=0).run({"x": 1}, {})
    code, description, status, kind, exceptions = said(traces.run)
    assert (code, status, kind, exceptions) == (StatusCode.ERROR, "failed", "TimeoutError", ["TimeoutError"])
    assert "RunOptions.timeout" in description
    assert all(said(span) == CANCELLED for span in traces.all("weave.node gate"))


def siblings(one: Any, two: Any, traces: Traces) -> StitchedModule:
    a, b, d = (FunctionTarget(f.__name__, f) for f in (one, two, add))
    return knot(
        (EXT.input("x"), a.input()),
        (EXT.input("x"), b.input()),
        (a.output(), d.input()),
        (b.output(), d.input()),
        (d.output(), EXT.output("y")),
        plugins=traces.plugins,
    )


@pytest.mark.anyio
async def test_a_failure_cancels_its_sibling(traces: Traces) -> None:
    under_way = anyio.Event()

    async def waits(x: Any) -> Any:
        under_way.set()
        await anyio.sleep_forever()

    async def fails(x: Any) -> Any:
        await under_way.wait()
        raise ValueError("no good")

    with pytest.raises(ValueError, match="no good"):
        await siblings(waits, fails, traces).run({"x": 1}, {})
    assert said(traces.node("waits")) == CANCELLED
    assert said(traces.node("fails")) == (StatusCode.ERROR, "no good", "failed", "ValueError", ["ValueError"])
    assert said(traces.run) == (StatusCode.ERROR, "no good", "failed", "ValueError", [])


@pytest.mark.anyio
async def test_several_failures(traces: Traces) -> None:
    under_way = anyio.Event()

    async def second(x: Any) -> Any:
        under_way.set()
        try:
            await anyio.sleep_forever()
        finally:
            raise KeyError("the second")

    async def first(x: Any) -> Any:
        await under_way.wait()
        raise ValueError("the first")

    with pytest.raises(ExceptionGroup):
        await siblings(second, first, traces).run({"x": 1}, {})
    assert said(traces.node("first"))[2:] == ("failed", "ValueError", ["ValueError"])
    assert said(traces.node("second"))[2:] == ("failed", "KeyError", ["KeyError"])
    assert said(traces.run)[2:] == ("failed", "ExceptionGroup", ["ExceptionGroup"])


def test_interrupted(traces: Traces) -> None:
    def interrupt(x: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        flow(interrupt, plugins=traces.plugins)({"x": 1}, {})
    assert said(traces.run)[2:] == ("failed", "KeyboardInterrupt", [])
    assert said(traces.node("interrupt"))[2:] == ("failed", "KeyboardInterrupt", ["KeyboardInterrupt"])
