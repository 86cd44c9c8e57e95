"""Streams: order, backpressure, errors by index, leaving early, with `async with` on both backends and with plain `with`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import pytest

from weave import ExternalTarget, FunctionTarget, Needle, StitchedModule, StitchedModuleException

EXT = ExternalTarget()


def graph(function: Any) -> StitchedModule:
    f = FunctionTarget("f", function)
    return Needle().stitch(EXT.input("x"), f.input()).stitch(f.output(), EXT.output("y")).knot()


async def double(x: int) -> int:
    for _ in range(x % 3):
        await anyio.lowlevel.checkpoint()
    return 2 * x


@pytest.mark.anyio
async def test_in_order_with_at_most_in_flight_pulled() -> None:
    pulled = taken = most = 0

    def source() -> Iterator[Any]:
        nonlocal pulled, most
        for index in range(1000):
            pulled += 1
            most = max(most, pulled - taken)
            yield {"x": index}

    async with graph(double).stream(source(), in_flight=4) as results:
        async for out in results:
            assert out["y"] == 2 * taken
            taken += 1
    assert taken == 1000
    assert most <= 5, "four results not taken, and the one that is being handed over"


@pytest.mark.anyio
async def test_an_async_source_and_tuples() -> None:
    async def source() -> AsyncIterator[Any]:
        for index in range(5):
            yield {"x": index}, {}

    async with graph(double).stream(source()) as results:
        assert [out["y"] async for out in results] == [0, 2, 4, 6, 8]


@pytest.mark.anyio
async def test_an_error_names_its_input_and_comes_in_its_place() -> None:
    async def bad(x: int) -> int:
        if x == 17:
            raise ValueError("mine")
        return await double(x)

    got = []

    async def consume() -> None:
        async with graph(bad).stream({"x": i} for i in range(100)) as results:
            async for out in results:
                got.append(out["y"])

    with pytest.raises(ValueError, match="mine") as raised:
        await consume()
    assert got == [2 * i for i in range(17)]
    assert "weave: input 17 of a stream" in raised.value.__notes__


@pytest.mark.anyio
async def test_leaving_early_stops_what_is_under_way() -> None:
    running = 0

    async def waits(x: int) -> int:
        nonlocal running
        running += 1
        try:
            if x > 2:
                await anyio.sleep_forever()
        finally:
            running -= 1
        return x

    async with graph(waits).stream({"x": i} for i in range(100)) as results:
        async for out in results:
            if out["y"] == 2:
                break
    assert running == 0


@pytest.mark.anyio
async def test_a_source_that_raises_and_items_that_are_none() -> None:
    def source() -> Iterator[Any]:
        yield {"x": 1}
        raise KeyError("source")

    with pytest.raises(KeyError, match="source") as raised:
        async with graph(double).stream(source()) as results:
            assert [out["y"] async for out in results]
    assert "for input 1" in raised.value.__notes__[0]
    with pytest.raises(TypeError, match="an item of a stream is a mapping"):
        async with graph(double).stream([3]) as results:
            await anext(results)


@pytest.mark.anyio
async def test_cancelled_from_outside() -> None:
    async def waits(x: int) -> int:
        started.set()
        await anyio.sleep_forever()
        return x

    started = anyio.Event()

    async def consume() -> None:
        async with graph(waits).stream({"x": i} for i in range(100)) as results:
            async for _ in results:
                pytest.fail("nothing can come")

    async with anyio.create_task_group() as group:
        group.start_soon(consume)
        await started.wait()
        group.cancel_scope.cancel()


@pytest.mark.anyio
async def test_misuse_is_said() -> None:
    stitched = graph(double)
    stitched.stream([{"x": 1}])  # made and never entered: nothing to clean up, nothing to warn of
    with pytest.raises(ValueError, match="in_flight=0"):
        stitched.stream([], in_flight=0)
    with pytest.raises(TypeError, match="not a int"):
        stitched.stream(3)  # type: ignore[arg-type]
    with pytest.raises(StitchedModuleException, match="enter a stream"):
        await anext(stitched.stream([]))
    stream = stitched.stream([])
    async with stream:
        pass
    with pytest.raises(StitchedModuleException, match="once"):
        async with stream:
            pass


def test_a_plain_with_and_for() -> None:
    with graph(double).stream({"x": i} for i in range(6)) as results:
        assert [out["y"] for out in results] == [0, 2, 4, 6, 8, 10]
    with graph(lambda x: x + 1).stream([{"x": 1}, {"x": 2}]) as results:
        assert next(results)["y"] == 2
    with pytest.raises(StitchedModuleException, match="enter a stream"):
        next(graph(double).stream([]))
