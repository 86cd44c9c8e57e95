"""Streams that are left: early, by an exception, by a cancel, while the source blocks; and what they hold meanwhile."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import pytest

from tests.engine.stepping import Census, computing, nothing_said_later, tasks
from tests.small import flow
from weave import StitchedModuleException

pytestmark = pytest.mark.anyio


async def quick(x: Any) -> Any:
    await anyio.lowlevel.checkpoint()
    return x


async def settled() -> None:
    """The loop has nothing more to do for now: whoever could go on has gone on."""
    await anyio.wait_all_tasks_blocked()


class Inputs:
    """An async source that counts what was asked of it, and blocks at one place if told to."""

    def __init__(self, size: int, blocks_at: int = -1) -> None:
        self.size, self.blocks_at = size, blocks_at
        self.asked = 0
        self.census = Census()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        if self.asked == self.size:
            raise StopAsyncIteration
        self.asked += 1
        with self.census.one():
            await anyio.lowlevel.checkpoint()
            if self.asked - 1 == self.blocks_at:
                await anyio.sleep_forever()
        return {"x": self.asked - 1}


class Mine(Exception):
    pass


# --- misuse ---


async def test_made_and_never_entered() -> None:
    begun: list[int] = []

    def source() -> Iterator[Any]:
        begun.append(1)
        yield {"x": 1}

    with nothing_said_later():
        flow(quick).stream(source())
        flow(quick).stream(Inputs(3))
    assert not begun


async def test_entered_twice_at_once_leaves_the_first_in_order() -> None:
    stream = flow(quick).stream({"x": i} for i in range(4))
    async with stream as results:
        assert (await anext(results))["y"] == 0
        with pytest.raises(StitchedModuleException, match="once"):
            await stream.__aenter__()
        assert [out["y"] async for out in results] == [1, 2, 3]


async def test_iterated_over_without_being_entered() -> None:
    source = Inputs(3)
    with pytest.raises(StitchedModuleException, match="enter"):
        [out async for out in flow(quick).stream(source)]
    assert source.asked == 0


# --- what is held ---


@pytest.mark.parametrize("in_flight", [1, 3])
async def test_a_slow_consumer_stalls_the_source(in_flight: int) -> None:
    source, census = Inputs(20), Census()

    async def counts(x: int) -> int:
        with census.one():
            await anyio.lowlevel.checkpoint()
        return x

    async with flow(counts).stream(source, in_flight=in_flight) as results:
        for taken in range(10):
            await settled()
            assert source.asked == census.ended == taken + in_flight
            assert (await anext(results))["y"] == taken
        await settled()
        assert source.asked == 10 + in_flight


class Token:
    """An input that can be watched as it goes."""


async def test_a_thousand_inputs_and_few_alive() -> None:
    """No more than are in flight, and the one in the consumer's hands."""
    alive: weakref.WeakSet[Token] = weakref.WeakSet()
    most = 0

    def source() -> Iterator[Any]:
        nonlocal most
        for _ in range(1000):
            token = Token()
            alive.add(token)
            yield {"x": token}
            del token
            most = max(most, len(alive))

    async with flow(quick, quick).stream(source(), in_flight=4) as results:
        count = 0
        async for out in results:
            assert out["y"] in alive
            count += 1
            del out
    gc.collect()
    assert (count, len(alive)) == (1000, 0)
    assert most <= 4 + 1


async def test_an_error_at_seventeen_names_seventeen_whatever_ends_first() -> None:
    """The one behind it has failed already."""
    eighteen = anyio.Event()

    async def fails(x: int) -> int:
        if x == 18:
            eighteen.set()
            raise KeyError(x)
        if x == 17:
            await eighteen.wait()
            raise Mine
        return x

    source, got = Inputs(100), []
    async with flow(fails).stream(source, in_flight=5) as results:
        for _ in range(17):
            got.append((await anext(results))["y"])
        with pytest.raises(Mine) as raised:
            await anext(results)
        with pytest.raises(Mine):
            await anext(results)
    assert got == list(range(17))
    assert raised.value.__notes__[-1] == "weave: input 17 of a stream"
    assert source.asked <= 17 + 5


# --- leaving ---


@pytest.mark.parametrize("why", ["break", "exception", "cancel", "deadline"])
async def test_left_in_the_middle(why: str) -> None:
    source, census, there = Inputs(100), Census(), tasks()

    async def some_hang(x: int) -> int:
        with census.one():
            if x > 2:
                await anyio.sleep_forever()
        return x

    async def consume() -> None:
        async with flow(some_hang).stream(source, in_flight=4) as results:
            async for out in results:
                if out["y"] < 2:
                    continue
                await settled()
                assert census.alive == 4
                if why == "exception":
                    raise Mine
                if why == "cancel":
                    scope.cancel()
                if why == "deadline":
                    scope.deadline = -1e9
                if why != "break":
                    await anyio.sleep_forever()
                break

    with anyio.CancelScope() as scope, nothing_said_later():
        if why == "exception":
            with pytest.raises(Mine) as raised:
                await consume()
            assert raised.value.__context__ is None
        else:
            await consume()
    assert scope.cancelled_caught is (why in ("cancel", "deadline"))
    assert (census.alive, source.census.alive, source.asked) == (0, 0, 7)
    assert tasks() == there


async def test_cancelled_in_the_body_while_an_async_source_blocks() -> None:
    source, there = Inputs(5, blocks_at=1), tasks()
    with anyio.CancelScope() as scope:
        async with flow(quick).stream(source) as results:
            assert (await anext(results))["y"] == 0
            await settled()
            assert source.census.alive == 1
            scope.cancel()
            await anext(results)
            pytest.fail("cancelled")
    assert scope.cancelled_caught
    assert (source.census.alive, source.asked) == (0, 2)
    assert tasks() == there


@pytest.mark.parametrize("why", ["break", "cancel"])
async def test_left_while_a_sync_sources_thread_is_in_next(why: str) -> None:
    """It can't be interrupted: leaving waits for it, and what it gives then is not run."""
    entered, go_on, there = threading.Event(), threading.Event(), tasks()
    census, ran, order = Census(), [], []

    def source() -> Iterator[Any]:
        yield {"x": 0}
        with census.one():
            entered.set()
            assert go_on.wait(30)
            order.append("source")
        yield {"x": 1}

    def computes(x: int) -> int:
        ran.append(x)
        return x

    async def lets_go() -> None:
        await left.wait()
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        order.append("let go")
        go_on.set()

    left = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(lets_go)
        with anyio.CancelScope() as scope:
            async with flow(computes).stream(source()) as results:
                assert (await anext(results))["y"] == 0
                while not entered.is_set():
                    await anyio.lowlevel.checkpoint()
                left.set()
                if why == "cancel":
                    scope.cancel()
                    await anext(results)
        order.append("left")
    assert order == ["let go", "source", "left"]
    assert (census.alive, ran, computing()) == (0, [0], [])
    assert tasks() == there


async def test_a_plain_source_is_closed_by_who_lets_go_of_it() -> None:
    closed: list[int] = []

    def source() -> Iterator[Any]:
        try:
            for index in range(100):
                yield {"x": index}
        finally:
            closed.append(1)

    async def consume() -> None:
        async with flow(quick).stream(source()) as results:
            await anext(results)

    await consume()
    gc.collect()
    assert closed == [1]


async def test_an_async_generator_is_closed_when_the_stream_is_left() -> None:
    closed: list[int] = []

    async def source() -> AsyncIterator[Any]:
        try:
            for index in range(100):
                yield {"x": index}
        finally:
            await anyio.lowlevel.checkpoint()
            closed.append(1)

    kept = source()
    try:
        async with flow(quick).stream(kept) as results:
            await anext(results)
        assert closed == [1]
    finally:
        await kept.aclose()  # type: ignore[attr-defined]
