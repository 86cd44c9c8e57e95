"""A forced order holds between threads and tasks, and gives up with a sentence."""

from __future__ import annotations

import threading

import anyio
import pytest

from weave.testing import Sequencer

pytestmark = pytest.mark.anyio


async def test_tasks_and_threads_take_their_turns() -> None:
    names = [f"step {i}" for i in range(8)]
    order, seen = Sequencer(*names), []

    def in_thread(name: str) -> None:
        with order(name):
            seen.append(name)

    async def in_task(name: str) -> None:
        async with order(name):
            await anyio.lowlevel.checkpoint()
            seen.append(name)

    async with anyio.create_task_group() as group:
        for place, name in reversed(list(enumerate(names))):
            if place % 2:
                group.start_soon(in_task, name)
            else:
                group.start_soon(anyio.to_thread.run_sync, in_thread, name)
    assert seen == names
    assert order.reached == tuple(names)


async def test_a_step_that_never_comes_is_named() -> None:
    order = Sequencer("a", "b", "c", limit=0)
    await order.areach("a")
    with pytest.raises(AssertionError, match=r"step 'c' waited 0 s for 'b'; over: \['a'\]"):
        await order.areach("c")
    with pytest.raises(AssertionError, match=r"step 'c' waited 0 s for 'b'"):
        order.reach("c")
    order.reach("b")
    order.reach("c")


async def test_cancelled_while_waiting_it_can_still_be_taken() -> None:
    order = Sequencer("a", "b")
    async with anyio.create_task_group() as group:
        group.start_soon(order.areach, "b")
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    order.reach("a")
    order.reach("b")
    assert order.reached == ("a", "b")


async def test_a_step_that_raises_ends_the_waiting() -> None:
    order = Sequencer("a", "b")
    said: list[str] = []

    async def later() -> None:
        try:
            await order.areach("b")
        except AssertionError as error:
            said.append(str(error))

    async with anyio.create_task_group() as group:
        group.start_soon(later)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(KeyError):
            async with order("a"):
                raise KeyError("a")
    assert said == ["step 'b' can't come: step 'a' raised"]


def test_wrong_names() -> None:
    order = Sequencer("teacher", "student")
    with pytest.raises(ValueError, match="did you mean 'teacher'"):
        order.reach("teachr")
    order.reach("teacher")
    with pytest.raises(AssertionError, match="'teacher' was taken twice"):
        order.reach("teacher")
    with pytest.raises(ValueError, match="named twice"):
        Sequencer("a", "a")


def test_two_loops_wait_on_one() -> None:
    order, seen = Sequencer("asyncio", "trio", "thread"), []

    async def take(name: str) -> None:
        async with order(name):
            seen.append(name)

    def thread() -> None:
        with order("thread"):
            seen.append("thread")

    threads = [
        threading.Thread(target=thread),
        threading.Thread(target=lambda: anyio.run(take, "trio", backend="trio")),
        threading.Thread(target=lambda: anyio.run(take, "asyncio")),
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert seen == ["asyncio", "trio", "thread"]
