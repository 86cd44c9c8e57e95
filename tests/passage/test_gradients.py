"""Gradients flow through every stitch, and are those of the same computation written out by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import weave

from .nets import Again, Chain, lin, rows
from .stitching import ADDS, EXT, keeps_kwargs, knot, ports


def grads(*modules: nn.Module) -> list[torch.Tensor | None]:
    got = [None if p.grad is None else p.grad.clone() for m in modules for p in m.parameters()]
    for m in modules:
        m.zero_grad()
    return got


def same(got: list[torch.Tensor | None], want: list[torch.Tensor | None]) -> None:
    assert any(w is not None and w.any() for w in want)
    for g, w in zip(got, want, strict=True):
        assert (g is None) == (w is None)
        if g is not None and w is not None:
            assert torch.allclose(g, w, atol=1e-6)


@pytest.mark.parametrize("early_exit", [True, False])
@pytest.mark.parametrize("into", ["input", "output"])
def test_across_two_modules_in_the_middle(into: str, early_exit: bool) -> None:
    first, second, x = Chain(), Chain(), rows()
    a, b = weave.ModuleTarget("a", first), weave.ModuleTarget("b", second)
    stitched = knot(
        (EXT.input("x"), a.input("")),
        (EXT.input("x"), b.input("")),
        (a.output("b"), getattr(b, into)("b")),
        (b.output("c"), EXT.output("y")),
        early_exit=early_exit,
    )
    stitched({"x": x}, {})["y"].pow(2).sum().backward()
    got = grads(first, second)
    h = first.steps(x)["b"]
    second.c(torch.tanh(second.b(h) if into == "input" else h)).pow(2).sum().backward()
    same(got, grads(first, second))


def test_through_functions_reducers_and_adapters() -> None:
    teacher, student, x = Chain(), Chain(), rows()
    scale = nn.Parameter(torch.tensor(2.0))
    t, s = weave.ModuleTarget("t", teacher), weave.ModuleTarget("s", student)
    f = weave.FunctionTarget("f", lambda a, b: a * b)
    c = weave.ConstantTarget("scale", scale)
    stitched = knot(
        (EXT.input("x"), t.input("")),
        (EXT.input("x"), s.input("")),
        (t.output("a", adapter=lambda v: v * 3), f.input()),
        (c.output(), f.input()),
        (f.output(), s.output("b", adapter=lambda v: v + 1, reducer=ADDS)),
        (t.output("b"), s.input("c", reducer=weave.InputReducer(keeps_kwargs))),
        (s.output("c"), EXT.output("y")),
        (s.output("b"), EXT.output("b")),
    )
    got = stitched({"x": x}, {})
    (got["y"].sum() + got["b"].pow(2).sum()).backward()
    found, scale_grad = grads(teacher, student), scale.grad.clone()
    scale.grad = None
    steps = teacher.steps(x)
    b = student.b(torch.tanh(student.a(x))) + steps["a"] * 3 * scale + 1
    (student.c(steps["b"]).sum() + b.pow(2).sum()).backward()
    same(found, grads(teacher, student))
    assert torch.allclose(scale_grad, scale.grad)


def test_every_overridden_call_adds_to_the_gradient() -> None:
    net, x, v = Again(3), rows(), torch.full((2, 3), 0.1, requires_grad=True)
    m = weave.ModuleTarget("m", net)
    stitched = knot(
        (EXT.input("x"), m.input("")),
        (EXT.output("v"), m.output("layer", reducer=ADDS)),
        (m.output(""), EXT.output("y")),
    )
    stitched({"x": x}, {"v": v})["y"].sum().backward()
    got = [v.grad.clone(), *grads(net)]
    v.grad, y = None, x
    for _ in range(3):
        y = torch.tanh(net.step(y) + v)
    y.sum().backward()
    same(got, [v.grad, *grads(net)])


def test_a_skipped_submodule_gets_none() -> None:
    net, x, v = Chain(), rows(), torch.ones(2, 3, requires_grad=True)
    ports(net, [""], new_outputs=["b"])({"x": x}, {"b": v})[""].sum().backward()
    assert net.a.weight.grad is None
    assert net.b.weight.grad is None
    assert net.c.weight.grad is not None
    assert v.grad is not None


def test_into_the_callers_own_tensors() -> None:
    net, x = Chain(), rows().requires_grad_()
    got = ports(net, ["b"], ["c"])({"x": x}, {})
    (gradient,) = torch.autograd.grad(got.captured_outputs["b"].sum() + got.captured_inputs["c"].args[0].sum(), x)
    steps = net.steps(x)
    (want,) = torch.autograd.grad(steps["b"].sum() + torch.tanh(steps["b"]).sum(), x)
    assert torch.allclose(gradient, want)


def test_a_detached_stitch_stops_them() -> None:
    teacher, student, x = Chain(), lin(), rows()
    t, s = weave.ModuleTarget("t", teacher), weave.ModuleTarget("s", student)
    stitched = knot(
        (EXT.input("x"), t.input("")),
        (t.input("b", adapter="detach"), s.input("")),
        (s.output(""), EXT.output("y")),
    )
    stitched({"x": x}, {})["y"].sum().backward()
    assert teacher.a.weight.grad is None
    assert student.weight.grad is not None


def test_a_student_trained_inside_the_run() -> None:
    """A node that steps an optimizer; the teacher's forward runs once, without gradients of its own."""
    teacher, student, x = Chain().requires_grad_(False), lin(), rows()
    optimizer, losses = torch.optim.SGD(student.parameters(), lr=0.1), []

    def step(got: torch.Tensor, due: torch.Tensor) -> float:
        loss = (got - due).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    t, s, f = weave.ModuleTarget("t", teacher), weave.ModuleTarget("s", student), weave.FunctionTarget("step", step)
    stitched = knot(
        (EXT.input("x"), t.input("")),
        (t.input("b"), s.input("")),
        (s.output(""), f.input()),
        (t.output("b"), f.input()),
        (f.output(), EXT.output("loss")),
    )
    for _ in range(30):
        losses.append(stitched({"x": x}, {})["loss"])
    assert losses[-1] < losses[0] / 10
    assert all(p.grad is None for p in teacher.parameters())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_none_where_none_are_wanted(mode: Any) -> None:
    net, x, v = Chain(), rows(), torch.ones(2, 3)
    with mode():
        got = ports(net, ["a", "c"], new_inputs=["b"])({"x": x, "b": v}, {}).captured_outputs
    assert not got["a"].requires_grad
    assert not got["c"].requires_grad


def test_twice_differentiable() -> None:
    net, x = Chain(), rows().requires_grad_()
    y = ports(net, ["b"])({"x": x}, {})["b"].pow(2).sum()
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    (w_first,) = torch.autograd.grad(net.steps(x)["b"].pow(2).sum(), x, create_graph=True)
    (w_second,) = torch.autograd.grad(w_first.sum(), x)
    assert torch.allclose(second, w_second)
