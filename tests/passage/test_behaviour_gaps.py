"""Statements of the definition about a forward that no other test is about."""

from __future__ import annotations

import contextvars
import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import nn

import weave
from weave.passage.fake import is_fake

from .nets import Again, Chain, Counted, Does, counting, lin, rows
from .stitching import EXT, knot, ports


def test_a_forward_that_was_exchanged_as_accelerate_does_it_finishes() -> None:
    """What accelerate does to a module, without accelerate: a mark, and a forward of the instance around the old one."""
    block, finished = Chain(), []
    old = block.forward

    def new_forward(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        out = old(*args, **kwargs)
        finished.append(module)
        return out

    net, x = nn.Sequential(block, lin()), rows()
    stitched, ran = ports(net, ["0.a"]), counting(net)
    want = block.steps(x)["a"]
    assert torch.equal(stitched({"x": x}, {})["0.a"], want)
    assert ran == ["", "0", "0.a"], "unmarked, it is left in the middle"
    ran.clear()
    block._hf_hook, block.forward = object(), functools.partial(new_forward, block)
    assert torch.equal(stitched({"x": x}, {})["0.a"], want)
    assert finished == [block]
    assert ran == ["", "0", "0.a", "0.b", "0.c"], "it finishes, and what is behind it does not run"


def test_the_cache_tells_ports_apart_that_are_called_alike() -> None:
    """Two submodules, and two calls of the cached ones with the same fake; each answers with its own shape."""
    seen: list[tuple[int, ...]] = []

    def body(m: Any, x: torch.Tensor) -> Any:
        for part in (m.one, m.two, m.one, m.two):
            got = part(x)
            assert is_fake(got)
            seen.append(tuple(got.shape))
        return m.end(x)

    one, two = Counted(lambda x: x[:, :1]), Counted(lambda x: x[:, :2])
    net = Does(body, one=one, two=two, end=Counted(lambda x: x))
    m = weave.ModuleTarget("m", net)
    stitched = knot(
        (EXT.input("v"), m.input("end")),
        (m.output("end"), EXT.output("y")),
        capture_cache_outputs_predicate=lambda name, module: name in ("one", "two"),
    )
    for _ in range(2):
        assert stitched({"v": 7}, {}, weave.fake_tensor(2, 3))["y"] == 7
    assert seen == [(2, 1), (2, 2)] * 4
    assert (one.ran, two.ran) == (1, 1)


def test_fakes_deep_in_a_captured_input_come_out_as_none() -> None:
    real = torch.ones(2)

    def body(m: Any, x: torch.Tensor) -> Any:
        return m.part([x, {"k": (real, x)}], mask=x, keep=real, n=3)

    net = Does(body, part=Counted(lambda *args, **kwargs: 0))
    m = weave.ModuleTarget("m", net)
    call = knot((m.input("part"), EXT.input("call")), early_exit=False)({}, {}, weave.fake_tensor(2, 3))["call"]
    ((first, inner),) = call.args
    assert first is None
    assert inner["k"][0] is real
    assert inner["k"][1] is None
    assert type(inner["k"]) is tuple
    assert call.kwargs["keep"] is real
    assert (call.kwargs["mask"], call.kwargs["n"]) == (None, 3)


def test_a_sources_adapter_runs_in_the_thread_of_the_submodule() -> None:
    """A forward that has threads of its own: the value is adapted where it came to be, not where the run was called."""
    at: dict[str, int] = {}

    def noting(who: str) -> Any:
        def adapter(value: Any) -> Any:
            at[who] = threading.get_ident()
            return value

        return adapter

    def part(x: torch.Tensor) -> torch.Tensor:
        at["part"] = threading.get_ident()
        return x + 1

    def body(m: Any, x: torch.Tensor) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(contextvars.copy_context().run, m.part, x).result()

    net, x = Does(body, part=Counted(part)), rows()
    m = weave.ModuleTarget("m", net)
    out = knot(
        (EXT.input("x"), m.input("")),
        (m.input("part", adapter=noting("input")), EXT.input("in")),
        (m.output("part", adapter=noting("output")), EXT.output("out", adapter=noting("destination"))),
        early_exit=False,
    )({"x": x}, {})
    assert torch.equal(out["out"], x + 1)
    assert at["input"] == at["output"] == at["part"] != threading.get_ident()
    assert at["destination"] == threading.get_ident()


def test_adapters_and_reducers_run_when_it_is_their_turn() -> None:
    """One story of two forwards: what is adapted where it is captured, what once at the consumer, what at each call."""
    story: list[str] = []

    def says(words: str, value: Any = None) -> Any:
        def step(*given: Any) -> Any:
            story.append(words)
            return given[0] if value is None else given[value]

        return step

    first, second, x = Again(2), Again(2), rows()
    for name, net in (("first", first), ("second", second)):
        net.register_forward_pre_hook(lambda m, args, name=name: story.append(f"{name} starts"))
        net.register_forward_hook(lambda m, args, out, name=name: story.append(f"{name} ends"))
        net.layer.register_forward_hook(lambda m, args, out, name=name: story.append(f"{name}'s layer"))
    a, b = weave.ModuleTarget("first", first), weave.ModuleTarget("second", second)
    reducer = weave.InputReducer(says("reducer", 2))  # gives the original back
    out = knot(
        (EXT.input("x"), a.input("")),
        (a.output("layer", adapter=says("source")), b.input("layer", adapter=says("destination"), reducer=reducer)),
        (EXT.input("x"), b.input("")),
        (b.output(""), EXT.output("y")),
        early_exit=False,
    )({"x": x}, {})
    want = x
    for _ in range(2):
        want = torch.tanh(second.step(want))
    assert torch.equal(out["y"], want)
    assert story == [
        "first starts",
        "first's layer",
        "source",
        "first's layer",
        "first ends",
        "destination",
        "second starts",
        "reducer",
        "second's layer",
        "reducer",
        "second's layer",
        "second ends",
    ]
