"""The inline driver: order, awaitables, context variables, threads, torch's modes."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.small import EXT, Tiny, constant, flow, knot, module, packed, plus_one, times_ten
from weave import FunctionTarget, Needle, StitchedModuleException

# --- order ---


@given(st.permutations(range(6)))
def test_nodes_fire_in_the_plans_order(order: list[int]) -> None:
    fired: list[str] = []
    functions = [FunctionTarget(f"f{i}", lambda *a, i=i: fired.append(f"f{i}")) for i in range(6)]
    needle = Needle()
    for i in order:
        needle.stitch(EXT.input("x"), functions[i].input())
        if i >= 2:
            needle.stitch(functions[i - 2].output(), functions[i].input())
    stitched = needle.knot()
    stitched({"x": 1}, {})
    assert fired == [unit.node for unit in stitched.plan.units]
    assert fired.index("f4") > fired.index("f2") > fired.index("f0")


def test_each_target_fires_once_a_run() -> None:
    count: list[Any] = []
    f = FunctionTarget("f", lambda x: count.append(x) or x)
    stitched = knot((EXT.input("x"), f.input()), *[(f.output(), EXT.output(str(i))) for i in range(5)])
    stitched({"x": 1}, {})
    stitched({"x": 2}, {})
    assert count == [1, 2]


# --- awaitables ---


async def waits(x: Any) -> Any:
    return x


class Awaitable:
    def __await__(self) -> Any:
        yield


def returns_future(x: Any) -> Any:
    loop = asyncio.new_event_loop()
    try:
        return loop.create_future()
    finally:
        loop.close()


GIVE = {
    "coroutine": lambda x: waits(x),
    "awaitable": lambda x: Awaitable(),
    "future": returns_future,
}
STITCHED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plainly": ({}, {}),
    "with an adapter": ({}, {"adapter": lambda v: v}),
    "with a named reducer": ({"reducer": "sum"}, {}),
    "with a reducer": ({"reducer": lambda acc, value, *more: acc + value}, {"adapter": lambda v: v}),
}


@pytest.mark.parametrize("stitched", STITCHED)
@pytest.mark.parametrize("gives", GIVE)
def test_what_a_function_gives_to_await_is_refused_with_the_remedy(gives: str, stitched: str) -> None:
    """However the function is stitched; and no coroutine is left behind that warns of never having been awaited."""
    f, (into, out_of) = FunctionTarget("f", GIVE[gives]), STITCHED[stitched]
    graph = knot((EXT.input("x"), f.input(**into)), (f.output(**out_of), EXT.output("y")))
    with pytest.raises(StitchedModuleException, match=r"'f' .*await.*plain function"):
        graph({"x": 1}, {})


def test_an_async_function_is_awaited_by_a_synchronous_call_too() -> None:
    """Then the whole graph runs on a loop of its own; see test_facade."""
    assert flow(waits, plus_one)({"x": 1}, {})["y"] == 2


def test_a_synchronous_call_works_where_a_loop_runs() -> None:
    async def main() -> Any:
        return flow(plus_one)({"x": 1}, {})["y"]

    assert asyncio.run(main()) == 2


# --- context variables ---

who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


def test_a_node_sees_and_sets_the_callers_context() -> None:
    """As any function call does. (Only asynchronous runs keep nodes apart.)"""
    seen: list[str] = []

    def sets(x: Any) -> Any:
        seen.append(who.get())
        who.set(f"set by {x}")
        return x + 1

    def run() -> str:
        who.set("caller")
        flow(sets, sets)({"x": 1}, {})
        return who.get()

    assert contextvars.copy_context().run(run) == "set by 2"
    assert seen == ["caller", "set by 1"]


# --- modes ---


def test_grad_mode_and_autocast_reach_every_node() -> None:
    seen: list[Any] = []

    def look(x: Any) -> Any:
        seen.append((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.is_inference_mode_enabled()))
        return x

    stitched = flow(look, look)
    stitched({"x": 1}, {})
    with torch.no_grad():
        stitched({"x": 1}, {})
    with torch.autocast("cpu", dtype=torch.bfloat16):
        stitched({"x": 1}, {})
    with torch.inference_mode():
        stitched({"x": 1}, {})
    assert seen[::2] == seen[1::2]
    assert seen[::2] == [(True, False, False), (False, False, False), (True, True, False), (False, False, True)]


def test_default_device_and_torch_function_modes_reach_every_node() -> None:
    def make(x: Any) -> Any:
        return torch.ones(1)

    with torch.device("meta"):
        assert flow(make)({"x": 1}, {})["y"].device.type == "meta"


def test_gradients_flow_through_functions_adapters_reducers_and_constants() -> None:
    w = torch.nn.Parameter(torch.tensor([2.0]))
    x = torch.tensor([3.0], requires_grad=True)
    f = FunctionTarget("f", lambda a, b: a * b)
    stitched = knot(
        (EXT.input("x"), f.input()),
        (constant(w), f.input(adapter=lambda v: v * 5)),
        (f.output(), EXT.output("y", reducer="sum")),
        (EXT.output("o"), EXT.output("y", reducer="sum")),
    )
    o = torch.tensor([1.0], requires_grad=True)
    y = stitched({"x": x}, {"o": o})["y"]
    assert y.item() == 31
    y.backward()
    assert (x.grad.item(), w.grad.item(), o.grad.item()) == (10, 15, 1)


# --- threads ---


def test_runs_from_many_threads_keep_to_themselves() -> None:
    f, g = FunctionTarget("f", plus_one), FunctionTarget("g", packed)
    m = module(Tiny())
    stitched = knot(
        (EXT.input("x"), f.input()),
        (f.output(), g.input()),
        (EXT.output("tag"), g.input()),
        (EXT.input("x"), m.input("", adapter=lambda a: type(a)(torch.full((1, 3), float(a.args[0]))))),
        (g.output(), EXT.output("y")),
        (m.output("a"), EXT.output("a")),
    )
    net = m.module
    wrong: list[Any] = []
    start = threading.Barrier(8)

    def work(thread: int) -> None:
        start.wait()
        for i in range(40):
            x = thread * 1000 + i
            out = stitched({"x": x}, {"tag": (thread, i)})
            if out["y"] != ((x + 1, (thread, i)), {}):
                wrong.append(out["y"])
            if not torch.equal(out["a"], net.a(torch.full((1, 3), float(x)))):
                wrong.append((thread, i))

    threads = [threading.Thread(target=work, args=(t,)) for t in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_run_within_a_run_of_the_same_graph() -> None:
    stitched = flow(lambda x: stitched({"x": x - 1}, {})["y"] + 1 if x else 0)
    assert stitched({"x": 20}, {})["y"] == 20


def test_a_graph_as_a_function_of_another() -> None:
    inner = flow(plus_one, times_ten)
    f = FunctionTarget("inner", inner)
    outer = knot(
        (EXT.output("x"), f.input(adapter=lambda x: {"x": x})),
        (constant({}), f.input()),
        (f.output(adapter=lambda out: out["y"]), EXT.output("y")),
    )
    assert outer({}, {"x": 1})["y"] == 20
