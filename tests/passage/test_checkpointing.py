"""Activation checkpointing runs a part again in backward, after the run: right gradients, or a `CheckpointException`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import weave

from .llama import llama, tokens
from .nets import Chain, Does, counting, lin, rows
from .stitching import ADDS, EXT, knot, ports, touched

# torch's own remark on re-entrant checkpointing of something that needs no gradients; said under no_grad too.
pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True:UserWarning")

REENTRANT = pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "non-reentrant"])


def checkpointed(reentrant: bool, **block: nn.Module) -> nn.Module:
    """`end(checkpoint(block, start(x)))`."""
    return Does(
        lambda m, x: m.end(checkpoint(m.block, m.start(x), use_reentrant=reentrant)),
        start=lin(),
        block=block.get("block", Chain()),
        end=lin(),
    )


def plain_grads(net: nn.Module, loss: Callable[[], torch.Tensor]) -> dict[str, torch.Tensor]:
    net.zero_grad()
    loss().backward()
    found = {n: p.grad.clone() for n, p in net.named_parameters() if p.grad is not None}
    net.zero_grad()
    return found


def same(got: dict[str, torch.Tensor], want: dict[str, torch.Tensor]) -> None:
    assert got.keys() == want.keys()
    for name in want:
        assert torch.allclose(got[name], want[name], atol=1e-6), name


WISHES: dict[str, dict[str, Any]] = {
    "input inside": {"new_inputs": ["block.b"]},
    "output inside": {"new_outputs": ["block.b"]},
    "the block's input": {"new_inputs": ["block"]},
    "the block's output": {"new_outputs": ["block"]},
}


def external(wish: dict[str, Any], x: torch.Tensor) -> tuple[dict[str, Any], dict[str, Any]]:
    return (
        {"x": x, **dict.fromkeys(wish.get("new_inputs", []), torch.ones(2, 3))},
        dict.fromkeys(wish.get("new_outputs", []), torch.ones(2, 3)),
    )


@REENTRANT
@pytest.mark.parametrize("wish", WISHES)
def test_an_override_reached_under_checkpointing_raises(wish: str, reentrant: bool) -> None:
    """`checkpoint(m.block, ...)` calls the block under checkpointing, so its own ports are inside too."""
    net, x = checkpointed(reentrant), rows()
    stitched = ports(net, [""], **WISHES[wish])
    with pytest.raises(weave.CheckpointException, match=r"'block.*checkpointing.*no_grad") as raised:
        stitched(*external(WISHES[wish], x))
    assert raised.value.node == "m"
    assert "'block" in raised.value.port
    assert touched(net) == []
    assert torch._C._autograd._top_saved_tensors_default_hooks(False) is None


@REENTRANT
@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_an_override_is_fine_where_no_gradients_are_wanted(mode: Any, wish: str, reentrant: bool) -> None:
    net, x, v = checkpointed(reentrant), rows(), torch.ones(2, 3)
    with mode():
        got = ports(net, [""], **WISHES[wish])(*external(WISHES[wish], x))[""]
        block = {
            "input inside": lambda: net.block.c(torch.tanh(net.block.b(v))),
            "output inside": lambda: net.block.c(torch.tanh(v)),
            "the block's input": lambda: net.block(v),
            "the block's output": lambda: v,
        }[wish]()
        assert torch.equal(got, net.end(block))


@REENTRANT
def test_ports_outside_of_the_checkpointed_part_are_right(reentrant: bool) -> None:
    net, x, v = checkpointed(reentrant), rows(), torch.ones(2, 3)
    stitched = ports(net, ["start", ""], ["end"], new_inputs=["start"], new_outputs=[])

    def loss() -> torch.Tensor:
        got = stitched({"x": x, "start": v}, {})
        return (
            got.captured_outputs["start"].sum()
            + got.captured_inputs["end"].args[0].sum()
            + got.captured_outputs[""].sum()
        )

    def want() -> torch.Tensor:
        s = net.start(v)
        b = net.block(s)
        return s.sum() + b.sum() + net.end(b).sum()

    same(plain_grads(net, loss), plain_grads(net, want))


@pytest.mark.parametrize("early_exit", [True, False])
@pytest.mark.parametrize("port", ["a", "b", "c"])
def test_a_capture_under_the_non_reentrant_kind_is_right(port: str, early_exit: bool) -> None:
    net, x = checkpointed(False), rows()
    ran = counting(net)
    stitched = ports(net, [f"block.{port}"], early_exit=early_exit)
    got = plain_grads(net, lambda: stitched({"x": x}, {})[f"block.{port}"].pow(2).sum())
    assert ("end" in ran) is not early_exit
    same(got, plain_grads(net, lambda: net.block.steps(net.start(x))[port].pow(2).sum()))
    assert torch._C._autograd._top_saved_tensors_default_hooks(False) is None


def test_a_capture_and_the_end_under_the_non_reentrant_kind() -> None:
    net, x = checkpointed(False), rows()
    stitched = ports(net, ["block.a", ""], ["block.c"])

    def loss() -> torch.Tensor:
        got = stitched({"x": x}, {})
        return got["block.a"].sum() + got.captured_inputs["block.c"].args[0].pow(2).sum() + got[""].sum()

    def want() -> torch.Tensor:
        steps = net.block.steps(net.start(x))
        return steps["a"].sum() + torch.tanh(steps["b"]).pow(2).sum() + net.end(steps["c"]).sum()

    same(plain_grads(net, loss), plain_grads(net, want))


def test_an_early_exit_takes_the_saved_tensors_hooks_off_before_the_next_node() -> None:
    """The non-reentrant kind pushes hooks for its part; left in the middle, they must not see what other nodes save."""
    net, x = checkpointed(False), rows()
    m = weave.ModuleTarget("m", net)
    f = weave.FunctionTarget("f", lambda v: torch._C._autograd._top_saved_tensors_default_hooks(False))
    stitched = knot((EXT.input("x"), m.input("")), (m.output("block.a"), f.input()), (f.output(), EXT.output("hooks")))
    assert stitched({"x": x}, {})["hooks"] is None


@pytest.mark.parametrize("kind", ["input", "output"])
@pytest.mark.parametrize("early_exit", [True, False])
def test_a_capture_under_the_reentrant_kind_raises(kind: str, early_exit: bool) -> None:
    net, x = checkpointed(True), rows()
    wish = {f"{kind}s": ["block.b"]} if kind == "input" else {"outputs": ["block.b"]}
    with pytest.raises(weave.CheckpointException, match=r"re-entrant.*use_reentrant=False"):
        ports(net, **wish, early_exit=early_exit)({"x": x}, {})
    assert torch.is_grad_enabled()
    with torch.no_grad():
        got = ports(net, **wish, early_exit=early_exit)({"x": x}, {})["block.b"]
        value = got if kind == "output" else got.args[0]
        steps = net.block.steps(net.start(x))
        assert torch.equal(value, steps["b"] if kind == "output" else torch.tanh(steps["a"]))


@REENTRANT
def test_nested_checkpoints(reentrant: bool) -> None:
    inner = checkpointed(False)
    net, x = Does(lambda m, x: checkpoint(m.inner, x, use_reentrant=reentrant), inner=inner), rows().requires_grad_()
    stitched = ports(net, ["inner.block.a", ""])
    if reentrant:
        with pytest.raises(weave.CheckpointException, match="re-entrant"):
            stitched({"x": x}, {})
        return

    def loss() -> torch.Tensor:
        got = stitched({"x": x}, {})
        return got["inner.block.a"].pow(2).sum() + got[""].sum()

    same(
        plain_grads(net, loss),
        plain_grads(net, lambda: inner.block.steps(inner.start(x))["a"].pow(2).sum() + inner(x).sum()),
    )


def test_checkpoint_sequential() -> None:
    net = Does(
        lambda m, x: checkpoint_sequential(m.parts, 2, x, use_reentrant=False),
        parts=nn.Sequential(lin(), lin(), lin(), lin()),
    )
    x = rows()
    got = plain_grads(net, lambda: ports(net, ["parts.0"])({"x": x}, {})["parts.0"].sum())
    same(got, plain_grads(net, lambda: net.parts[0](x).sum()))
    with pytest.raises(weave.CheckpointException):
        ports(net, [""], new_outputs=["parts.1"])({"x": x}, {"parts.1": x})


@pytest.mark.parametrize("wish", ["input inside", "output inside"])
def test_gradients_turned_on_inside_the_forward(wish: str) -> None:
    """The caller's grad mode says nothing where a forward turns gradients on for a part of its own."""

    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            return checkpoint(m.block, x, use_reentrant=False)

    net, x = Does(body, block=Chain()), rows().requires_grad_()
    stitched = ports(net, [""], **WISHES[wish])
    with torch.no_grad(), pytest.raises(weave.CheckpointException):
        stitched(*external(WISHES[wish], x))


@REENTRANT
def test_a_stitched_run_inside_a_checkpointed_function_is_fine(reentrant: bool) -> None:
    """The recompute runs the graph again, overrides and all."""
    net, x, v = Chain(), rows().requires_grad_(), torch.full((2, 3), 0.1, requires_grad=True)
    m = weave.ModuleTarget("m", net)
    stitched = knot(
        (EXT.input("x"), m.input("")),
        (EXT.output("v"), m.output("a", reducer=ADDS)),
        (m.output("b"), EXT.output("y")),
    )
    runs: list[int] = []

    def part(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        return stitched({"x": x}, {"v": v})["y"]

    checkpoint(part, x, v, use_reentrant=reentrant).pow(2).sum().backward()
    assert len(runs) == 2
    got = [x.grad, v.grad, *(p.grad for p in (net.a.weight, net.b.weight))]
    x2, v2 = x.detach().requires_grad_(), v.detach().requires_grad_()
    want_net = Chain()
    want_net.load_state_dict(net.state_dict())
    want_net.b(torch.tanh(want_net.a(x2) + v2)).pow(2).sum().backward()
    for g, w in zip(got, [x2.grad, v2.grad, want_net.a.weight.grad, want_net.b.weight.grad], strict=True):
        assert torch.allclose(g, w, atol=1e-6)
    assert net.c.weight.grad is None


def test_a_recompute_in_a_backward_inside_the_run_calls_on_its_own_account() -> None:
    """A submodule that takes a gradient in its forward: the recompute in there is no call of this forward."""

    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        y = checkpoint(m.block, x, use_reentrant=False).sin().sum()
        (gradient,) = torch.autograd.grad(y, x)
        return m.block(gradient)

    net, x = Does(body, block=Chain()), rows()
    ran = counting(net)
    m = weave.ModuleTarget("m", net)
    stitched = knot(
        (EXT.input("x"), m.input("")),
        (m.output("block.a", call="all"), EXT.output("all")),
        (m.output("block.a", call=1), EXT.output("1")),
        (m.output(""), EXT.output("y")),
    )
    got = stitched({"x": x}, {})
    assert ran.count("block.a") == 3, "once of them recomputed"
    assert len(got["all"]) == 2
    assert torch.equal(got["all"][0], net.block.steps(x)["a"])
    assert got["1"] is got["all"][1]
    assert torch.equal(got["y"], net(x))


def hf(reentrant: bool) -> nn.Module:
    model = llama().train()
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)  # its name in 5.x
    enable({"use_reentrant": reentrant})
    return model


def off(model: nn.Module) -> None:
    getattr(model, "activation_checkpointing_disable", model.gradient_checkpointing_disable)()


def test_a_real_model_captured_under_the_non_reentrant_kind() -> None:
    model, ids = hf(False), tokens()
    name = "model.layers.1.mlp"
    stitched = ports(model, [name])
    got = plain_grads(model, lambda: stitched({"x": ids}, {})[name].pow(2).sum())
    off(model)
    same(got, plain_grads(model, lambda: stitched({"x": ids}, {})[name].pow(2).sum()))
    assert "model.layers.1.mlp.up_proj.weight" in got


@REENTRANT
def test_a_real_model_overridden_inside_a_layer_raises(reentrant: bool) -> None:
    model, ids = hf(reentrant), tokens()
    model.get_input_embeddings().weight.requires_grad_()
    name = "model.layers.1.mlp"
    stitched = ports(model, [""], new_outputs=[name])
    with pytest.raises(weave.CheckpointException, match="mlp"):
        stitched({"x": ids}, {name: torch.zeros(2, 7, 32)})
    with torch.no_grad():
        got = stitched({"x": ids}, {name: torch.zeros(2, 7, 32)})[""].logits
    off(model)
    assert torch.equal(got, stitched({"x": ids}, {name: torch.zeros(2, 7, 32)})[""].logits)


def test_a_real_models_whole_layers_are_right_or_refused() -> None:
    """Whether a layer's own call is inside or outside of its checkpoint is transformers' affair (it changed in 5.x)."""
    model, ids = hf(False), tokens()
    v = torch.randn(2, 7, 32, requires_grad=True)

    def loss() -> torch.Tensor:
        return ports(model, [""], new_outputs=["model.layers.1"])({"x": ids}, {"model.layers.1": v})[""].logits.sum()

    try:
        got = plain_grads(model, loss)
    except weave.CheckpointException:
        return
    off(model)
    same(got, plain_grads(model, loss))
