"""Failures: whose exception the caller gets, what it says, and that nothing goes on behind it."""

from __future__ import annotations

import asyncio
import re
import threading
import traceback
from typing import Any

import anyio
import pytest

from tests.engine.stepping import Census, Steps, computing, nothing_said_later, tasks
from tests.engine.test_cancellation import NOTHING, WAYS
from tests.small import EXT, flow, knot
from weave import FunctionTarget, StitchedModule, StitchedModuleException


def beside(*functions: Any, **options: Any) -> StitchedModule:
    """Each function fed by the caller, none by another; the nodes are f0, f1, ..."""
    targets = [FunctionTarget(f"f{i}", function) for i, function in enumerate(functions)]
    return knot(*[(EXT.input("x"), t.input()) for t in targets], **options)


async def until(event: threading.Event) -> None:
    while not event.is_set():
        await anyio.lowlevel.checkpoint()


class Mine(Exception):
    pass


# --- one failure among many ---


@pytest.mark.anyio
async def test_a_thousand_functions_wait_for_a_thread_when_one_fails() -> None:
    """Four threads: one fails once the three others compute. These are let go when the failure has been noticed."""
    census, error = Census(), Mine()
    others, noticed = threading.Barrier(4), threading.Event()

    def computes(x: int) -> None:
        with census.one():
            others.wait(30)
            assert noticed.wait(30)

    def fails(x: int) -> None:
        others.wait(30)
        raise error

    async def sees(x: int) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            noticed.set()

    there = tasks()
    with pytest.raises(Mine) as raised:
        await beside(fails, sees, *[computes] * 1000).with_options(max_workers=4).run({"x": 1}, {})
    assert raised.value is error
    assert (census.began, census.alive) == (3, 0), "those that were queued never began"
    assert not computing()
    assert tasks() == there


@pytest.mark.anyio
async def test_a_thousand_runs_of_a_stream_are_in_flight_when_one_fails() -> None:
    census, error = Census(), Mine()

    async def sleeps(x: int) -> None:
        with census.one():
            while not x:
                if census.began == 1000:
                    raise error
                await anyio.lowlevel.checkpoint()
            await anyio.sleep_forever()

    there = tasks()
    async with flow(sleeps).stream(({"x": i} for i in range(5000)), in_flight=1000) as results:
        with pytest.raises(Mine) as raised:
            await anext(results)
    assert raised.value is error
    assert (census.began, census.alive) == (1000, 0)
    assert tasks() == there
    node, index = raised.value.__notes__
    assert "'f0'" in node
    assert index == "weave: input 0 of a stream"


@pytest.mark.anyio
@pytest.mark.parametrize("in_thread", [False, True])
async def test_the_nodes_own_exception_with_its_cause_and_its_place(in_thread: bool) -> None:
    cause, error = KeyError("why"), Mine("what")

    def broken(*values: Any) -> None:
        raise error from cause

    async def waits(*values: Any) -> None:
        await anyio.lowlevel.checkpoint()
        broken()

    a, b = FunctionTarget("a", lambda x: x), FunctionTarget("b", broken if in_thread else waits)
    stitched = knot((EXT.input("x"), a.input()), (a.output(), b.input()), (EXT.input("x"), b.input()))
    with pytest.raises(Mine) as raised:
        await stitched.run({"x": 1}, {})
    assert raised.value is error
    assert error.__cause__ is cause
    assert traceback.extract_tb(error.__traceback__)[-1].name == "broken"
    (said,) = error.__notes__
    expected = (
        r"weave: raised in node 'b', fed by a\.output\(\) -> b\.input\(\); external\.input\('x'\) -> b\.input\(\) "
    )
    assert re.fullmatch(expected + r"\(run [0-9a-f]{12}\)", said)


@pytest.mark.anyio
async def test_a_group_that_a_node_raises_is_the_nodes() -> None:
    error = ExceptionGroup("mine", [Mine(), ValueError()])

    async def fails(x: int) -> None:
        raise error

    with pytest.raises(ExceptionGroup) as raised:
        await flow(fails).run({"x": 1}, {})
    assert raised.value is error

    async def fails_inside(x: int) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(fails, x)

    with pytest.raises(ExceptionGroup, match=r"unhandled errors|nursery") as raised:
        await flow(fails_inside).run({"x": 1}, {})
    (inner,) = raised.value.exceptions
    assert inner.exceptions == error.exceptions  # type: ignore[attr-defined]


@pytest.mark.anyio
async def test_an_exception_that_takes_no_notes() -> None:
    class Closed(Exception):
        __slots__ = ()

        def add_note(self, note: str) -> None:
            raise TypeError("no")

    with pytest.raises(Closed):
        await flow(_raiser(Closed(), in_thread=True)).run({"x": 1}, {})


# --- several ---


@pytest.mark.anyio
async def test_a_thread_and_a_coroutine_fail_before_either_is_noticed() -> None:
    ready, failed = threading.Event(), threading.Event()
    first, second = Mine("first"), ValueError("second")

    def computes(x: int) -> None:
        ready.set()
        assert failed.wait(30)
        raise second

    async def waits(x: int) -> None:
        await until(ready)
        failed.set()
        raise first

    stitched = beside(computes, waits)
    for _ in range(5):
        ready.clear(), failed.clear()
        with pytest.raises(ExceptionGroup, match=r"2 nodes failed \(run [0-9a-f]{12}\)") as raised:
            await stitched.run({"x": 1}, {})
        assert set(raised.value.exceptions) == {first, second}
    assert ["'f1'" in note for note in first.__notes__] == [True] * 5
    assert ["'f0'" in note for note in second.__notes__] == [True] * 5


@pytest.mark.anyio
async def test_a_coroutine_that_fails_while_it_is_being_stopped_adds_to_it() -> None:
    started = anyio.Event()

    async def cleans_up_badly(x: int) -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("in finally")

    async def fails(x: int) -> None:
        await started.wait()
        raise Mine

    with pytest.raises(ExceptionGroup) as raised:
        await beside(cleans_up_badly, fails).run({"x": 1}, {})
    assert [type(e) for e in raised.value.exceptions] == [Mine, ValueError]


@pytest.mark.anyio
async def test_the_cancelled_siblings_of_a_failure_add_nothing() -> None:
    """Not even where a thread waits for a coroutine that a plain function gave."""
    started = threading.Event()

    async def later() -> None:
        started.set()
        await anyio.sleep_forever()

    async def fails(x: int) -> None:
        await until(started)
        raise Mine

    for _ in range(5):
        started.clear()
        with pytest.raises(Mine):
            await beside(lambda x: later(), fails).run({"x": 1}, {})
        assert not computing()


# --- what is no Exception ---


def _raiser(error: BaseException, *, in_thread: bool) -> Any:
    def raises(x: int) -> None:
        raise error

    async def waits(x: int) -> None:
        await anyio.lowlevel.checkpoint()
        raise error

    return raises if in_thread else waits


FATAL = [SystemExit, KeyboardInterrupt, GeneratorExit]


@pytest.mark.anyio
@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("kind", FATAL)
async def test_one_that_is_no_exception_comes_out_as_it_is(kind: type[BaseException], in_thread: bool) -> None:
    census, error = Census(), kind("mine")

    async def waits(x: int) -> None:
        with census.one():
            await anyio.sleep_forever()

    with pytest.raises(kind) as raised:
        await beside(waits, _raiser(error, in_thread=in_thread)).run({"x": 1}, {})
    assert raised.value is error
    assert not census.alive


@pytest.mark.anyio
async def test_one_that_is_an_exception_and_one_that_is_none() -> None:
    both = threading.Barrier(2)

    def fails(x: int) -> None:
        both.wait(30)
        raise Mine

    def leaves(x: int) -> None:
        both.wait(30)
        raise SystemExit(3)

    with pytest.raises(BaseExceptionGroup) as raised:
        await beside(fails, leaves).with_options(max_workers=2).run({"x": 1}, {})
    assert {type(e) for e in raised.value.exceptions} == {Mine, SystemExit}


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("kind", FATAL)
def test_in_a_stream_too(kind: type[BaseException], backend: str) -> None:
    error = kind("mine")

    async def main() -> None:
        async with flow(_raiser(error, in_thread=False)).stream([{"x": 1}]) as results:
            await anext(results)

    with pytest.raises(kind) as raised:
        anyio.run(main, backend=backend)
    assert raised.value is error


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit])
@pytest.mark.parametrize("where", ["caller's", "to the caller"])
def test_of_an_adapter_at_the_boundary(kind: type[BaseException], where: str, backend: str) -> None:
    f, error = FunctionTarget("f", lambda x: x), kind("mine")
    adapted = {"adapter": _raiser(error, in_thread=True)}
    first, last = (adapted, {}) if where == "caller's" else ({}, adapted)
    stitched = knot((EXT.input("x", **first), f.input()), (f.output(), EXT.output("y", **last)))

    async def main() -> Any:
        try:
            return await stitched.run({"x": 1}, {})
        except BaseException as caught:
            return caught

    try:
        got = anyio.run(main, backend=backend)
    except SystemExit:
        got = "the loop ended"
    assert got is error


@pytest.mark.anyio
async def test_stop_async_iteration_of_a_node_does_not_end_a_stream() -> None:
    async def ends(x: int) -> int:
        if x == 1:
            raise StopAsyncIteration
        return x

    got = []
    with pytest.raises(Exception, match="f0"):  # noqa: PT012
        async with flow(ends).stream({"x": i} for i in range(3)) as results:
            async for out in results:
                got.append(out["y"])
    assert got == [0]


# --- failures and cancellation ---


def test_a_node_that_cancels_its_own_task_has_failed() -> None:
    async def cancels(x: int) -> None:
        this: Any = asyncio.current_task()
        this.cancel()
        await anyio.lowlevel.checkpoint()

    def raises(x: int) -> None:
        raise asyncio.CancelledError("mine")

    for function in (cancels, raises):
        with pytest.raises(
            StitchedModuleException, match=r"'f0' raised CancelledError.*nobody had cancelled it"
        ) as raised:
            anyio.run(flow(function).run, {"x": 1}, {})
        assert isinstance(raised.value.__cause__, asyncio.CancelledError)


@pytest.mark.parametrize(("backend", "way"), WAYS, ids=lambda value: getattr(value, "__name__", value))
@pytest.mark.parametrize("in_thread", [False, True])
def test_cancellation_wins_over_a_failure_at_every_step(backend: str, way: Any, in_thread: bool) -> None:
    """But for the run's last steps, when there is nothing left that could be cancelled."""
    steps, census, error = Steps(), Census(), Mine()

    def computes(x: int) -> None:
        with census.one():
            steps.point()
            raise error

    async def waits(x: int) -> None:
        with census.one():
            for _ in range(4):
                await anyio.lowlevel.checkpoint()
            if not in_thread:
                raise error
            await anyio.sleep_forever()

    stitched = beside(waits, *[computes] * in_thread, *[waits] * 3)
    came: list[bool] = []

    async def run() -> None:
        await stitched.run({"x": 1}, {})

    async def main() -> None:
        at = 0
        while True:
            there = tasks()
            try:
                got = await way(run, steps, at)
            except* Mine:
                got = error
            after, steps.armed = steps.after, False
            assert (census.alive, computing()) == (0, [])
            assert tasks() <= there
            came.append(got is NOTHING)
            if not steps.acted:
                return
            assert got is NOTHING or after < 5
            at += 1

    with nothing_said_later():
        steps.run(backend, main)
    assert sum(came) >= 3
