"""`await stitched.run(...)`: values, order, contexts, failure and cancellation, on asyncio and on trio."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
from typing import Any

import anyio
import pytest
import torch
from torch import nn

from weave import (
    ExternalTarget,
    FunctionTarget,
    InputArgs,
    ModuleTarget,
    Needle,
    StitchedModule,
    StitchedModuleException,
)

EXT = ExternalTarget()
pytestmark = pytest.mark.anyio


def knot(*stitches: Any, **options: Any) -> StitchedModule:
    needle = Needle()
    for source, destination in stitches:
        needle.stitch(source, destination)
    return needle.knot(**options)


def flow(*functions: Any, **options: Any) -> StitchedModule:
    targets = [f if isinstance(f, FunctionTarget) else FunctionTarget(f"f{i}", f) for i, f in enumerate(functions)]
    steps = [(EXT.input("x"), targets[0].input())]
    steps += [(a.output(), b.input()) for a, b in itertools.pairwise(targets)]
    return knot(*steps, (targets[-1].output(), EXT.output("y")), **options)


class Steps(nn.Module):
    """Layers that say when they are called."""

    def __init__(self, size: int, called: list[str] | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(size))
        self.before: Any = lambda index: None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index, layer in enumerate(self.layers):
            self.before(index)
            x = torch.tanh(layer(x))
        return x


async def test_sync_async_and_modules_in_one_graph() -> None:
    async def halve(x: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return x / 2

    net = Steps(2)
    m, f = ModuleTarget("m", net), FunctionTarget("halve", halve)
    g = FunctionTarget("join", lambda a, b: a + b)
    stitched = knot(
        (EXT.input("x"), m.input("")),
        (m.output("layers.0"), f.input()),
        (f.output(), g.input()),
        (m.output(""), g.input()),
        (g.output(), EXT.output("y")),
    )
    x = torch.ones(1, 3)
    out = await stitched.run({"x": x}, {})
    assert torch.equal(out["y"], net.layers[0](x) / 2 + net(x))
    out["y"].sum().backward()
    assert net.layers[1].weight.grad is not None


async def test_an_awaitable_from_a_plain_function_is_awaited() -> None:
    async def later(x: int) -> int:
        return x + 1

    assert (await flow(lambda x: later(x)).run({"x": 1}, {}))["y"] == 2


async def test_a_student_starts_while_the_teachers_forward_goes_on() -> None:
    """The teacher waits in front of its fourth layer until the student on its first has run."""
    student_ran = threading.Event()
    teacher = Steps(5)
    teacher.before = lambda index: index != 3 or student_ran.wait(30) or pytest.fail("the student did not start")

    def student(x: torch.Tensor) -> int:
        student_ran.set()
        return 1

    t, s = ModuleTarget("teacher", teacher), FunctionTarget("student", student)
    stitched = knot(
        (EXT.input("x"), t.input("")),
        (t.output("layers.0"), s.input()),
        (s.output(), EXT.output("s")),
        (t.output(""), EXT.output("y")),
    ).with_options(max_workers=2)
    assert (await stitched.run({"x": torch.ones(1, 3)}, {}))["s"] == 1


async def test_the_loop_goes_on_while_a_module_computes() -> None:
    release = threading.Event()

    def slow(x: int) -> int:
        assert release.wait(30)
        return x

    async def other() -> None:
        await anyio.lowlevel.checkpoint()
        release.set()

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        assert (await flow(slow).run({"x": 1}, {}))["y"] == 1


async def test_one_worker_computes_in_the_order_of_a_synchronous_call() -> None:
    order: list[str] = []

    def named(name: str) -> FunctionTarget:
        return FunctionTarget(name, lambda *a: order.append(name))

    a, b, c, d, e = map(named, "abcde")
    stitched = knot(
        (EXT.input("x"), a.input()),
        (a.output(), d.input()),
        (EXT.input("x"), b.input()),
        (b.output(), c.input()),
        (c.output(), e.input()),
        (d.output(), e.input()),
        (e.output(), EXT.output("y")),
    )
    stitched({"x": 0}, {})
    inline, order[:] = list(order), []
    for _ in range(5):
        await stitched.with_options(max_workers=1).run({"x": 0}, {})
        assert order == inline
        order.clear()


async def test_contexts_are_the_callers() -> None:
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")
    seen: list[str] = []

    def sync(x: int) -> int:
        seen.append(who.get())
        who.set("a node")
        return x

    async def waits(x: int) -> int:
        seen.append(who.get())
        who.set("an async node")
        await anyio.lowlevel.checkpoint()
        return x

    who.set("caller")
    await flow(sync, waits, waits, sync, FunctionTarget("inline", sync, inline=True), sync).run({"x": 1}, {})
    assert seen == ["caller"] * 6
    assert who.get() == "caller"


async def test_many_runs_at_once() -> None:
    net = Steps(2)
    m = ModuleTarget("m", net)
    stitched = knot(
        (EXT.input("x"), m.input("")), (m.output("layers.0"), EXT.output("a")), (m.output(""), EXT.output("y"))
    )
    results: dict[int, Any] = {}

    async def one(index: int) -> None:
        results[index] = await stitched.run({"x": torch.full((1, 3), float(index))}, {})

    async with anyio.create_task_group() as group:
        for index in range(50):
            group.start_soon(one, index)
    for index, out in results.items():
        x = torch.full((1, 3), float(index))
        assert torch.equal(out["a"], net.layers[0](x))
        assert torch.equal(out["y"], net(x))


async def test_a_failure_among_many_in_flight() -> None:
    ended: list[int] = []

    async def sleeper(x: int) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(1)

    async def bad(x: int) -> None:
        while started < 1000:
            await anyio.lowlevel.checkpoint()
        raise ValueError("mine")

    started = 0

    async def counted(x: int) -> None:
        nonlocal started
        started += 1
        await sleeper(x)

    targets = [FunctionTarget(f"s{i}", counted) for i in range(1000)] + [FunctionTarget("bad", bad)]
    stitched = knot(*[(EXT.input("x"), t.input()) for t in targets])
    with pytest.raises(ValueError, match="mine") as raised:
        await stitched.run({"x": 1}, {})
    assert len(ended) == 1000, "everything in flight has ended before the caller hears of it"
    (note,) = raised.value.__notes__
    assert "'bad'" in note
    assert "external.input('x') -> bad.input()" in note


async def test_two_independent_failures_come_together() -> None:
    both = threading.Barrier(2)

    def bad(x: int) -> None:
        both.wait(30)
        raise ValueError("mine")

    stitched = knot(*[(EXT.input("x"), FunctionTarget(n, bad).input()) for n in "ab"]).with_options(max_workers=2)
    with pytest.raises(ExceptionGroup) as raised:
        await stitched.run({"x": 1}, {})
    assert sorted(e.__notes__[0].split("'")[1] for e in raised.value.exceptions) == ["a", "b"]


async def test_cancellation_stays_cancellation() -> None:
    started, ended = anyio.Event(), []

    async def sleeper(x: int) -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(1)

    stitched = flow(sleeper)
    async with anyio.create_task_group() as group:
        group.start_soon(stitched.run, {"x": 1}, {})
        await started.wait()
        group.cancel_scope.cancel()
    assert ended == [1]


async def test_a_failure_while_being_cancelled_from_outside_is_a_cancellation() -> None:
    async def cancels_and_fails(x: int) -> None:
        scope.cancel()
        raise ValueError("mine")

    with anyio.CancelScope() as scope:
        await flow(cancels_and_fails).run({"x": 1}, {})
        pytest.fail("cancelled, the run can't end well")
    assert scope.cancelled_caught


async def test_a_forward_is_left_at_its_next_port_when_cancelled() -> None:
    entered, go_on = threading.Event(), threading.Event()
    teacher, reached = Steps(4), []

    def before(index: int) -> None:
        reached.append(index)
        if index == 1:
            entered.set()
            assert go_on.wait(30)

    teacher.before = before
    t = ModuleTarget("t", teacher)
    stitched = knot((EXT.input("x"), t.input("")), *[(t.output(f"layers.{i}"), EXT.output(str(i))) for i in range(4)])
    async with anyio.create_task_group() as group:
        group.start_soon(stitched.run, {"x": torch.ones(1, 3)}, {})
        while not entered.is_set():
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
        await_stop = anyio.CancelScope(shield=True)
        with await_stop:
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            go_on.set()
    assert reached == [0, 1], "left at the port of layers.1"
    assert not any("_compiled_call_impl" in m.__dict__ for m in teacher.modules())


async def test_a_time_limit() -> None:
    async def sleeper(x: int) -> None:
        await anyio.sleep_forever()

    with pytest.raises(TimeoutError):
        await flow(sleeper).with_options(timeout=0.01).run({"x": 1}, {})


async def test_stop_iteration_and_a_node_that_cancels_itself() -> None:
    def ends(x: int) -> Any:
        return next(iter([]))

    async def cancels(x: int) -> Any:
        raise anyio.get_cancelled_exc_class()

    with pytest.raises(StitchedModuleException, match="'f0' raised StopIteration") as raised:
        await flow(ends).run({"x": 1}, {})
    assert isinstance(raised.value.__cause__, StopIteration)
    if issubclass(anyio.get_cancelled_exc_class(), asyncio.CancelledError):  # trio lets nobody make a Cancelled
        with pytest.raises(
            StitchedModuleException, match=r"'f0' raised CancelledError\(\), and nobody had cancelled it"
        ):
            await flow(cancels).run({"x": 1}, {})


async def test_torchs_state_goes_along_and_leaks_nowhere() -> None:
    seen: list[Any] = []

    def look(x: Any) -> Any:
        seen.append((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.get_default_device().type))
        torch.set_grad_enabled(True)
        return x

    stitched = flow(look, look)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16), torch.device("meta"):
        await stitched.run({"x": 1}, {})
    await stitched.run({"x": 1}, {})
    assert seen == [(False, True, "meta")] * 2 + [(True, False, "cpu")] * 2


async def test_a_mode_that_cannot_go_along() -> None:
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            called.append(threading.get_ident())
            return function(*args, **(kwargs or {}))

    async def waits(x: Any) -> Any:
        return x

    called: list[int] = []
    with Mode():
        await flow(lambda x: torch.add(x, 1)).run({"x": torch.ones(1)}, {})
        assert set(called) == {threading.get_ident()}
        with pytest.raises(StitchedModuleException, match="Mode"):
            await flow(waits).run({"x": torch.ones(1)}, {})


async def test_a_long_chain_does_not_recurse() -> None:
    assert (await flow(*[lambda x: x + 1] * 20_000).run({"x": 0}, {}))["y"] == 20_000

    async def step(x: int) -> int:
        return x + 1

    assert (await flow(*[step] * 20_000).run({"x": 0}, {}))["y"] == 20_000


async def test_adapters_of_async_nodes_stay_off_the_loop() -> None:
    threads: list[int] = []

    def slow(value: Any) -> Any:
        threads.append(threading.get_ident())
        return value

    async def waits(x: int) -> int:
        return x

    f = FunctionTarget("f", waits)
    stitched = knot(
        (EXT.input("x", adapter=slow), f.input(adapter=slow)), (f.output(adapter=slow), EXT.output("y", adapter=slow))
    )
    assert (await stitched.run({"x": InputArgs(3)}, {}))["y"] == 3
    assert len(threads) == 4
    assert threading.get_ident() not in threads


async def test_changed_in_place_by_a_producer_that_goes_on() -> None:
    from weave import ChangedInPlaceException

    got = threading.Event()

    class Changes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.a(x + 1)
            assert got.wait(30)
            return y.add_(1)

    kept: list[Any] = []

    def consumer(x: torch.Tensor) -> int:
        kept.append(x)
        got.set()
        return 0

    m, f = ModuleTarget("m", Changes()), FunctionTarget("f", consumer)
    stitched = knot(
        (EXT.input("x"), m.input("")),
        (m.output("a"), f.input()),
        (m.output(""), EXT.output("y")),
        (f.output(), EXT.output("f")),
    ).with_options(max_workers=2)
    with pytest.raises(ChangedInPlaceException, match=r"m\.output\('a'\)"):
        await stitched.run({"x": torch.zeros(1)}, {})
