"""The user's own hooks run inside a port: a capture is what the caller passes and receives, an override is hooked too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as nn_module

import weave

from .nets import Chain, Does, lin, rows
from .stitching import ADDS, EXT, knot, ports

Put = Callable[[nn.Module], Any]

# Each adds 1 to what `b` gets, or to what it gives.
BEFORE: dict[str, Put] = {
    "pre": lambda b: b.register_forward_pre_hook(lambda m, args: (args[0] + 1,)),
    "pre, not a tuple": lambda b: b.register_forward_pre_hook(lambda m, args: args[0] + 1),
    "pre, prepended": lambda b: b.register_forward_pre_hook(lambda m, args: (args[0] + 1,), prepend=True),
    "pre, with kwargs": lambda b: b.register_forward_pre_hook(lambda m, a, k: ((a[0] + 1,), k), with_kwargs=True),
    "pre, global": lambda b: nn_module.register_module_forward_pre_hook(
        lambda m, args: (args[0] + 1,) if m is b else None
    ),
}
BEHIND: dict[str, Put] = {
    "hook": lambda b: b.register_forward_hook(lambda m, args, out: out + 1),
    "hook, prepended": lambda b: b.register_forward_hook(lambda m, args, out: out + 1, prepend=True),
    "hook, with kwargs": lambda b: b.register_forward_hook(lambda m, a, k, out: out + 1, with_kwargs=True),
    "hook, always": lambda b: b.register_forward_hook(lambda m, a, out: out + 1, always_call=True),
    "hook, global": lambda b: nn_module.register_module_forward_hook(lambda m, a, out: out + 1 if m is b else None),
    "hook, global, always": lambda b: nn_module.register_module_forward_hook(
        lambda m, a, out: out + 1 if m is b else None, always_call=True
    ),
}


@pytest.fixture(params=["before the knot", "after the knot"])
def hooked(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Make a graph with a hook put on before or after it is knotted; take the hook off at the end."""
    handles: list[Any] = []

    def make(net: Chain, put: Put, knotted: Callable[[], Any]) -> Any:
        if request.param == "before the knot":
            handles.append(put(net.b))
            return knotted()
        stitched = knotted()
        handles.append(put(net.b))
        return stitched

    yield make
    for handle in handles:
        handle.remove()


def b_of(net: Chain, x: torch.Tensor) -> torch.Tensor:
    return nn.functional.linear(x, net.b.weight, net.b.bias)


def c_of(net: Chain, b: torch.Tensor) -> torch.Tensor:
    return nn.functional.linear(torch.tanh(b), net.c.weight, net.c.bias)


@pytest.mark.parametrize("kind", BEFORE)
def test_hooks_that_return_values_before_the_forward(kind: str, hooked: Callable[..., Any]) -> None:
    net, x = Chain(), rows()
    h, v = torch.tanh(net.steps(x)["a"]), torch.ones(2, 3)
    stitched = hooked(net, BEFORE[kind], lambda: ports(net, ["b", ""], ["b"]))
    got = stitched({"x": x}, {})
    assert torch.equal(got.captured_inputs["b"].args[0], h), "the capture is what the caller passes"
    assert torch.equal(got.captured_outputs["b"], b_of(net, h + 1))
    replaced = ports(net, ["b", ""], ["b"], new_inputs=["b"])({"x": x, "b": v}, {})
    assert torch.equal(replaced.captured_inputs["b"].args[0], v), "a capture sees the override"
    assert torch.equal(replaced.captured_outputs["b"], b_of(net, v + 1)), "the hook runs on an overridden input"


@pytest.mark.parametrize("kind", BEHIND)
def test_hooks_that_return_values_behind_the_forward(kind: str, hooked: Callable[..., Any]) -> None:
    net, x = Chain(), rows()
    h, v = torch.tanh(net.steps(x)["a"]), torch.ones(2, 3)
    stitched = hooked(net, BEHIND[kind], lambda: ports(net, ["b", ""]))
    b = b_of(net, h) + 1
    got = stitched({"x": x}, {}).captured_outputs
    assert torch.equal(got["b"], b), "the capture is what the caller receives"
    assert torch.equal(got[""], c_of(net, b))
    replaced = ports(net, ["b", ""], new_outputs=["b"])({"x": x}, {"b": v}).captured_outputs
    assert replaced["b"] is v, "the caller gets the override itself: a skipped submodule's hooks do not run"
    assert torch.equal(replaced[""], c_of(net, v))
    m = weave.ModuleTarget("m", net)
    feed, end = (EXT.input("x"), m.input("")), (m.output("b"), EXT.output("b"))
    added = knot(feed, (EXT.output("v"), m.output("b", reducer=ADDS)), end)({"x": x}, {"v": v})
    assert torch.equal(added["b"], b + v), "an original is what the caller would have received"


def test_keywords_that_a_hook_adds_are_not_the_callers() -> None:
    net = Does(lambda m, x: m.part(x, scale=2), part=Does(lambda m, x, *, scale, more=0: x * scale + more))
    net.part.register_forward_pre_hook(lambda m, a, k: (a, {**k, "more": 7}), with_kwargs=True)
    x = rows()
    got = ports(net, ["part"], ["part"])({"x": x}, {})
    assert got.captured_inputs["part"].kwargs == {"scale": 2}
    assert torch.equal(got.captured_outputs["part"], x * 2 + 7)


def test_hooks_of_a_skipped_submodule_and_of_what_is_in_it_do_not_run() -> None:
    net, seen = nn.Sequential(lin(), nn.Sequential(lin(), lin()), lin()), []
    for name, module in net.named_modules():
        module.register_forward_pre_hook(lambda m, a, name=name: seen.append(name))
    ports(net, [""], new_outputs=["1"])({"x": rows()}, {"1": rows()})
    assert seen == ["", "0", "2"]


def test_backward_hooks_keep_firing_once() -> None:
    net, x, seen = Chain(), rows(), []
    for name in ("a", "b", "c"):
        net.get_submodule(name).register_full_backward_hook(
            lambda m, gi, go, name=name: seen.append((name, go[0].clone(), gi[0] is not None))
        )
        net.get_submodule(name).register_full_backward_pre_hook(lambda m, go, name=name: seen.append((name, "pre")))
    x = x.requires_grad_()
    ports(net, ["b", ""], ["c"])({"x": x}, {})[""].sum().backward()
    assert [s[0] for s in seen] == ["c", "c", "b", "b", "a", "a"]
    assert torch.equal(seen[1][1], torch.ones(2, 3))
    assert seen[5][2], "the gradient of the input"


def test_backward_hooks_on_an_overridden_input_see_the_overrides_gradient() -> None:
    net, x, seen = Chain(), rows(), []
    net.b.register_full_backward_hook(lambda m, gi, go: seen.append(gi[0].clone()))
    v = torch.zeros(2, 3, requires_grad=True)
    ports(net, [""], new_inputs=["b"])({"x": x, "b": v}, {})[""].sum().backward()
    assert len(seen) == 1
    assert torch.equal(seen[0], v.grad)


def test_a_captured_output_is_what_backward_hooks_wrap() -> None:
    """With a full backward hook the caller gets another tensor than forward gave: gradients through it fire the hook."""
    net, x, seen = Chain(), rows().requires_grad_(), []
    net.b.register_full_backward_hook(lambda m, gi, go: seen.append(go[0].clone()))
    ports(net, ["b"])({"x": x}, {})["b"].sum().backward()
    assert len(seen) == 1
    assert torch.equal(seen[0], torch.ones(2, 3))


def test_a_hook_put_on_during_the_run_and_one_taken_off() -> None:
    net, x = Chain(), rows()
    handle = net.b.register_forward_hook(lambda m, a, out: out + 1)

    def swap(m: nn.Module, args: Any) -> None:
        handle.remove()
        m.register_forward_hook(lambda m, a, out: out * 2)

    net.b.register_forward_pre_hook(swap)
    h = torch.tanh(net.steps(x)["a"])
    assert torch.equal(ports(net, ["b"])({"x": x}, {})["b"], b_of(net, h) * 2)
    assert len(net.b._forward_hooks) == 1


def test_a_hook_that_raises_is_the_nodes_own_exception() -> None:
    net = Chain()
    net.b.register_forward_hook(lambda m, a, out: (_ for _ in ()).throw(ZeroDivisionError("mine")))
    with pytest.raises(ZeroDivisionError, match="mine") as raised:
        ports(net, ["b", ""])({"x": rows()}, {})
    assert "'m'" in "".join(raised.value.__notes__)
