"""Captures and overrides by role, in every family, by both drivers; nothing is left behind in the model."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import anyio
import pytest
import torch
from hf_families import HIDDEN, VOCABULARY, Family, HalfMLP, tokens
from torch import nn
from weave_huggingface import HuggingFaceTarget

from weave import ExternalTarget, InputArgs, ModuleTarget, StitchedModule

EXT = ExternalTarget()
Tie = Callable[..., StitchedModule]
EVERY = pytest.mark.parametrize("driver", ["call", "asyncio", "trio"])


def drive(driver: str, stitched: StitchedModule, *args: Any, **kwargs: Any) -> Any:
    """A run: a synchronous call, or `run` on a loop."""
    if driver == "call":
        return stitched(*args, **kwargs)
    return anyio.run(functools.partial(stitched.run, *args, **kwargs), backend=driver)


class Watched:
    """What a submodule was called with and returned, by torch's own hooks."""

    def __init__(self, model: nn.Module, **paths: str) -> None:
        self.model, self.paths = model, paths
        self.inputs: dict[str, tuple[Any, Any]] = {}
        self.outputs: dict[str, Any] = {}

    def run(self, *args: Any, **kwargs: Any) -> Any:
        handles = []
        for name, path in self.paths.items():

            def hook(module: Any, args: Any, kwargs: Any, output: Any, name: str = name) -> None:
                self.inputs[name], self.outputs[name] = (args, kwargs), output

            handles.append(self.model.get_submodule(path).register_forward_hook(hook, with_kwargs=True))
        try:
            return self.model(*args, **kwargs)
        finally:
            for handle in handles:
                handle.remove()


def same(a: Any, b: Any) -> bool:
    """Equal, leaf by leaf, to the bit."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return a is b or a == b or type(a) is type(b)  # a cache, say


def roles_of(family: Family) -> list[str]:
    roles = ["embeddings", "block.1", "block.1.attention", "block.1.mlp", "block.3", "lm_head"]
    return roles + (["final_norm"] if family.final_norm else [])


# --- captures ---


@EVERY
def test_every_role_is_captured_as_it_is(family: Family, tie: Tie, driver: str) -> None:
    t = HuggingFaceTarget("m", family.model)
    roles = roles_of(family)
    stitched = tie(
        *[(t.output(role), EXT.output(role)) for role in roles], *[(t.input(role), EXT.input(role)) for role in roles]
    )
    ids = tokens()
    # Entered and left may be different submodules.
    entered = Watched(family.model, **{r: family.ends(r)[0] for r in roles})  # type: ignore[index]
    left = Watched(family.model, **{r: family.ends(r)[1] for r in roles})  # type: ignore[index]
    entered.run(input_ids=ids, **family.no_cache)
    left.run(input_ids=ids, **family.no_cache)
    out = drive(driver, stitched, {}, {}, input_ids=ids, **family.no_cache)
    for role in roles:
        assert same(out.captured_outputs[role], left.outputs[role]), role
        args, kwargs = entered.inputs[role]
        got = out.captured_inputs[role]
        assert same(got.args, list(args)), role
        assert same(got.kwargs, kwargs), role


def test_hidden_takes_the_hidden_states_out_of_everything(family: Family, tie: Tie) -> None:
    t = HuggingFaceTarget("m", family.model)
    roles = [r for r in roles_of(family) if r != "embeddings"]
    stitched = tie(
        *[(t.output(role, adapter="hf.hidden"), EXT.output(role)) for role in roles],
        *[(t.input(role, adapter="hf.hidden"), EXT.input(role)) for role in roles],
        (t.output("", adapter="hf.logits"), EXT.output("")),
    )
    out = stitched({}, {}, tokens())
    for role in roles:
        width = VOCABULARY if role == "lm_head" else HIDDEN
        assert out.captured_outputs[role].shape == (2, 7, width), role
        call = out.captured_inputs[role]
        assert (len(call.args), call.kwargs) == (1, {}), role
        assert call.args[0].shape == (2, 7, HIDDEN), role
    # They are those that they are said to be.
    states = family.model(tokens(), output_hidden_states=True).hidden_states
    assert torch.equal(out.captured_inputs["block.1"].args[0], states[1])
    assert torch.equal(out.captured_outputs["block.1"], states[2])
    assert torch.equal(out[""], family.model(tokens()).logits)


def test_attention_and_mlp_stand_between_norm_and_residual(family: Family, tie: Tie) -> None:
    """A module with the weights of the MLP's matrices computes what the role gives, residual and norms left out."""
    t = HuggingFaceTarget("m", family.model)
    stitched = tie((t.input("block.2.mlp"), EXT.input("x")), (t.output("block.2.mlp"), EXT.output("y")))
    out = stitched({}, {}, tokens())
    block = family.model.get_submodule(f"{family.blocks}.2")
    x = out.captured_inputs["x"].args[0]
    if family.name == "bert":
        expected = block.output.dense(block.intermediate.intermediate_act_fn(block.intermediate.dense(x)))
    else:
        expected = block.mlp(x)
    assert torch.equal(out["y"], expected)


# --- overrides ---


@EVERY
def test_overriding_with_the_models_own_values_changes_nothing(family: Family, tie: Tie, driver: str) -> None:
    """One model read, another of the same weights overridden: every role's output, as it is."""
    reader, writer = HuggingFaceTarget("a", family.model), HuggingFaceTarget("b", family.make(seed=5))
    ids = tokens()
    plain = family.model(ids, **family.no_cache).logits
    assert not torch.equal(writer.module(ids, **family.no_cache).logits, plain)
    for role in roles_of(family):
        own = HuggingFaceTarget("b", family.make())
        stitched = tie((reader.output(role), own.output(role)), (own.output(""), EXT.output("y")))
        out = drive(driver, stitched, {}, {}, input_ids=ids, **family.no_cache)
        assert torch.equal(out["y"].logits, plain), role
    # The last block's output decides everything behind it, whatever the weights in front were.
    head = family.make()
    for parameter in head.get_submodule(f"{family.blocks}.0").parameters():
        parameter.data.zero_()
    own = HuggingFaceTarget("b", head)
    stitched = tie((reader.output("block.3"), own.output("block.3")), (own.output(""), EXT.output("y")))
    out = drive(driver, stitched, {}, {}, input_ids=ids, **family.no_cache)
    assert torch.equal(out["y"].logits, plain)


@pytest.mark.parametrize("role", ["block.2", "block.2.attention", "block.2.mlp"])
def test_hidden_states_are_put_where_they_belong(family: Family, tie: Tie, role: str) -> None:
    """`reducer="hf.hidden"`: tensors into whatever the submodule is called with, or returned; the rest stays."""
    plain = family.model(tokens(), **family.no_cache).logits
    masked = torch.ones(2, 7, dtype=torch.long)
    masked[0, 4:] = 0  # the mask must reach the block, whether it is passed by position or by name
    with_mask = family.model(tokens(), attention_mask=masked, **family.no_cache).logits
    assert not torch.equal(plain, with_mask)

    def sent(port: str, mask: torch.Tensor) -> torch.Tensor:
        t, u = HuggingFaceTarget("t", family.model), HuggingFaceTarget("u", family.model)
        source = getattr(t, port)(role, adapter="hf.hidden")
        stitched = tie((source, getattr(u, port)(role, reducer="hf.hidden")), (u.output(""), EXT.output("y")))
        return stitched({}, {}, input_ids=tokens(), attention_mask=mask, **family.no_cache)["y"].logits

    for port in ("input", "output"):
        assert torch.equal(sent(port, torch.ones_like(masked)), plain), port
        assert torch.equal(sent(port, masked), with_mask), port


def test_other_hidden_states_make_a_difference(family: Family, tie: Tie) -> None:
    t = HuggingFaceTarget("t", family.model)
    for role in ("block.2", "block.2.attention", "block.2.mlp"):
        for port, kind in ((t.input, "input"), (t.output, "output")):
            stitched = tie((getattr(EXT, kind)("x"), port(role, reducer="hf.hidden")), (t.output(""), EXT.output("y")))
            given: Any = (
                ({"x": torch.zeros(2, 7, HIDDEN)}, {}) if kind == "input" else ({}, {"x": torch.zeros(2, 7, HIDDEN)})
            )
            assert not torch.equal(stitched(*given, tokens())["y"].logits, family.model(tokens()).logits), (role, kind)


# --- an MLP swapped ---


@EVERY
def test_a_swapped_mlp_changes_only_what_it_should(family: Family, tie: Tie, driver: str) -> None:
    torch.manual_seed(3)
    student = HalfMLP()
    t, swapped, mlp = (
        HuggingFaceTarget("t", family.model),
        HuggingFaceTarget("swapped", family.model),
        ModuleTarget("mlp", student),
    )
    seen = ["embeddings", "block.0", "block.1.attention", "block.1", "block.2.attention", "block.2", "block.3"]
    stitched = tie(
        (t.input("block.2.mlp"), mlp.input("")),
        (mlp.output(""), swapped.output("block.2.mlp")),
        (mlp.output(""), EXT.output("student")),
        (t.input("block.2.mlp"), EXT.input("x")),
        (swapped.output(""), EXT.output("y")),
        *[(swapped.output(role), EXT.output(role)) for role in seen],
    )
    ids = tokens()
    left = Watched(family.model, **{r: family.ends(r)[1] for r in seen})  # type: ignore[index]
    plain = left.run(ids, **family.no_cache).logits
    out = drive(driver, stitched, {}, {}, input_ids=ids, **family.no_cache)
    for role in seen[:5]:
        assert same(out[role], left.outputs[role]), f"{role} is in front of the swapped MLP"
    for role in seen[5:]:
        assert not same(out[role], left.outputs[role]), f"{role} is behind it"
    assert torch.equal(out["student"], student(out.captured_inputs["x"].args[0]))
    # To the bit what it is when the module itself is exchanged.
    assert torch.equal(out["y"].logits, surgery(family, student)(ids, **family.no_cache).logits)
    assert not torch.equal(out["y"].logits, plain)
    assert torch.equal(family.model(ids, **family.no_cache).logits, plain), "the model is as it was"


def surgery(family: Family, student: nn.Module) -> nn.Module:
    """A copy of the model with the student in the place of block 2's MLP, by hand."""
    model = family.make()
    block = model.get_submodule(f"{family.blocks}.2")
    if family.name == "bert":
        block.intermediate = student
        block.output.dense = nn.Identity()  # type: ignore[union-attr]
    else:
        block.mlp = student
    return model


@EVERY
def test_gradients_reach_the_student_and_the_model(family: Family, tie: Tie, driver: str) -> None:
    torch.manual_seed(3)
    student, model = HalfMLP(), family.make()
    t, swapped, mlp = HuggingFaceTarget("t", model), HuggingFaceTarget("u", model), ModuleTarget("mlp", student)
    stitched = tie(
        (t.input("block.2.mlp"), mlp.input("")),
        (mlp.output(""), swapped.output("block.2.mlp")),
        (swapped.output("", adapter="hf.logits"), EXT.output("y")),
    )
    out = drive(driver, stitched, {}, {}, tokens(), **family.no_cache)
    out["y"].square().sum().backward()
    got = {name: p.grad for name, p in [*student.named_parameters(), *model.named_parameters()]}

    other = HalfMLP()
    other.load_state_dict(student.state_dict())
    by_hand = surgery(family, other)
    by_hand(tokens(), **family.no_cache).logits.square().sum().backward()
    shared = {name: p.grad for name, p in by_hand.named_parameters() if name in got and p.grad is not None}
    wanted = {**shared, **{name: p.grad for name, p in other.named_parameters()}}
    assert len(wanted) > 20
    # Front layers are computed in two forwards, so their gradients are added up in another order. (And a bias of BERT's
    # keys has none: rounding is all there is to it, hence one scale for all.)
    scale = max(float(gradient.abs().max()) for gradient in wanted.values())
    for name, gradient in wanted.items():
        assert got[name] is not None, name
        torch.testing.assert_close(got[name], gradient, rtol=1e-3, atol=1e-5 * scale, msg=name)
    assert all(wanted[name].any() for name, _ in other.named_parameters())
    swapped_out = model.get_submodule(f"{family.blocks}.2.{family.mlp[1]}")
    assert all(p.grad is None or not p.grad.any() for p in swapped_out.parameters()), "it had no part in it"


def test_the_stitched_module_owns_the_model(family: Family, tie: Tie) -> None:
    t = HuggingFaceTarget("m", family.model)
    stitched = tie((t.output("block.0"), EXT.output("x")))
    assert {id(p) for p in stitched.parameters()} == {id(p) for p in family.model.parameters()}


# --- the model afterwards ---


def state(model: nn.Module) -> list[tuple[str, type, list[str], int]]:
    return [
        (name, type(m), sorted(m.__dict__), len(m._forward_hooks) + len(m._forward_pre_hooks))
        for name, m in model.named_modules()
    ]


def test_generation_is_untouched(family: Family, tie: Tie) -> None:
    if not hasattr(family.model, "generate") or family.name == "bert":
        pytest.skip("an encoder doesn't generate")
    model: Any = family.make()

    def generate() -> torch.Tensor:
        return model.generate(
            tokens(), attention_mask=torch.ones(2, 7, dtype=torch.long), max_new_tokens=5, do_sample=False
        )

    before = generate()
    was = state(model)
    t, u = HuggingFaceTarget("t", model), HuggingFaceTarget("u", model)
    mlp = ModuleTarget("mlp", HalfMLP())
    stitched = tie(
        (t.input("block.2.mlp"), mlp.input("")),
        (mlp.output(""), u.output("block.2.mlp")),
        (u.output("block.3"), EXT.output("x")),
    )
    stitched({}, {}, tokens())
    with pytest.raises(TypeError):
        stitched({}, {}, tokens(), nonsense=object(), input_ids=tokens())
    assert state(model) == was
    assert torch.equal(generate(), before)
    assert state(model) == was


def test_a_stitched_model_reads_a_cache_that_is_passed(family: Family, tie: Tie) -> None:
    """A step of generation: the prompt is in the cache, one token comes in."""
    if family.name == "bert":
        pytest.skip("an encoder has no cache")
    model: Any = family.model
    ids = tokens()
    whole = model(ids, **family.no_cache).logits[:, -1]
    held = model(ids[:, :-1], use_cache=True)
    key = next(k for k in held if k in ("past_key_values", "cache"))
    t = HuggingFaceTarget("t", model)
    stitched = tie((t.output("", adapter="hf.logits"), EXT.output("y")), (t.output("block.1"), EXT.output("x")))
    out = stitched({}, {}, ids[:, -1:], **{key: held[key]})
    torch.testing.assert_close(out["y"][:, -1], whole)


def test_arguments_through_a_stitch(family: Family, tie: Tie) -> None:
    t = HuggingFaceTarget("t", family.model)
    stitched = tie((EXT.input("call"), t.input("")), (t.output("lm_head"), EXT.output("y")))
    mask = torch.ones(2, 7, dtype=torch.long)
    out = stitched({"call": InputArgs(input_ids=tokens(), attention_mask=mask)}, {})
    assert torch.equal(out["y"], stitched({"call": InputArgs(tokens(), attention_mask=mask)}, {})["y"])
