"""Cases from public reports of people who stitch, hook, patch or orchestrate: their kinds, outside a module's forward.

A test is called after its case. What the case is about inside a forward is in `tests/passage`; copies, processes and the
rest are looked at more closely in the files that mirror the code.
"""

from __future__ import annotations

import concurrent.futures
import copy
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.small import EXT, appearance, constant, flow, knot, module, plus_one
from weave import (
    ChangedInPlaceException,
    FunctionTarget,
    InputArgs,
    ModuleTarget,
    UnknownPortException,
)

x23 = torch.arange(6.0).reshape(2, 3) / 5 - 0.4


# --- names, arguments, values ---


def test_keywords_named_like_plumbing() -> None:
    """Keywords named as a stitcher's own parameters are, to functions and to every module of the run."""
    words = (
        "self",
        "module",
        "args",
        "kwargs",
        "input",
        "output",
        "name",
        "call",
        "run",
        "unit",
        "function",
        "original",
    )
    said: dict[str, Any] = {word: i for i, word in enumerate(words)}
    f = FunctionTarget("f", lambda *a, **k: (a, k))
    stitched = knot(
        (EXT.input("x"), f.input()), (constant(InputArgs(**said)), f.input()), (f.output(), EXT.output("y"))
    )
    assert stitched({"x": 1}, {})["y"] == ((1,), said)

    class Net(nn.Module):
        def forward(self, *a: Any, **k: Any) -> Any:
            return a, k

    m = module(Net())
    words = tuple(w for w in words if w not in ("self", "input_overrides", "output_overrides"))
    got = knot((m.output(""), EXT.output("y")))({}, {}, 5, **{w: said[w] for w in words})["y"]
    assert got == ((5,), {w: said[w] for w in words})


@pytest.mark.parametrize(
    "name", ["output", "input", "module", "nodes", "args", "name", "target", "plan", "forward", ""]
)
def test_children_named_output_and_input(name: str) -> None:
    """Targets and boundary names that are attributes of the library's own classes."""
    net = nn.ModuleDict({name: nn.Linear(3, 3)}) if name not in ("forward", "") else nn.ModuleDict()
    outer = ModuleTarget(name, nn.Linear(3, 3))
    f = FunctionTarget(name, plus_one)
    stitched = knot(
        (EXT.input(name), outer.input("")),
        (outer.output(""), f.input()),
        (f.output(), EXT.output(name)),
        (outer.input(""), EXT.input(name)),
    )
    out = stitched({name: x23}, {})
    assert torch.equal(out.captured_outputs[name], outer.module(x23) + 1)
    assert out.captured_inputs[name].args[0] is x23
    assert len(stitched.state_dict()) == 2
    assert [row.name for row in module(net).ports()] == ["", *net]


@pytest.mark.parametrize("port", ["layers", "heads"])
def test_containers_are_never_called(port: str) -> None:
    """Refused when the knot is tied, not found out by a port that never fires."""
    net = nn.Module()
    net.layers = nn.ModuleList([nn.Linear(3, 3)])
    net.heads = nn.ModuleDict({"a": nn.Linear(3, 2)})
    net.forward = lambda x: net.heads["a"](net.layers[0](x))  # type: ignore[assignment]
    m = module(net)
    for stitch in (
        (m.output(port), EXT.output("y")),
        (m.input(port), EXT.input("y")),
        (EXT.output("o"), m.output(port)),
        (EXT.input("o"), m.input(port)),
    ):
        with pytest.raises(UnknownPortException, match=port):
            knot((EXT.input("x"), m.input("")), stitch)


def test_alias_of_a_module() -> None:
    """Listed under all its names, and its parameters are there once."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(3, 3)
            self.two = self.one

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.two(self.one(x))

    net = Net()
    m = module(net)
    assert [(row.name, row.same_as) for row in m.ports()] == [("", ""), ("one", ""), ("two", "one")]
    stitched = knot(
        (EXT.input("x"), m.input("")), (m.output("two"), EXT.output("y")), (m.output("one"), EXT.output("z"))
    )
    assert len(list(stitched.parameters())) == 2
    assert torch.equal(copy.deepcopy(stitched)({"x": x23}, {})["y"], net.one(x23))


# --- in place, modes, numbers ---


@pytest.mark.parametrize("kind", ["tuple", "dict", "view"])
def test_in_place_hidden_in_a_structure(kind: str) -> None:
    """A function changes what sits in a structure that the caller gets too: an error, never the changed value."""
    wrap = {"tuple": lambda h: (h, 1), "dict": lambda h: {"h": [h]}, "view": lambda h: h}[kind]
    hurt: dict[str, Callable[[Any], Any]] = {
        "tuple": lambda v: v[0].add_(100),
        "dict": lambda v: v["h"][0].mul_(0),
        "view": lambda v: v[0].fill_(7),
    }
    make, bad = FunctionTarget("make", lambda x: wrap(x + 1)), FunctionTarget("bad", lambda v: (hurt[kind](v), None)[1])
    stitches = [(EXT.input("x"), make.input()), (make.output(), EXT.output("y"))]
    with pytest.raises(ChangedInPlaceException, match=r"make\.output\(\)"):
        knot(*stitches, (make.output(), bad.input()))({"x": x23}, {})
    safe = knot(*stitches, (make.output(adapter="clone"), bad.input()))({"x": x23}, {})["y"]
    tensor = {"tuple": lambda v: v[0], "dict": lambda v: v["h"][0], "view": lambda v: v}[kind](safe)
    assert torch.equal(tensor, x23 + 1)


def test_in_place_in_an_object_of_ones_own_is_that_objects_affair() -> None:
    make = FunctionTarget("make", lambda: types.SimpleNamespace(h=torch.zeros(1)))
    bad = FunctionTarget("bad", lambda v: v.h.add_(1))
    stitched = knot((make.output(), EXT.output("y")), (make.output(), bad.input()))
    assert stitched({}, {})["y"].h.item() == 1


def test_inference_tensors_have_no_version() -> None:
    """They pass through functions, adapters and structures; nobody asks for their version."""
    f = FunctionTarget("f", lambda x: {"h": [x * 2]})
    g, h = FunctionTarget("g", lambda v: v["h"][0]), FunctionTarget("h", lambda v: v["h"][0].add_(1))
    stitched = knot(
        (EXT.input("x"), f.input()),
        (f.output(), g.input()),
        (f.output(adapter="clone"), h.input()),
        (g.output(), EXT.output("g")),
        (h.output(), EXT.output("h", reducer="sum")),
        (EXT.output("x"), EXT.output("h", reducer="sum")),
    )
    with torch.inference_mode():
        x = x23.clone()
        assert x.is_inference()
        for given in (x, x23):
            out = stitched({"x": given}, {"x": given})
            assert torch.equal(out["g"], x23 * 2)
            assert torch.allclose(out["h"], x23 * 3 + 1)
    mixed = stitched({"x": x23}, {"x": x})
    assert torch.allclose(mixed["h"], x23 * 3 + 1), "an inference tensor outside inference mode"


def test_autocast_inside_and_around() -> None:
    """A node's own autocast ends with it; the caller's reaches every node, and gradients stay."""
    net = nn.Linear(3, 3)
    seen: list[bool] = []

    def inside(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return net(x)

    def after(x: torch.Tensor) -> torch.Tensor:
        seen.append(torch.is_autocast_enabled("cpu"))
        return net(x.float())

    stitched = flow(inside, after)
    assert stitched({"x": x23}, {})["y"].dtype is torch.float32
    assert seen == [False]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.no_grad():
            assert not stitched({"x": x23}, {})["y"].requires_grad
        y = flow(net)({"x": x23}, {})["y"]
        want = net(x23)
    assert (y.dtype, y.requires_grad) == (want.dtype, want.requires_grad) == (torch.bfloat16, y.requires_grad)
    assert torch.equal(y, want)


# --- modules that are not plain ---


def test_parametrized_before_and_after() -> None:
    """Keys, copies and results follow what torch made of the module."""
    net = nn.Linear(3, 3)
    f = FunctionTarget("f", net)
    stitched = knot((EXT.input("x"), f.input()), (f.output(), EXT.output("y")))

    class Double(nn.Module):
        def forward(self, w: torch.Tensor) -> torch.Tensor:
            return w * 2

    nn.utils.parametrize.register_parametrization(net, "weight", Double())
    w, b = net.parametrizations.weight.original, net.bias  # type: ignore[union-attr]
    want = F.linear(x23, 2 * w, b)
    assert torch.equal(stitched({"x": x23}, {})["y"], want)
    assert torch.equal(copy.deepcopy(stitched)({"x": x23}, {})["y"], want)
    assert "f.parametrizations.weight.original" in stitched.state_dict()
    nn.utils.parametrize.remove_parametrizations(net, "weight", leave_parametrized=False)
    assert sorted(stitched.state_dict()) == ["f.bias", "f.weight"]
    assert type(net) is nn.Linear
    assert torch.equal(stitched({"x": x23}, {})["y"], F.linear(x23, net.weight, b))


def test_lazy_modules_grow_up() -> None:
    """As a function and as an adapter: parameters of the stitched module are those of what they have become."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that lazy modules are new
        one, two = nn.LazyLinear(4), nn.LazyLinear(2)
    f = FunctionTarget("f", one)
    stitched = knot((EXT.input("x"), f.input()), (f.output(adapter=two), EXT.output("y")))
    for _ in range(2):
        y = stitched({"x": x23}, {})["y"]
        assert torch.equal(y, two(one(x23)))
        assert type(one) is type(two) is nn.Linear
    assert sorted(tuple(p.shape) for p in stitched.parameters()) == [(2,), (2, 4), (4,), (4, 3)]


def test_call_of_its_own() -> None:
    """No port; as a function it is called like any callable, and gives what its callers receive."""

    class Twice(nn.Linear):
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return super().__call__(x) * 2

    net = Twice(3, 3)
    with pytest.raises(UnknownPortException, match="Twice has a __call__ of its own"):
        knot((EXT.input("x"), (m := module(net)).input("")), (m.output(""), EXT.output("y")))
    assert torch.equal(flow(net)({"x": x23}, {})["y"], F.linear(x23, net.weight, net.bias) * 2)


def test_guarded_attributes() -> None:
    """Delegating `__getattr__`, refusing `__setattr__`: as functions, in state, in copies, in print."""

    class Wrapper(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("inner"), name)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) + 1

    class Frozen(nn.Linear):
        def __setattr__(self, name: str, value: Any) -> None:
            if self.__dict__.get("sealed"):
                raise RuntimeError(f"sealed: {name}")
            super().__setattr__(name, value)

    frozen = Frozen(3, 3)
    frozen.sealed = True
    wrapper = Wrapper(nn.Linear(3, 3))
    f, g, m = FunctionTarget("f", wrapper), FunctionTarget("g", frozen), module(nn.Sequential(wrapper))
    stitched = knot(
        (EXT.input("x"), f.input()),
        (f.output(), g.input()),
        (g.output(), EXT.output("y")),
        (EXT.input("x"), m.input("")),
        (m.output("0.inner"), EXT.output("inner")),
    )
    before = appearance(frozen)
    y = stitched({"x": x23}, {})["y"]
    assert torch.equal(y, frozen(wrapper(x23)))
    assert torch.equal(copy.deepcopy(stitched)({"x": x23}, {})["y"], y)
    assert appearance(frozen) == before
    assert "Wrapper" in stitched.describe()
    assert len(list(stitched.parameters())) == 4


def test_scripted_submodule() -> None:
    """A ScriptModule is a fine function and a fine whole; what is inside it is refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that TorchScript is on its way out
        script = torch.jit.script(nn.Sequential(nn.Linear(3, 3), nn.Tanh()))
    assert torch.equal(flow(script)({"x": x23}, {})["y"], script(x23))
    m = module(script)
    with pytest.raises(UnknownPortException, match=r"'0\.weight'|'0'"):
        knot((EXT.input("x"), m.input("")), (m.output("0"), EXT.output("y")))


def test_threads_inside_forward() -> None:
    """A node that uses threads of its own, one that runs the graph again in them included."""
    inner = flow(plus_one)

    def fan(x: Any) -> Any:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda i: inner({"x": x + i}, {})["y"], range(8)))

    assert flow(fan)({"x": 10}, {})["y"] == list(range(11, 19))
