"""Rules of the tasks driver that hold whatever the graph: who may change a tensor, what stays off the loop, who is in order."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from typing import Any

import anyio
import pytest
import torch
from torch import nn

from weave import (
    ChangedInPlaceException,
    ExternalTarget,
    FunctionTarget,
    InputReducer,
    ModuleTarget,
    Needle,
    RunOptions,
)
from weave.testing import Gate, Sequencer

EXT = ExternalTarget()
pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("last", ["reads", "writes"])
async def test_a_change_while_another_consumer_computes_with_the_tensor(last: str) -> None:
    order = Sequencer("reading", "written", "first over", "second over")

    def reads(x: torch.Tensor) -> float:
        order.reach("reading")
        with order("first over" if last == "writes" else "second over"):
            return float(x.sum())

    def writes(x: torch.Tensor) -> None:
        with order("written"):
            x.add_(1)
        order.reach("first over" if last == "reads" else "second over")

    r, w, x = FunctionTarget("reads", reads), FunctionTarget("writes", writes), EXT.input("x")
    needle = Needle().stitch(x, r.input()).stitch(x, w.input()).stitch(r.output(), EXT.output("sum"))
    with pytest.raises(ChangedInPlaceException, match="external"):
        await needle.knot(options=RunOptions(max_workers=2)).run({"x": torch.zeros(2)}, {})


async def test_the_last_consumer_may_change_what_nobody_else_needs() -> None:
    def reads(x: torch.Tensor) -> float:
        return float(x.sum())

    def writes(x: torch.Tensor, after: float) -> float:
        return float(x.add_(1).sum())

    r, w, x = FunctionTarget("reads", reads), FunctionTarget("writes", writes), EXT.input("x")
    needle = Needle().stitch(x, r.input()).stitch(x, w.input()).stitch(r.output(), w.input())
    stitched = needle.stitch(w.output(), EXT.output("sum")).knot(options=RunOptions(max_workers=2))
    # `writes` takes the tensor when `reads` has ended.
    assert (await stitched.run({"x": torch.zeros(2)}, {}))["sum"] == 2


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_reducers_and_adapters_of_a_function_stay_off_the_loop(asynchronous: bool) -> None:
    threads: dict[str, int] = {}

    def reduce(acc: Any, value: Any, original: Any, index: int, values: Any) -> Any:
        threads["reducer"] = threading.get_ident()
        return acc + value

    def adapt(value: Any) -> Any:
        threads["adapter"] = threading.get_ident()
        return value

    async def waits(*x: int) -> int:
        return sum(x)

    f = FunctionTarget("f", waits if asynchronous else lambda *x: sum(x))
    a, b = f.input(reducer=InputReducer(reduce)), f.input(adapter=adapt, reducer=InputReducer(reduce))
    needle = Needle().stitch(EXT.input("x"), a).stitch(EXT.input("x"), b).stitch(f.output(), EXT.output("y"))
    assert (await needle.knot().run({"x": 2}, {}))["y"] == 4
    assert threading.get_ident() not in threads.values()
    assert set(threads) == {"reducer", "adapter"}


async def test_one_worker_keeps_functions_declared_cheap_in_order() -> None:
    called: list[str] = []

    def named(name: str) -> FunctionTarget:
        return FunctionTarget(name, lambda *x: called.append(name), inline=name in "bd")

    needle = Needle()
    for name in "abcde":
        needle.stitch(EXT.input("x"), named(name).input())
    stitched = needle.knot(options=RunOptions(max_workers=1))
    for _ in range(20):
        called.clear()
        await stitched.run({"x": 1}, {})
        assert called == list("abcde")


async def test_functions_declared_cheap_run_on_the_loop() -> None:
    threads: list[int] = []
    f = FunctionTarget("f", lambda x: threads.append(threading.get_ident()), inline=True)
    needle = Needle().stitch(EXT.input("x"), f.input())
    for most in (1, 2):
        await needle.knot(options=RunOptions(max_workers=most)).run({"x": 1}, {})
    assert threads == [threading.get_ident()] * 2


async def test_a_time_limit_says_which() -> None:
    gate = Gate()
    needle = Needle().stitch(EXT.input("x"), gate.input())
    with pytest.raises(TimeoutError, match=r"not over within 0\.01 s \(RunOptions\.timeout\)"):
        await needle.knot(options=RunOptions(timeout=0.01)).run({"x": 1}, {})
    with pytest.raises(TimeoutError, match="not over within 0 s"):
        await needle.knot(options=RunOptions(timeout=0)).run({"x": 1}, {})


async def test_a_limit_around_a_run_is_the_callers_own() -> None:
    gate = Gate()
    needle = Needle().stitch(EXT.input("x"), gate.input())
    with pytest.raises(TimeoutError) as caught, anyio.fail_after(0.01):
        await needle.knot(options=RunOptions(timeout=60)).run({"x": 1}, {})
    assert "RunOptions" not in str(caught.value)


@pytest.mark.parametrize("inline", [False, True])
async def test_what_runs_on_the_portals_loop_has_the_callers_state(inline: bool) -> None:
    seen: list[bool] = []

    async def looks(x: Any) -> Any:
        seen.append(torch.is_grad_enabled())
        await anyio.lowlevel.checkpoint()
        seen.append(torch.is_grad_enabled())
        return x

    def cheap(x: Any) -> Any:
        seen.append(torch.is_grad_enabled())
        return x

    f, g = FunctionTarget("f", looks), FunctionTarget("g", cheap, inline=inline)
    needle = Needle().stitch(EXT.input("x"), f.input()).stitch(f.output(), g.input())
    stitched = needle.stitch(g.output(), EXT.output("y")).knot()
    with torch.no_grad():
        assert stitched({"x": 1}, {})["y"] == 1
    assert seen == [False] * 3
    assert stitched({"x": 1}, {})["y"] == 1
    assert seen[3:] == [True] * 3


async def test_an_exception_in_a_node_on_the_portals_loop() -> None:
    async def fails(x: Any) -> Any:
        try:
            await anyio.lowlevel.checkpoint()
            raise KeyError(x)
        finally:
            assert not torch.is_grad_enabled()

    f = FunctionTarget("f", fails)
    stitched = Needle().stitch(EXT.input("x"), f.input()).stitch(f.output(), EXT.output("y")).knot()
    with torch.no_grad(), pytest.raises(KeyError):
        stitched({"x": 1}, {})


# --- one tensor, several readers ---


async def test_a_unit_may_change_what_it_has_by_two_stitches() -> None:
    def writes(a: torch.Tensor, b: torch.Tensor) -> float:
        return float(a.add_(1).sum())

    f, x = FunctionTarget("f", writes), EXT.input("x")
    stitched = Needle().stitch(x, f.input()).stitch(x, f.input()).stitch(f.output(), EXT.output("y")).knot()
    assert stitched({"x": torch.zeros(2)}, {})["y"] == 2
    assert (await stitched.run({"x": torch.zeros(2)}, {}))["y"] == 2


async def test_two_descriptors_of_one_port_are_one_tensor() -> None:
    order = Sequencer("reading", "written", "read")

    def reads(x: torch.Tensor) -> float:
        order.reach("reading")
        with order("read"):
            return float(x.sum())

    def writes(x: torch.Tensor) -> None:
        with order("written"):
            x.add_(100)

    r, w = FunctionTarget("reads", reads), FunctionTarget("writes", writes)
    needle = Needle().stitch(EXT.input("x"), r.input()).stitch(EXT.input("x"), w.input())
    stitched = needle.stitch(r.output(), EXT.output("sum")).knot(options=RunOptions(max_workers=2))
    with pytest.raises(ChangedInPlaceException):
        await stitched.run({"x": torch.zeros(2)}, {})


class Held(nn.Module):
    """A layer, then one that begins when `go` is reached."""

    def __init__(self, go: Any) -> None:
        super().__init__()
        self.first, self.second, self.go = nn.Identity(), nn.Identity(), go

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x) * 1 if self.go is None else self.first(x)
        if self.go is not None:
            self.go()
        return self.second(x) + 1


@pytest.mark.parametrize("copies", [False, True])
async def test_a_consumer_that_changes_what_the_forward_goes_on_with(copies: bool) -> None:
    order = Sequencer("changed", "went on")

    def writes(x: torch.Tensor) -> None:
        with order("changed"):
            x.add_(100)

    net = Held(lambda: order.reach("went on"))
    m, w = ModuleTarget("m", net), FunctionTarget("writes", writes)
    captured = m.output("first", adapter="clone") if copies else m.output("first")
    needle = Needle().stitch(EXT.input("x"), m.input("")).stitch(captured, w.input())
    stitched = needle.stitch(m.output(""), EXT.output("y")).knot(options=RunOptions(max_workers=2))
    if copies:
        assert torch.equal((await stitched.run({"x": torch.ones(2)}, {}))["y"], torch.full((2,), 2.0))
    else:
        with pytest.raises(ChangedInPlaceException, match=r"m\.output\('first'\)"):
            await stitched.run({"x": torch.ones(2)}, {})


async def test_a_modules_own_result_belongs_to_its_only_consumer() -> None:
    m, w = ModuleTarget("m", Held(None)), FunctionTarget("writes", lambda x: x.add_(100))
    needle = Needle().stitch(EXT.input("x"), m.input("")).stitch(m.output(""), w.input())
    stitched = needle.stitch(w.output(), EXT.output("y")).knot(options=RunOptions(max_workers=2))
    for _ in range(50):
        assert torch.equal((await stitched.run({"x": torch.ones(2)}, {}))["y"], torch.full((2,), 102.0))


async def test_one_worker_keeps_order_with_adapters_among_cheap_functions() -> None:
    called: list[str] = []
    f = FunctionTarget("f", lambda x: called.append("f"), inline=True)
    g = FunctionTarget("g", lambda x: called.append("g"), inline=True)
    needle = Needle().stitch(EXT.input("x"), f.input(adapter=lambda x: x)).stitch(EXT.input("x"), g.input())
    stitched = needle.knot(options=RunOptions(max_workers=1))
    for _ in range(20):
        called.clear()
        await stitched.run({"x": 1}, {})
        assert called == ["f", "g"]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_run_that_is_over_holds_nothing(fails: bool) -> None:
    async def node(x: Any) -> int:
        if fails:
            raise KeyError
        return 1

    f = FunctionTarget("f", node)
    stitched = Needle().stitch(EXT.input("x"), f.input()).stitch(f.output(), EXT.output("y")).knot()
    gc.collect()
    gc.disable()
    try:
        tensor = torch.zeros(2)
        alive = weakref.ref(tensor)
        with contextlib.suppress(KeyError):
            await stitched.run({"x": tensor}, {}, tensor)
        del tensor
        assert alive() is None
    finally:
        gc.enable()


async def test_cancelled_at_once_is_cancelled() -> None:
    """The workers may hear of it before the run's own task does."""

    async def waits(x: Any) -> Any:
        await anyio.sleep_forever()

    f = FunctionTarget("f", waits)
    stitched = Needle().stitch(EXT.input("x"), f.input()).stitch(f.output(), EXT.output("y")).knot()
    for _ in range(100):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(stitched.run, {"x": 1}, {})
                await anyio.lowlevel.checkpoint()
                scope.cancel()
        assert scope.cancelled_caught
