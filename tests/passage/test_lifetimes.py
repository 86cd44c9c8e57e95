"""What a run holds, and for how long: nothing of it outlives it, without waiting for the garbage collector."""

from __future__ import annotations

import contextvars
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import weave
from weave.passage.touch import release, touch_all

from .nets import Again, Chain, Does, lin, rows
from .stitching import EXT, knot, ports


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def watching(module: nn.Module) -> list[weakref.ref[torch.Tensor]]:
    """Weak references to everything that this module returns."""
    seen: list[weakref.ref[torch.Tensor]] = []
    module.register_forward_hook(lambda m, args, out: seen.append(weakref.ref(out)))
    return seen


@pytest.mark.parametrize("early_exit", [True, False])
@pytest.mark.parametrize("call", [None, "last", "all"])
def test_nothing_is_held_when_the_result_is_dropped(call: Any, early_exit: bool) -> None:
    net = nn.Sequential(Chain(), Again(3))
    seen = [*(watching(module) for module in (net[0].a, net[0].b, net[1].layer))]
    m = weave.ModuleTarget("m", net)
    stitched = knot(
        (EXT.input("x"), m.input("")),
        (m.output("0.b"), EXT.output("b")),
        (m.input("0.b"), EXT.input("in")),
        (m.output("1.layer", call=call), EXT.output("layer")),
        early_exit=early_exit,
    )
    with torch.no_grad():
        got = stitched({"x": rows()}, {})
    assert got["b"] is seen[1][0]()
    assert seen[0][0]() is None, "what nobody captured went when the forward let it go"
    del got
    assert [ref() for refs in seen for ref in refs] == [None] * sum(map(len, seen))


def test_a_captured_value_goes_with_its_last_consumer() -> None:
    net, alive = Chain(), []
    refs = watching(net.a)
    m = weave.ModuleTarget("m", net)
    f = weave.FunctionTarget("f", lambda v: v.sum().item())
    g = weave.FunctionTarget("g", lambda n: alive.append(refs[0]()) or n)
    stitched = knot(
        (EXT.input("x"), m.input("")),
        (m.output("a"), f.input()),
        (f.output(), g.input()),
        (g.output(), EXT.output("y")),
    )
    with torch.no_grad():
        stitched({"x": rows()}, {})
    assert alive == [None]


@pytest.mark.parametrize("early_exit", [True, False])
def test_nothing_is_held_after_a_run_that_raised(early_exit: bool) -> None:
    net = Does(lambda m, x: m.b(m.a(x)) / (1 // 0), a=lin(), b=lin())
    refs = [watching(net.a), watching(net.b)]
    stitched = ports(net, ["a", ""], early_exit=early_exit)
    with torch.no_grad(), pytest.raises(ZeroDivisionError) as raised:
        stitched({"x": rows()}, {})
    del raised
    assert [ref() for ref in (*refs[0], *refs[1])] == [None, None]


def test_the_runs_arguments_are_not_held() -> None:
    net, x = Chain(), rows()
    ref = weakref.ref(x)
    stitched = ports(net, ["a"])
    with torch.no_grad():
        stitched({"x": x}, {})
    del x
    assert ref() is None


def test_a_context_that_outlives_its_run_is_no_run() -> None:
    """A forward may start work in a copy of its context (a task, a thread) that calls a module when the run is long over."""
    kept: list[contextvars.Context] = []
    net, x, v = (
        Does(lambda m, x: (kept.append(contextvars.copy_context()), m.b(m.a(x)))[1], a=lin(), b=lin()),
        rows(),
        torch.ones(2, 3),
    )
    stitched = ports(net, ["b"], new_outputs=["a"])
    stitched({"x": x}, {"a": v})
    touches = touch_all([net.a, net.b])  # as another run does, somewhere else at that time
    try:
        (context,) = kept
        assert torch.equal(context.run(net.a, x), nn.functional.linear(x, net.a.weight, net.a.bias))
        assert torch.equal(context.run(net.b, x), nn.functional.linear(x, net.b.weight, net.b.bias))
    finally:
        release(touches)
