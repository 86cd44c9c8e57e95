"""What computes in a thread can't be interrupted: where it stops, who waits for it, and time limits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.from_thread
import pytest

from tests.engine.stepping import Census, computing, nothing_said_later, tasks
from tests.small import EXT, constant, flow, knot
from weave import FunctionTarget, StitchedModule
from weave.plugins import PluginSet
from weave.spi.executor import Firing


async def turns(count: int = 10) -> None:
    """Let the loop go round, cancelled or not."""
    with anyio.CancelScope(shield=True):
        for _ in range(count):
            await anyio.lowlevel.checkpoint()


async def until(event: threading.Event) -> None:
    while not event.is_set():
        await anyio.lowlevel.checkpoint()


class Held:
    """A function that computes until it is let go."""

    def __init__(self) -> None:
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.census = Census()

    def __call__(self, x: Any = 0, *more: Any) -> Any:
        with self.census.one():
            self.entered.set()
            assert self.go_on.wait(30)
        return x


@pytest.mark.anyio
async def test_a_thread_stops_between_nodes_and_is_waited_for() -> None:
    held, after = Held(), []
    stitched = flow(held, after.append)
    ended = anyio.Event()

    async def one() -> None:
        try:
            await stitched.run({"x": 1}, {})
        finally:
            ended.set()

    async with anyio.create_task_group() as group:
        group.start_soon(one)
        await until(held.entered)
        group.cancel_scope.cancel()
        await turns()
        assert not ended.is_set(), "the run ends when its thread has"
        held.go_on.set()
    assert (held.census.alive, after, computing()) == (0, [], [])


@pytest.mark.parametrize("cancels", [1, 2, 5])
def test_cancelling_a_task_again_does_not_hurry_it(cancels: int) -> None:
    async def main() -> None:
        held = Held()
        running = asyncio.create_task(flow(held).run({"x": 1}, {}))
        await until(held.entered)
        for _ in range(cancels):
            running.cancel()
            await turns()
        assert not running.done()
        held.go_on.set()
        await asyncio.wait([running])
        assert running.cancelled()
        assert not held.census.alive
        assert tasks() == {asyncio.current_task()}

    with nothing_said_later():
        asyncio.run(main())


@pytest.mark.anyio
async def test_cancelled_before_it_begins_nothing_computes() -> None:
    held = Held()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await flow(held).run({"x": 1}, {})
        pytest.fail("cancelled, the run can't end well")
    assert scope.cancelled_caught
    assert not held.census.began


def test_a_loop_that_ends_while_a_run_is_in_the_background() -> None:
    """`asyncio.run` cancels every task it finds, the workers beside the run's own."""
    ended: list[str] = []

    async def waits(x: int) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("node")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        running.append(asyncio.create_task(flow(waits, waits).run({"x": 1}, {})))
        await turns(20)

    complaints: list[Any] = []
    running: list[asyncio.Task[Any]] = []
    with nothing_said_later():
        asyncio.run(main())
    assert running[0].cancelled()
    assert (ended, complaints) == (["node"], [])


def test_a_loop_that_ends_waits_for_a_thread_of_a_run_in_the_background() -> None:
    held, alive = Held(), []

    async def main() -> None:
        running = asyncio.create_task(flow(held).run({"x": 1}, {}))
        running.add_done_callback(lambda _: alive.append(held.census.alive))
        await until(held.entered)
        beside.append(asyncio.create_task(lets_go()))
        await anyio.lowlevel.checkpoint()

    async def lets_go() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            await turns(20)
            held.go_on.set()

    beside: list[Any] = []
    try:
        asyncio.run(main())
    finally:
        held.go_on.set()
    assert alive == [0]


@pytest.mark.parametrize(("backend", "native"), [("asyncio", True), ("asyncio", False), ("trio", False)])
def test_a_shielded_clean_up_comes_to_its_end(backend: str, native: bool) -> None:
    done: list[str] = []

    async def cleans_up(x: int) -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                for _ in range(5):
                    await anyio.lowlevel.checkpoint()
                    done.append("shielded")
            done.append("cleaned up")
            await anyio.lowlevel.checkpoint()
            done.append("not reached: it is still cancelled")

    async def main() -> None:
        nonlocal started
        started = anyio.Event()
        if native:
            running = asyncio.create_task(flow(cleans_up).run({"x": 1}, {}))
            await started.wait()
            running.cancel()
            await asyncio.wait([running])
            assert running.cancelled()
            return
        async with anyio.create_task_group() as group:
            group.start_soon(flow(cleans_up).run, {"x": 1}, {})
            await started.wait()
            group.cancel_scope.cancel()

    started: Any = None
    anyio.run(main, backend=backend)
    assert done == ["shielded"] * 5 + ["cleaned up"]


@pytest.mark.anyio
async def test_a_node_in_a_thread_may_ask_anyio_whether_it_is_cancelled() -> None:
    entered, go_on = threading.Event(), threading.Event()

    def asks(x: int) -> None:
        entered.set()
        assert go_on.wait(30)
        anyio.from_thread.check_cancelled()
        pytest.fail("it was")

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(flow(asks).run, {"x": 1}, {})
            await until(entered)
            scope.cancel()
            await turns()
            go_on.set()
    assert scope.cancelled_caught


@pytest.mark.anyio
async def test_what_an_executor_does_in_a_thread_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.plugins.test_third_party import Board, Plugin

    held = Held()

    class Blocks:
        async def fire(self, firing: Firing) -> None:
            firing.deliver("x", await firing.blocking(held, firing.inputs("x").args[0]))

    monkeypatch.setattr(PluginSet, "installed", lambda: PluginSet(Plugin(Blocks())))
    board: Any = Board("b")
    stitched = knot((EXT.input("x"), board.input("x")), (board.output("x"), EXT.output("y")))
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(stitched.run, {"x": 1}, {})
            await until(held.entered)
            scope.cancel()
            await turns()
            assert held.census.alive == 1
            held.go_on.set()
    assert held.census.alive == 0
    assert (await stitched.run({"x": 2}, {}))["y"] == 2


# --- a run's own time limit ---


async def _waits(x: Any) -> Any:
    await anyio.lowlevel.checkpoint()
    return x


def _adapted() -> StitchedModule:
    f = FunctionTarget("f", lambda x: x)
    return knot((EXT.input("x", adapter=lambda call: call), f.input()), (f.output(), EXT.output("y")))


@pytest.mark.anyio
@pytest.mark.parametrize(
    "make",
    [
        lambda: flow(_waits),
        lambda: flow(lambda x: x),
        lambda: flow(_waits, lambda x: x, _waits),
        lambda: flow(lambda x: _waits(x)),
        lambda: knot((constant(1), FunctionTarget("f", _waits).input()), (EXT.input("x"), EXT.input("y"))),
        _adapted,
    ],
    ids=["async", "thread", "both", "late awaitable", "constant", "adapted boundary"],
)
async def test_no_time_at_all(make: Callable[[], StitchedModule]) -> None:
    stitched = make()
    with nothing_said_later():
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await stitched.with_options(timeout=0).run({"x": 1}, {})
    await stitched.with_options(timeout=1e6).run({"x": 1}, {})


@pytest.mark.anyio
async def test_a_time_limit_waits_for_the_thread() -> None:
    held = Held()

    async def lets_go(x: int) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            await turns()
            held.go_on.set()

    stitched = knot(*[(EXT.input("x"), FunctionTarget(n, f).input()) for n, f in (("a", held), ("b", lets_go))])
    with pytest.raises(TimeoutError):
        await stitched.with_options(timeout=0.1).run({"x": 1}, {})
    assert (held.census.alive, computing()) == (0, [])


@pytest.mark.anyio
async def test_a_time_limit_in_a_stream_is_each_inputs() -> None:
    stitched = flow(_waits).with_options(timeout=0)
    async with stitched.stream({"x": i} for i in range(9)) as results:
        with pytest.raises(TimeoutError) as raised:
            await anext(results)
    assert raised.value.__notes__ == ["weave: input 0 of a stream"]


@pytest.mark.anyio
async def test_the_callers_limit_is_the_callers_and_a_nodes_the_nodes() -> None:
    async def waits(x: int) -> str:
        with anyio.move_on_after(0):
            await anyio.sleep_forever()
        try:
            with anyio.fail_after(0):
                await anyio.sleep_forever()
        except TimeoutError:
            return "went on"

    async def hangs(x: int) -> None:
        await anyio.sleep_forever()

    assert (await flow(waits).run({"x": 1}, {}))["y"] == "went on"
    with anyio.move_on_after(0) as scope:
        await flow(hangs).with_options(timeout=1e6).run({"x": 1}, {})
    assert scope.cancelled_caught
