"""Ports in and around `torch.compile`d modules: values equal eager, and dynamo compiles nothing anew from run to run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import weave
from weave.passage.touch import release, touch_all

from .nets import Chain, Does, lin, rows
from .stitching import ADDS, EXT, knot, ports, touched

# Dynamo looks at `.grad` of what comes into a region, and torch warns of that; it hides the warning by a way that an
# error filter is faster than.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")

BACKENDS = ["eager", "aot_eager"]


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()
    counters.clear()


class Model(nn.Module):
    """`end(block(start(x)))`; `block` has submodules."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.block, self.end = lin(), Chain(), lin()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.end(self.block(self.start(x)))


def count() -> dict[str, int]:
    """What dynamo has done so far: frames, graphs, breaks."""
    return {f"{group}.{name}": n for group, c in counters.items() for name, n in c.items() if group != "inline_call"}


def wrap_the_block(m: Model, backend: str) -> nn.Module:
    m.block = torch.compile(m.block, backend=backend)
    return m


def compile_the_block(m: Model, backend: str) -> nn.Module:
    m.block.compile(backend=backend)
    return m


def compile_the_model(m: Model, backend: str) -> nn.Module:
    m.compile(backend=backend)
    return m


def compile_block_and_model(m: Model, backend: str) -> nn.Module:
    m.block.compile(backend=backend)
    m.compile(backend=backend)
    return m


AFTER: dict[str, Callable[[Model, str], nn.Module]] = {
    f.__name__: f for f in (wrap_the_block, compile_the_block, compile_the_model, compile_block_and_model)
}
# By port: what is asked of it, and what then comes out, by plain arithmetic.
PORTS = ["start", "block", "block.a", "block.b", "end", ""]


def want_of(m: Model, x: torch.Tensor) -> dict[str, torch.Tensor]:
    start = m.start(x)
    steps = m.block.steps(start)
    return {
        "start": start,
        "block": steps[""],
        **{f"block.{n}": steps[n] for n in "abc"},
        "end": m.end(steps[""]),
        "": m.end(steps[""]),
    }


def behind(m: Model, port: str, v: torch.Tensor) -> torch.Tensor:
    """The end where the output of `port` is `v`."""
    match port:
        case "start":
            return m.end(m.block(v))
        case "block" | "block.c":
            return m.end(v)
        case "block.a":
            return m.end(m.block.c(torch.tanh(m.block.b(torch.tanh(v)))))
        case "block.b":
            return m.end(m.block.c(torch.tanh(v)))
        case _:
            return v


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("when", ["before the knot", "after the knot", "between runs"])
@pytest.mark.parametrize("how", AFTER)
def test_values_equal_eager_and_counters_are_stable(how: str, when: str, backend: str) -> None:
    model, x, v = Model(), rows(), torch.full((2, 3), 0.3)
    twin = copy.deepcopy(model)
    want = want_of(twin, x)
    if when == "before the knot":
        AFTER[how](model, backend)
    named = dict(model.named_modules())

    def name(port: str) -> str:
        return port if port in named else port.replace("block", "block._orig_mod", 1)

    captures = {p: ports(model, [name(p)], [name(p)]) for p in PORTS}
    overrides = {p: ports(model, [""], new_outputs=[name(p)]) for p in PORTS if p not in ("", "end")}
    if when == "after the knot":
        AFTER[how](model, backend)

    def run() -> None:
        for port, stitched in captures.items():
            got = stitched({"x": x}, {}).captured_outputs[name(port)]
            assert torch.allclose(got, want[port], atol=1e-6), port
        for port, stitched in overrides.items():
            got = stitched({"x": x}, {name(port): v})[""]
            assert torch.allclose(got, behind(twin, port, v), atol=1e-6), port

    run()
    if when == "between runs":
        AFTER[how](model, backend)
        run()
    run()
    before = count()
    for _ in range(10):
        run()
    assert count() == before
    assert torch.allclose(model(x), want[""], atol=1e-6), "a plain call afterwards"
    assert [n for n in touched(model) if "compile" not in how] == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_target_itself_is_a_compiled_module(backend: str) -> None:
    inner, x, v = Model(), rows(), torch.full((2, 3), 0.3)
    want = want_of(copy.deepcopy(inner), x)
    model = torch.compile(inner, backend=backend)
    stitched = [
        (ports(model, ["_orig_mod.block.a", ""], ["_orig_mod.end"]), {}, want[""]),
        (ports(model, [""]), {}, want[""]),
        (ports(model, ["_orig_mod"]), {}, want[""]),
        (ports(model, [""], new_outputs=["_orig_mod.block"]), {"_orig_mod.block": v}, inner.end(v)),
    ]
    for s, new, _ in stitched:
        s({"x": x}, new)
    before = count()
    for _ in range(3):
        for s, new, due in stitched:
            got = s({"x": x}, new).captured_outputs
            assert torch.allclose(next(iter(reversed(got.values()))), due, atol=1e-6)
            if "_orig_mod.block.a" in got:
                assert torch.allclose(got["_orig_mod.block.a"], want["block.a"], atol=1e-6)
    assert count() == before


def test_a_port_on_the_boundary_keeps_the_region_compiled() -> None:
    """Seen by a backend that counts the calls of what it compiled."""
    for how in (wrap_the_block, compile_the_block):
        torch._dynamo.reset()
        runs: list[int] = []

        def backend(graph: Any, inputs: Any, runs: list[int] = runs) -> Any:
            def run(*args: Any) -> Any:
                runs.append(1)
                return graph(*args)

            return run

        model, x, v = how(Model(), backend), rows(), torch.ones(2, 3)  # type: ignore[arg-type]
        ports(model, ["block", ""], ["block"])({"x": x}, {})
        assert len(runs) == 1
        ports(model, ["", "block"], new_inputs=["block"])({"x": x, "block": v}, {})
        assert len(runs) == 2
        ports(model, ["end"], ["start"])({"x": x}, {})
        assert len(runs) == 3, "ports outside leave it compiled"
        m = weave.ModuleTarget("m", model)
        feed, end = (EXT.input("x"), m.input("")), (m.output(""), EXT.output("y"))
        knot(feed, (EXT.output("v"), m.output("block", reducer=ADDS)), end)({"x": x}, {"v": v})
        assert len(runs) == 4
        inside = "block._orig_mod.a" if how is wrap_the_block else "block.a"
        ports(model, [inside, ""])({"x": x}, {})
        assert len(runs) == 4, "a port strictly inside runs the region eagerly for that call"
        model(x)
        assert len(runs) == 5


def test_the_inner_name_of_a_compiled_module_is_its_boundary() -> None:
    """`block._orig_mod` is what `block` calls with the same arguments: one boundary with two names."""
    model, x, v = wrap_the_block(Model(), "eager"), rows(), torch.ones(2, 3)
    for name in ("block", "block._orig_mod"):
        got = ports(model, [name], [name])({"x": x}, {})
        assert torch.allclose(got.captured_outputs[name], model.block(model.start(x)))
        assert torch.equal(ports(model, [""], new_outputs=[name])({"x": x}, {name: v})[""], model.end(v))
    got = ports(model, ["block", "block._orig_mod"])({"x": x}, {})
    assert torch.allclose(got["block"], got["block._orig_mod"])


def test_gradients_through_a_region_run_eagerly_are_right() -> None:
    model, x = compile_the_block(Model(), "aot_eager"), rows()
    got = ports(model, ["block.a", ""])({"x": x}, {})
    (got["block.a"].pow(2).sum() + got[""].sum()).backward()
    found = {n: p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad()
    steps = model.block.steps(model.start(x))
    (steps["a"].pow(2).sum() + model.end(steps["c"]).sum()).backward()
    for n, p in model.named_parameters():
        assert torch.allclose(found[n], p.grad, atol=1e-6), n


def test_an_early_exit_inside_and_behind_a_region() -> None:
    model, x = compile_the_block(Model(), "eager"), rows()
    ran: list[str] = []
    model.end.register_forward_hook(lambda m, a, out: ran.append("end"))
    ports(model, ["block.a"])({"x": x}, {})
    ports(model, ["block"])({"x": x}, {})
    assert ran == []


def test_a_forward_compiled_as_a_method_is_right_or_named() -> None:
    """`model.forward = torch.compile(model.forward)`: dynamo inlines what is in it; the error says so."""
    x = rows()
    for port in ("block.a", "start"):
        model = Model()
        want = want_of(copy.deepcopy(model), x)[port]
        stitched = ports(model, [port])
        model.forward = torch.compile(model.forward, backend="eager")
        for _ in range(2):
            try:
                got = stitched({"x": x}, {})[port]
            except weave.PortNotReachedException as error:
                assert "compiled function" in str(error)  # noqa: PT017 - either is right
            else:
                assert torch.allclose(got, want)
    assert torch.allclose(ports(model, [""])({"x": x}, {})[""], want_of(model, x)[""])


def beside(model: nn.Module, names: list[str], call: Callable[[], torch.Tensor], want: torch.Tensor) -> None:
    """What another thread's plain call finds before, in the middle of and after a run; put there by hand."""
    touches = touch_all([model.get_submodule(name) for name in names])
    try:
        assert torch.allclose(call(), want)
    finally:
        release(touches)
    assert torch.allclose(call(), want)


@pytest.mark.parametrize("names", [["block", "block.a"], ["", "block.a"]], ids=["submodules", "the model itself"])
def test_a_compiled_plain_call_beside_a_run_is_neither_changed_nor_compiled_anew(names: list[str]) -> None:
    """The same modules, compiled elsewhere with `fullgraph`: what a run puts into them is nothing to trace."""
    model, x = Model(), rows()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    want = compiled(x)
    before = count()
    for _ in range(3):
        beside(model, names, lambda: compiled(x), want)
    assert count() == before


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_compiled_plain_call_of_a_model_with_hooks_beside_a_run(fullgraph: bool) -> None:
    """Where a submodule has hooks of the user's, dynamo reads the attribute that a run sets: once more, then no more."""
    model, x = Model(), rows()
    model.block.a.register_forward_hook(lambda m, a, out: out * 1.0)
    compiled = torch.compile(model, backend="eager", fullgraph=fullgraph)
    want = compiled(x)
    beside(model, ["block", "block.a"], lambda: compiled(x), want)
    before = count()
    for _ in range(10):
        beside(model, ["block", "block.a"], lambda: compiled(x), want)
    assert count() == before


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_stitched_module_inside_a_compiled_one(backend: str) -> None:
    """The run is Python that dynamo steps around; what lies before and behind it is compiled."""
    model, x = Model(), rows()

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stitched = ports(model, ["block.b"])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.stitched({"x": x * 2}, {})["block.b"] + 1

    outer = Outer()
    want = want_of(model, x * 2)["block.b"] + 1
    assert torch.equal(outer(x), want)
    compiled = torch.compile(outer, backend=backend)
    assert torch.allclose(compiled(x), want)
    compiled(x)
    before = count()
    for _ in range(10):
        assert torch.allclose(compiled(x), want)
    assert count() == before
    compiled(x).sum().backward()
    assert model.block.b.weight.grad is not None


def test_a_compiled_function_of_the_graph() -> None:
    """Adapters and functions may be compiled, as any function may."""
    net, x = Chain(), rows()
    double = torch.compile(lambda v: v * 2, backend="eager")
    m, f = weave.ModuleTarget("m", net), weave.FunctionTarget("f", double)
    stitched = knot(
        (EXT.input("x"), m.input("")), (m.output("a", adapter=double), f.input()), (f.output(), EXT.output("y"))
    )
    assert torch.equal(stitched({"x": x}, {})["y"], net.steps(x)["a"] * 4)


def test_compiled_while_a_run_is_under_way() -> None:
    """`module.compile()` during a run puts its own callable where ours stood: it stays, and the next run is right."""
    model, x = Model(), rows()
    model.start.register_forward_pre_hook(lambda m, a: model.block.compile(backend="eager"))
    stitched = ports(model, ["block.a", ""])
    stitched_again = ports(model, ["block", ""])
    try:
        stitched_again({"x": x}, {})
    except weave.PortNotReachedException:
        assert touched(model) == ["block"]
    want = want_of(model, x)
    model.start._forward_pre_hooks.clear()
    got = stitched({"x": x}, {})
    assert torch.allclose(got["block.a"], want["block.a"])
    assert torch.allclose(stitched_again({"x": x}, {})["block"], want["block"])
    assert type(model.block.__dict__["_compiled_call_impl"]).__name__ == "function"


def test_a_graph_whose_model_calls_a_compiled_part_twice() -> None:
    net, x = Does(lambda m, x: m.part(m.part(x)), part=Chain()), rows()
    net.part.compile(backend="eager")
    m = weave.ModuleTarget("m", net)
    got = knot((EXT.input("x"), m.input("")), (m.output("part.b", call="all"), EXT.output("all")))({"x": x}, {})["all"]
    first = net.part.steps(x)
    assert len(got) == 2
    assert torch.allclose(got[0], first["b"])
    assert torch.allclose(got[1], net.part.steps(first["c"])["b"])


@pytest.mark.parametrize("name", ["block", "fast", "fast._orig_mod"])
def test_one_block_called_plainly_and_compiled(name: str) -> None:
    """The same block under two names, one of them compiled: a port on it is passed at both calls."""
    block, x = Chain(), rows()
    net = Does(lambda m, x: m.fast(m.block(x)), block=block, fast=torch.compile(block, backend="eager"))
    first = block.steps(x)["c"]
    second = block.steps(first)["c"]
    m = weave.ModuleTarget("m", net)
    got = knot((EXT.input("x"), m.input("")), (m.output(name, call="all"), EXT.output("all")))({"x": x}, {})["all"]
    want = [second] if name == "fast" else [first, second]
    assert len(got) == len(want)
    assert all(torch.allclose(g, w) for g, w in zip(got, want, strict=True))


def test_one_block_compiled_twice() -> None:
    block, x = Chain(), rows()
    net = nn.Sequential(torch.compile(block, backend="eager"), torch.compile(block, backend="eager"))
    first = block.steps(x)
    second = block.steps(first["c"])
    m = weave.ModuleTarget("m", net)
    for name in ("0._orig_mod", "1._orig_mod"):
        got = knot((EXT.input("x"), m.input("")), (m.output(name, call="all"), EXT.output("all")))({"x": x}, {})["all"]
        assert torch.allclose(got[0], first["c"])
        assert torch.allclose(got[1], second["c"])
    got = ports(net, ["0._orig_mod.a", "1"])({"x": x}, {})
    assert torch.allclose(got["0._orig_mod.a"], first["a"])
    assert torch.allclose(got["1"], second["c"])


@pytest.mark.parametrize("inside", [False, True])
def test_a_compiled_wrapper_that_is_no_submodule(inside: bool) -> None:
    """Hidden in a list, so no survey finds it. On its boundary a port is passed; inside it is passed or named as missed."""
    net, x = Does(lambda m, x: m.hidden[0](x) + 1, block=Chain()), rows()
    net.hidden = [torch.compile(net.block, backend="eager")]
    name = "block.a" if inside else "block"
    stitched, want = ports(net, [name, ""]), net.block.steps(x)
    for turn in range(6):
        try:
            got = stitched({"x": x}, {})
        except weave.PortNotReachedException as error:
            assert inside, "the block's own call is no part of the region"
            assert "compiled function" in str(error)  # noqa: PT017 - right, where dynamo inlines
        else:
            assert torch.allclose(got[name], want["a" if inside else ""])
            assert torch.allclose(got[""], want[""] + 1)
        if turn == 2:
            before = count()
    assert count() == before


def test_a_compiled_module_that_counts_as_false() -> None:
    """A module may have a length, and it may be 0: it is a module all the same."""

    class Bag(Chain):
        def __len__(self) -> int:
            return 0

    for how in (wrap_the_block, compile_the_block):
        model, x = Model(), rows()
        model.block = Bag()
        how(model, "eager")
        inside = "block._orig_mod.a" if how is wrap_the_block else "block.a"
        want = want_of(copy.deepcopy(model) if how is compile_the_block else _unwrapped(model), x)
        got = ports(model, [inside, ""])({"x": x}, {})
        assert torch.allclose(got[inside], want["block.a"])
        assert torch.allclose(got[""], want[""])


def _unwrapped(model: Model) -> Model:
    plain = copy.copy(model)
    plain._modules = {**model._modules, "block": model.block._orig_mod}
    return plain
