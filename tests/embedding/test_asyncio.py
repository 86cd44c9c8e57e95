"""weave inside an asyncio application: its task groups, time limits and cancellation; synchronous calls in its loop.

The other tests of runs go by anyio, on both backends. These are written as an asyncio application's own would be.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
import torch

from tests.embedding.graphs import Paused, features, known_of, scorer, spread

REQUEST: contextvars.ContextVar[str] = contextvars.ContextVar("REQUEST", default="none")


def others() -> set[asyncio.Task[Any]]:
    """Tasks beside this test's own."""
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


async def reached(event: threading.Event) -> None:
    """Wait for a thread without blocking the loop."""
    await asyncio.to_thread(event.wait, 60)


async def fetch(user: str) -> torch.Tensor:
    await asyncio.sleep(0)
    return known_of(user)


class Waits:
    """An async function that waits until it is stopped."""

    __name__ = "waits"

    def __init__(self) -> None:
        self.started, self.ended = asyncio.Event(), 0

    async def __call__(self, x: Any) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended += 1


@pytest.mark.asyncio
async def test_runs_in_a_task_group() -> None:
    stitched, plainly = scorer(fetch)
    wanted = [(float(i), "u" * (i % 5)) for i in range(50)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(stitched.run({"features": features(v), "user": u}, {})) for v, u in wanted]
    assert [task.result()["score"].item() for task in tasks] == [plainly(v, u) for v, u in wanted]
    assert not others()


@pytest.mark.asyncio
async def test_each_task_has_its_own_context_in_every_node() -> None:
    def plain(x: str) -> str:
        seen = REQUEST.get()
        REQUEST.set("a node's")
        return seen

    async def waiting(x: str) -> str:
        await asyncio.sleep(0)
        seen = REQUEST.get()
        REQUEST.set("another's")
        return seen

    stitched = spread(plain, waiting)

    async def serve(name: str) -> tuple[str, str, str]:
        REQUEST.set(name)
        out = await stitched.run({"x": name}, {})
        return out["plain"], out["waiting"], REQUEST.get()

    names = [f"request {i}" for i in range(30)]
    assert await asyncio.gather(*map(serve, names)) == [(name,) * 3 for name in names]


@pytest.mark.asyncio
async def test_a_sibling_that_fails_cancels_the_run() -> None:
    waits = Waits()

    async def fails() -> None:
        await waits.started.wait()
        raise ValueError("the sibling's")

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(spread(waits).run({"x": 0}, {}))
            group.create_task(fails())

    with pytest.raises(ExceptionGroup) as raised:
        await both()
    assert [str(e) for e in raised.value.exceptions] == ["the sibling's"]
    assert waits.ended == 1
    assert not others()


@pytest.mark.asyncio
async def test_asyncios_own_time_limit() -> None:
    waits = Waits()

    async def limited() -> None:
        async with asyncio.timeout(None) as limit:
            run = asyncio.create_task(spread(waits).run({"x": 0}, {}))
            await waits.started.wait()
            limit.reschedule(asyncio.get_running_loop().time())
            await run

    with pytest.raises(TimeoutError):
        await limited()
    assert waits.ended == 1
    assert not others()


@pytest.mark.asyncio
async def test_a_cancelled_task_leaves_its_forward_at_the_next_port() -> None:
    paused = Paused()
    run = asyncio.create_task(paused.graph().run({"x": torch.ones(1)}, {}))
    await reached(paused.entered)
    run.cancel()
    for _ in range(10):  # the cancellation has gone where it can; the thread can't be interrupted
        await asyncio.sleep(0)
    assert not run.done()
    paused.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert paused.reached == [0, 1]
    assert not others()


@pytest.mark.asyncio
async def test_failures_of_several_runs_are_each_its_own() -> None:
    def fails(x: int) -> None:
        raise ValueError(x)

    stitched = spread(fails)
    errors = await asyncio.gather(*[stitched.run({"x": i}, {}) for i in range(20)], return_exceptions=True)
    assert [e.args for e in errors if type(e) is ValueError] == [(i,) for i in range(20)]
    notes = {note for e in errors if isinstance(e, ValueError) for note in e.__notes__}
    assert len(notes) == 20, "each names its run"


@pytest.mark.asyncio
async def test_a_synchronous_call_in_the_running_loop() -> None:
    stitched, plainly = scorer(fetch)
    out = stitched({"features": features(1.0), "user": "ada"}, {})
    assert out["score"].item() == plainly(1.0, "ada")

    async def seen(x: str) -> str:
        return REQUEST.get()

    REQUEST.set("mine")
    assert spread(seen)({"x": ""}, {})["seen"] == "mine"


@pytest.mark.asyncio
async def test_synchronous_calls_in_the_loops_threads() -> None:
    stitched, plainly = scorer(fetch)

    def call(index: int) -> bool:
        value, user = float(index), "u" * (index % 5)
        return stitched({"features": features(value), "user": user}, {})["score"].item() == plainly(value, user)

    assert all(await asyncio.gather(*[asyncio.to_thread(call, i) for i in range(20)]))


@pytest.mark.asyncio
async def test_a_queue_feeds_a_stream() -> None:
    stitched, plainly = scorer(fetch)
    queue: asyncio.Queue[float | None] = asyncio.Queue(2)

    async def produce() -> None:
        for index in range(20):
            await queue.put(float(index))
        await queue.put(None)

    async def items() -> AsyncIterator[dict[str, Any]]:
        while (value := await queue.get()) is not None:
            yield {"features": features(value), "user": "ada"}

    async with asyncio.TaskGroup() as group:
        group.create_task(produce())
        async with stitched.stream(items(), in_flight=3) as results:
            got = [out["score"].item() async for out in results]
    assert got == [plainly(float(index), "ada") for index in range(20)]
    assert not others()


def test_one_graph_on_one_loop_after_another() -> None:
    stitched, plainly = scorer(fetch)
    for value in (1.0, 2.0, 3.0):
        out = asyncio.run(stitched.run({"features": features(value), "user": "ada"}, {}))
        assert out["score"].item() == plainly(value, "ada")


if hasattr(asyncio, "eager_task_factory"):  # Python 3.12 on

    @pytest.mark.asyncio
    async def test_tasks_that_start_eagerly() -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
        stitched, plainly = scorer(fetch)
        out = await asyncio.gather(*[stitched.run({"features": features(1.0), "user": "u" * i}, {}) for i in range(5)])
        assert [o["score"].item() for o in out] == [plainly(1.0, "u" * i) for i in range(5)]
