"""The built-in reducers, by name, at inputs and outputs, on structures, with gradients."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import nn

from tests.small import EXT, constant, knot, module, packed
from weave import FunctionTarget, InputArgs, ModuleTarget, StitchedModuleException
from weave.builtin import registry_of
from weave.plugins import PluginSet, ReducerDef

OWN = registry_of(PluginSet())
BOTH = ("first", "last", "sum", "mean", "max", "stack", "add_original")
INPUT_ONLY = ("concat", "keep_kwargs")


def at_output(name: str, *values: Any) -> Any:
    """Several stitches on one of the caller's outputs."""
    return knot(*[(constant(v), EXT.output("y", reducer=name)) for v in values])({}, {})["y"]


def at_input(name: str, *calls: Any) -> Any:
    """Several stitches on a function: what it was called with."""
    f = FunctionTarget("f", packed)
    stitched = knot(*[(constant(c), f.input(reducer=name)) for c in calls], (f.output(), EXT.output("y")))
    return stitched({}, {})["y"]


def t(*numbers: float) -> torch.Tensor:
    return torch.tensor([float(n) for n in numbers])


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return type(value)(plain(v) for v in value) if isinstance(value, list | tuple) else value


def test_these_are_the_names() -> None:
    for name in BOTH:
        for kind in ("input", "output"):
            assert isinstance(OWN.reducer(name, kind), ReducerDef)
    for name in INPUT_ONLY:
        assert OWN.reducer(name, "input").kind == "input"
    originals = [name for name in BOTH if OWN.reducer(name, "output").requires_original_output]
    assert originals == ["add_original"]


ARITHMETIC = [
    ("first", t(1, 5)),
    ("last", t(3, 4)),
    ("sum", t(6, 12)),
    ("mean", t(2, 4)),
    ("max", t(3, 5)),
    ("stack", torch.stack([t(1, 5), t(2, 3), t(3, 4)])),
]
THREE = (t(1, 5), t(2, 3), t(3, 4))


@pytest.mark.parametrize(("name", "due"), ARITHMETIC, ids=[name for name, _ in ARITHMETIC])
def test_three_tensors(name: str, due: torch.Tensor) -> None:
    assert torch.equal(at_output(name, *THREE), due)
    args, kwargs = at_input(name, *THREE)
    assert torch.equal(args[0], due)
    assert (len(args), kwargs) == (1, {})


@pytest.mark.parametrize(("name", "due"), ARITHMETIC, ids=[name for name, _ in ARITHMETIC])
def test_three_calls_with_keywords(name: str, due: torch.Tensor) -> None:
    args, kwargs = at_input(name, *[InputArgs(x, mask=x) for x in THREE])
    assert torch.equal(args[0], due)
    assert list(kwargs) == ["mask"]
    assert torch.equal(kwargs["mask"], due)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "stack", "first", "last"])
def test_one_value(name: str) -> None:
    due = t(1, 2).unsqueeze(0) if name == "stack" else t(1, 2)
    assert torch.equal(at_output(name, t(1, 2)), due)


STRUCTURES = [
    lambda x: (x, [x]),
    lambda x: {"a": x, "b": (x, x)},
    lambda x: OrderedDict(z=x, a=[x]),
    lambda x: [],
    lambda x: ((), x),
    lambda x: {"a": (), "b": [], "c": {}, "d": x},
]


@pytest.mark.parametrize("structure", range(len(STRUCTURES)))
@pytest.mark.parametrize(("name", "due"), ARITHMETIC, ids=[name for name, _ in ARITHMETIC])
def test_structures_are_reduced_leaf_by_leaf(name: str, due: torch.Tensor, structure: int) -> None:
    """Empty containers have no leaves, and are equal."""
    shape: Any = STRUCTURES[structure]
    got = at_output(name, *map(shape, THREE))
    assert type(got) is type(shape(due))
    assert plain(got) == plain(shape(due))


@pytest.mark.parametrize(
    ("name", "due"), [("sum", 9), ("mean", 3.0), ("max", 4), ("first", 2), ("last", 4)], ids=lambda v: str(v)
)
def test_numbers(name: str, due: Any) -> None:
    assert at_output(name, 2, 3, 4) == due


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([t(1)], (t(1),)),
        ([t(1)], [t(1), t(2)]),
        ({"a": t(1)}, {"b": t(1)}),
        (t(1), [t(1)]),
        (t(1, 2, 3), t(1, 2)),
        (None, None),
        ("a", 1),
    ],
)
@pytest.mark.parametrize("name", ["sum", "mean", "max", "stack"])
def test_what_can_not_be_combined_is_refused_naming_the_reducer(name: str, one: Any, other: Any) -> None:
    for reduce in (at_output, at_input):
        with pytest.raises((StitchedModuleException, RuntimeError)) as raised:
            reduce(name, one, other)
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            assert "size" in str(raised.value), "torch's own words on tensors of other shapes"
        else:
            assert f'"{name}"' in str(raised.value)
            assert isinstance(raised.value, StitchedModuleException)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "stack"])
def test_calls_of_different_shape_are_refused(name: str) -> None:
    for other in (InputArgs(t(1), t(1)), InputArgs(k=t(1)), InputArgs(t(1), k=t(1))):
        with pytest.raises(StitchedModuleException, match=f'"{name}".*different structure'):
            at_input(name, InputArgs(t(1)), other)


GRADIENTS = [
    ("sum", ([1, 1], [1, 1])),
    ("mean", ([0.5, 0.5], [0.5, 0.5])),
    ("max", ([0, 1], [1, 0])),
    ("stack", ([1, 1], [1, 1])),
    ("first", ([1, 1], None)),
    ("last", (None, [1, 1])),
]


@pytest.mark.parametrize(("name", "due"), GRADIENTS, ids=[name for name, _ in GRADIENTS])
@pytest.mark.parametrize("reduce", [at_output, lambda *a: at_input(*a)[0][0]], ids=["output", "input"])
def test_gradients_flow_to_each_stitch(reduce: Any, name: str, due: Any) -> None:
    values = [nn.Parameter(t(1, 4)), nn.Parameter(t(2, 3))]
    reduce(name, *values).sum().backward()
    assert [v.grad if v.grad is None else v.grad.tolist() for v in values] == list(due)


def test_reducing_changes_no_value() -> None:
    values = [t(1, 2), t(3, 4)]
    for name in BOTH[:-1]:
        at_output(name, *values)
    assert [v.tolist() for v in values] == [[1, 2], [3, 4]]


# --- arguments ---


def test_concat_is_the_default_by_name() -> None:
    assert at_input("concat", InputArgs(1, k=1), 2, InputArgs(3, k=4, m=5)) == ((1, 2, 3), {"k": 4, "m": 5})


def test_concat_is_for_inputs() -> None:
    with pytest.raises(LookupError, match="concat"):
        at_output("concat", 1, 2)


class Inner(nn.Module):
    """Records how it was called; gives back its first argument."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

    def forward(self, x: Any, *more: Any, mask: Any = None) -> Any:
        self.calls.append(((x, *more), mask))
        return x


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Any) -> Any:
        return self.inner(x, 7, mask="kept") + 1


def called(*stitches: Any, x: Any = 1) -> tuple[Any, list[Any]]:
    m = module(Outer())
    stitched = knot((EXT.input("x"), m.input("")), *[s(m) for s in stitches], (m.output(""), EXT.output("y")))
    return stitched({"x": x}, {})["y"], m.module.inner.calls


def test_keep_kwargs_replaces_positionals_and_keeps_the_calls_keywords() -> None:
    y, calls = called(
        lambda m: (constant(5), m.input("inner", reducer="keep_kwargs")),
        lambda m: (constant(6), m.input("inner", reducer="keep_kwargs")),
    )
    assert calls == [((5, 6), "kept")]
    assert y == 6


def test_keep_kwargs_lets_a_new_keyword_win() -> None:
    _, calls = called(lambda m: (constant(InputArgs(5, mask="new")), m.input("inner", reducer="keep_kwargs")))
    assert calls == [((5,), "new")]


def test_keep_kwargs_of_a_function_has_nothing_to_keep() -> None:
    assert at_input("keep_kwargs", 1, InputArgs(2, k=3)) == ((1, 2), {"k": 3})


def test_add_original_at_an_output_adds_to_what_the_submodule_gave() -> None:
    y, calls = called(lambda m: (constant(10), m.output("inner", reducer="add_original")))
    assert calls == [((1, 7), "kept")], "it ran"
    assert y == 1 + 10 + 1
    y, _ = called(
        lambda m: (constant(10), m.output("inner", reducer="add_original")),
        lambda m: (constant(100), m.output("inner", reducer="add_original")),
    )
    assert y == 1 + 10 + 100 + 1


def test_add_original_at_an_input_adds_to_what_was_passed() -> None:
    addend = InputArgs(10, 0, mask=" twice")
    y, calls = called(lambda m: (constant(addend), m.input("inner", reducer="add_original")))
    assert calls == [((11, 7), "kept twice")]
    assert y == 12


def test_add_original_lets_gradients_through_to_both() -> None:
    net = nn.Sequential(nn.Linear(2, 2))
    m, new = ModuleTarget("m", net), nn.Parameter(torch.zeros(1, 2))
    stitched = knot(
        (EXT.input("x"), m.input("")),
        (constant(new), m.output("0", reducer="add_original")),
        (m.output(""), EXT.output("y")),
    )
    x = torch.ones(1, 2)
    y = stitched({"x": x}, {})["y"]
    assert torch.equal(y, net[0](x))
    y.sum().backward()
    assert new.grad.tolist() == [[1, 1]]
    assert net[0].bias.grad.tolist() == [1, 1]


def test_add_original_of_another_structure_is_refused() -> None:
    with pytest.raises(StitchedModuleException, match=r'"add_original".*different structure'):
        called(lambda m: (constant([1]), m.output("inner", reducer="add_original")))
    with pytest.raises(StitchedModuleException, match=r'"add_original".*different structure'):
        at_input("add_original", 1)


# --- with others on one port ---


def test_each_stitch_reduces_by_its_own_name() -> None:
    """Steps in turn: what "first" kept is what the default then appends to."""
    f = FunctionTarget("f", packed)
    c = [constant(i) for i in range(3)]
    stitched = knot(
        (c[0], f.input(reducer="first")),
        (c[1], f.input(reducer="first")),
        (c[2], f.input()),
        (f.output(), EXT.output("y")),
    )
    assert stitched({}, {})["y"] == ((0, 2), {})
