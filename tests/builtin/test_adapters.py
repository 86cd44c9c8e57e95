"""The built-in adapters, by name, at sources and destinations, on structures."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.small import EXT, constant, knot, packed
from weave import FunctionTarget, InputArgs
from weave.builtin import registry_of
from weave.plugins import AdapterDef, PluginSet

OWN = registry_of(PluginSet())
Pair = namedtuple("Pair", "left right")


def at_output(name: str, value: Any) -> Any:
    """At an output, as a source and as a destination."""
    one = knot((constant(value), EXT.output("y", adapter=name)))({}, {})["y"]
    two = knot((EXT.output("x", adapter=name), EXT.output("y")))({}, {"x": value})["y"]
    assert type(one) is type(two)
    return one


def at_input(name: str, call: InputArgs) -> InputArgs:
    """At an input: a source's; a destination's is the same."""
    one = knot((EXT.input("x", adapter=name), EXT.input("y")))({"x": call}, {}).captured_inputs["y"]
    two = knot((EXT.input("x"), EXT.input("y", adapter=name)))({"x": call}, {}).captured_inputs["y"]
    assert len(one.args) == len(two.args)
    assert list(one.kwargs) == list(two.kwargs)
    return one


TENSORS: dict[str, Callable[[torch.Tensor], Any]] = {
    "tensor": lambda t: t,
    "list": lambda t: [t, 1, "s", None],
    "tuple": lambda t: (1, t),
    "dict": lambda t: {"a": t, "b": [t]},
    "OrderedDict": lambda t: OrderedDict(a=t),
    "named tuple": lambda t: Pair((t,), 2),
    "torch's own tuple": lambda t: torch.return_types.max((t, t)),
}


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [t for v in inside for t in tensors(v)]


def test_these_are_the_names() -> None:
    for name in ("clone", "detach", "cpu", "float32", "args", "first"):
        for kind in ("input", "output"):
            assert isinstance(OWN.adapter(name, kind), AdapterDef)


# --- those that map tensors ---


@pytest.mark.parametrize("shape", TENSORS)
@pytest.mark.parametrize("name", ["clone", "detach", "cpu", "float32"])
def test_structures_keep_their_type_and_what_is_no_tensor(name: str, shape: str) -> None:
    value = TENSORS[shape](torch.ones(2))
    got = at_output(name, value)
    assert type(got) is type(value)
    assert len(tensors(got)) == len(tensors(value))
    assert all(torch.equal(a, b) for a, b in zip(tensors(got), tensors(value), strict=True))
    if shape == "list":
        assert got[1:] == [1, "s", None]
    call = at_input(name, InputArgs(value, 3, k=value, n=None))
    assert (call.args[1], call.kwargs["n"]) == (3, None)
    assert type(call.args[0]) is type(call.kwargs["k"]) is type(value)
    assert torch.equal(tensors(call.args[0])[0], torch.ones(2))


@pytest.mark.parametrize("name", ["clone", "detach", "cpu", "float32"])
@pytest.mark.parametrize("value", [3, "text", None, (), [], {}, {1, 2}])
def test_without_tensors_nothing_changes(name: str, value: Any) -> None:
    assert at_output(name, value) == value


@pytest.mark.parametrize("shape", TENSORS)
def test_clone_is_a_copy_with_gradients(shape: str) -> None:
    x = torch.ones(2, requires_grad=True)
    value = TENSORS[shape](x)
    got = at_output("clone", value)
    for tensor in tensors(got):
        assert tensor.data_ptr() != x.data_ptr()
        assert tensor.requires_grad
    sum(t.sum() for t in tensors(got)).backward()
    assert x.grad.tolist() == [float(len(tensors(value)))] * 2


@pytest.mark.parametrize("shape", TENSORS)
def test_detach_cuts_gradients_and_shares_data(shape: str) -> None:
    x = torch.ones(2, requires_grad=True)
    for tensor in tensors(at_output("detach", TENSORS[shape](x))):
        assert not tensor.requires_grad
        assert tensor.data_ptr() == x.data_ptr()


def test_float32_leaves_whole_numbers_alone() -> None:
    kinds = (torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.complex64)
    got = at_output("float32", [torch.ones(1, dtype=kind) for kind in kinds])
    assert [t.dtype for t in got] == [torch.float32] * 3 + [torch.int64, torch.bool, torch.complex64]


def test_float32_and_cpu_let_gradients_through() -> None:
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    at_output("float32", at_output("cpu", x)).sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_the_value_itself_is_not_changed() -> None:
    value = {"a": [torch.ones(1, dtype=torch.float64)]}
    at_output("float32", value)
    assert value["a"][0].dtype is torch.float64


# --- those that map arguments ---


def call_of(value: Any, **adapter: Any) -> Any:
    f = FunctionTarget("f", packed)
    return knot((constant(value), f.input(**adapter)), (f.output(), EXT.output("y")))({}, {})["y"]


@pytest.mark.parametrize(
    ("value", "due"),
    [
        ((1, 2), ((1, 2), {})),
        ([1, [2]], ((1, [2]), {})),
        (5, ((5,), {})),
        ("text", (("text",), {})),
        (Pair(1, 2), ((Pair(1, 2),), {})),
        (InputArgs(1, k=2), ((1,), {"k": 2})),
    ],
)
def test_args_spreads_what_from_value_spreads(value: Any, due: Any) -> None:
    """The remedy where a module returns a tuple and the next takes its items as arguments."""
    assert call_of(value, adapter="args") == due


def test_without_it_a_tuple_stays_one_argument() -> None:
    assert call_of((1, 2)) == (((1, 2),), {})


@pytest.mark.parametrize(
    ("value", "due"),
    [((1, 2), 1), ([[1], 2], [1]), ({"a": 1, "b": 2}, 1), (OrderedDict(z=3, a=1), 3), (Pair(1, 2), 1), ("text", "t")],
)
def test_first_of_an_output(value: Any, due: Any) -> None:
    assert at_output("first", value) == due
    assert call_of(value, adapter="first") == ((due,), {})


def test_first_of_a_tensor_is_its_first_row() -> None:
    assert at_output("first", torch.tensor([[1, 2], [3, 4]])).tolist() == [1, 2]


def test_first_of_arguments_is_the_first_positional() -> None:
    call = at_input("first", InputArgs(1, 2, k=3))
    assert (call.args, call.kwargs) == ([1], {})
