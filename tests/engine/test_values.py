"""A stitch carries a value: adapters, reducers and crossings at functions, constants and the external boundary."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.small import EXT, Tiny, constant, knot, module, packed, plus_one, times_ten
from weave import (
    ConstantTarget,
    FunctionTarget,
    InputArgs,
    InputReducer,
    OutputReducer,
    StitchedModuleException,
)


def function(f: Callable[..., Any] = packed, name: str = "f") -> FunctionTarget:
    return FunctionTarget(name, f)


def call_of(*stitches: Callable[[Any], tuple[Any, Any]], inputs: Any = None, outputs: Any = None) -> Any:
    """What a function is called with where these stitches end on it."""
    f = function()
    return knot(*[s(f) for s in stitches], (f.output(), EXT.output("call")))(inputs or {}, outputs or {})["call"]


def recorded(reducer: type, record: list[Any]) -> Any:
    """A reducer that keeps what it was called with."""

    def step(acc: Any, value: Any, original: Any, index: int, every: list[Any]) -> Any:
        record.append((acc, value, original, index, list(every)))
        return value

    return reducer(step)


def said(value: Any) -> Any:
    if isinstance(value, InputArgs):
        return tuple(value.args), value.kwargs
    return [said(v) for v in value] if type(value) in (list, tuple) else value


# --- from the caller ---


@pytest.mark.parametrize(
    ("given", "due"),
    [
        (5, ((5,), {})),
        ([1, 2], ((1, 2), {})),
        ((1, [2]), ((1, [2]), {})),
        ((), ((), {})),
        ("text", (("text",), {})),
        (None, ((None,), {})),
        ({"a": 1}, (({"a": 1},), {})),
        (InputArgs(1, k=2), ((1,), {"k": 2})),
    ],
)
def test_input_overrides_pass_through_from_value(given: Any, due: Any) -> None:
    assert call_of(lambda f: (EXT.input("x"), f.input()), inputs={"x": given}) == due


@pytest.mark.parametrize("given", [5, [1, 2], (1, 2), "text", None])
def test_output_overrides_are_one_value(given: Any) -> None:
    assert call_of(lambda f: (EXT.output("x"), f.input()), outputs={"x": given}) == ((given,), {})


def test_an_input_args_as_output_override_stays_arguments() -> None:
    assert call_of(lambda f: (EXT.output("x"), f.input()), outputs={"x": InputArgs(1, k=2)}) == ((1,), {"k": 2})


def test_keywords_of_any_name_reach_a_function() -> None:
    call = InputArgs(1, self=2, args=3, kwargs=4, function=5, run=6)
    assert call_of(lambda f: (EXT.input("x"), f.input()), inputs={"x": call}) == (
        (1,),
        {"self": 2, "args": 3, "kwargs": 4, "function": 5, "run": 6},
    )


# --- several stitches on one port ---


def test_stitches_fill_one_calls_arguments_in_stitch_order() -> None:
    c = [constant(i) for i in range(3)]
    assert call_of(*[lambda f, c=c[i]: (c, f.input()) for i in (2, 0, 1)])[0] == (2, 0, 1)


def test_the_later_stitch_wins_a_keyword() -> None:
    one, two = constant(InputArgs(1, k="one", a=1)), constant(InputArgs(2, k="two"))
    assert call_of(lambda f: (one, f.input()), lambda f: (two, f.input())) == ((1, 2), {"k": "two", "a": 1})
    assert call_of(lambda f: (two, f.input()), lambda f: (one, f.input())) == ((2, 1), {"k": "one", "a": 1})


@pytest.mark.parametrize("kinds", ["fresh", "one source", "one destination"])
def test_f_of_x_and_x_is_two_stitches(kinds: str) -> None:
    f = function()
    one, there = EXT.input("x"), f.input()
    sources = (one, one) if kinds == "one source" else (EXT.input("x"), EXT.input("x"))
    ends = (there, there) if kinds == "one destination" else (f.input(), f.input())
    stitched = knot(*zip(sources, ends, strict=True), (f.output(), EXT.output("y")))
    assert stitched({"x": 3}, {})["y"] == ((3, 3), {})


def test_the_very_same_two_descriptors_are_one_stitch() -> None:
    f, source = function(), EXT.input("x")
    there = f.input()
    stitched = knot((source, there), (source, there), (f.output(), EXT.output("y")))
    assert stitched({"x": 3}, {})["y"] == ((3,), {})
    assert len(stitched.plan.edges) == 2


def test_one_descriptor_is_source_of_one_stitch_and_destination_of_another() -> None:
    """At a module's port; adapters run on the way in and on the way out."""
    m = module(nn.Identity())
    both = m.output("", adapter=plus_one)
    stitched = knot((EXT.output("o"), both), (both, EXT.output("y")))
    assert stitched({}, {"o": 1})["y"] == 3


# --- reducers ---


def test_an_input_reducer_is_called_in_turn_with_everything() -> None:
    record: list[Any] = []
    one, two, three = constant(1), constant(InputArgs(2, k=3)), constant("x")
    got = call_of(
        lambda f: (one, f.input(reducer=recorded(InputReducer, record))),
        lambda f: (two, f.input(reducer=recorded(InputReducer, record))),
        lambda f: (three, f.input(reducer=recorded(InputReducer, record))),
    )
    every = [((1,), {}), ((2,), {"k": 3}), (("x",), {})]
    nothing = ((), {})
    assert said(record) == [
        [nothing, every[0], nothing, 0, every],
        [every[0], every[1], nothing, 1, every],
        [every[1], every[2], nothing, 2, every],
    ]
    assert got == (("x",), {})


def test_an_output_reducer_is_called_in_turn_with_everything() -> None:
    record: list[Any] = []
    stitches = [(constant(i), EXT.output("y", reducer=recorded(OutputReducer, record))) for i in (5, 6, 7)]
    assert knot(*stitches)({}, {})["y"] == 7
    assert record == [(None, 5, None, 0, [5, 6, 7]), (5, 6, None, 1, [5, 6, 7]), (6, 7, None, 2, [5, 6, 7])]


def test_each_stitch_reduces_by_its_own_reducer() -> None:
    def double(acc: InputArgs, value: InputArgs, *more: Any) -> InputArgs:
        return acc + value + value

    c = [constant(i) for i in range(3)]
    got = call_of(
        lambda f: (c[0], f.input()),
        lambda f: (c[1], f.input(reducer=double)),
        lambda f: (c[2], f.input()),
    )
    assert got == ((0, 1, 1, 2), {})


def test_the_default_at_an_output_takes_the_newest() -> None:
    assert knot((constant(1), EXT.output("y")), (constant(2), EXT.output("y")))({}, {})["y"] == 2


def test_reducers_at_the_boundary_meet_in_stitch_order_not_firing_order() -> None:
    """The second source fires long before the first; the order is the stitches'."""
    late = [function(plus_one, f"late{i}") for i in range(5)]
    early = constant(100)
    stitches = [(EXT.input("x"), late[0].input())]
    stitches += [(a.output(), b.input()) for a, b in itertools.pairwise(late)]
    gather = OutputReducer(lambda acc, value, *more: [*(acc or []), value])
    ends = [(late[-1].output(), EXT.input("i")), (early, EXT.input("i"))]
    ends += [(late[-1].output(), EXT.output("o", reducer=gather)), (early, EXT.output("o", reducer=gather))]
    out = knot(*stitches, *ends)({"x": 0}, {})
    assert out.captured_inputs["i"].args == [5, 100]
    assert out.captured_outputs["o"] == [5, 100]
    out = knot(*stitches, *reversed(ends))({"x": 0}, {})
    assert out.captured_inputs["i"].args == [100, 5]
    assert out.captured_outputs["o"] == [100, 5]


def test_a_reducer_may_be_a_module_and_a_bare_function() -> None:
    class Join(nn.Module):
        def forward(self, acc: InputArgs, value: InputArgs, *more: Any) -> InputArgs:
            return value + acc

    one, two = constant(1), constant(2)
    for reducer in (Join(), InputReducer(Join()), lambda acc, value, *more: value + acc):
        got = call_of(
            lambda f, r=reducer: (one, f.input(reducer=r)),
            lambda f, r=reducer: (two, f.input(reducer=r)),
        )
        assert got == ((2, 1), {})


# --- adapters ---


def test_the_sources_adapter_comes_first_then_the_destinations() -> None:
    c = ConstantTarget("c", 1)
    assert knot((c.output(adapter=plus_one), EXT.output("y", adapter=times_ten)))({}, {})["y"] == 20


@pytest.mark.parametrize("kind", ["input", "output"])
def test_adapters_between_inputs_and_between_outputs_of_the_boundary(kind: str) -> None:
    def add(value: Any) -> Any:
        return InputArgs(*(a + 1 for a in value.args)) if kind == "input" else value + 1

    port = EXT.input if kind == "input" else EXT.output
    stitched = knot((port("a", adapter=add), port("b", adapter=add)))
    out = stitched({"a": 1}, {}) if kind == "input" else stitched({}, {"a": 1})
    assert (out["b"].args[0] if kind == "input" else out["b"]) == 3


def test_a_source_adapter_runs_once_a_descriptor() -> None:
    ran: list[Any] = []

    def adapter(value: Any) -> Any:
        ran.append(value)
        return value + 1

    c = ConstantTarget("c", 1)
    shared = c.output(adapter=adapter)
    f, g = function(name="f"), function(name="g")
    stitched = knot(
        (shared, f.input()),
        (shared, f.input()),
        (shared, EXT.output("y")),
        (c.output(adapter=adapter), g.input()),
        (f.output(), EXT.output("f")),
        (g.output(), EXT.output("g")),
    )
    out = stitched({}, {})
    assert ran == [1, 1], "once for each of the two descriptors"
    assert (out["y"], out["f"], out["g"]) == (2, ((2, 2), {}), ((2,), {}))
    stitched({}, {})
    assert len(ran) == 4


def test_a_destination_adapter_runs_once_a_stitch() -> None:
    ran: list[Any] = []

    def adapter(value: Any) -> Any:
        ran.append(value)
        return value

    f = function()
    there = f.input(adapter=adapter)
    out = knot((constant(1), there), (constant(2), there), (f.output(), EXT.output("y")))({}, {})
    assert ran == [1, 2]
    assert out["y"] == ((1, 2), {})


def test_a_destination_adapter_sees_the_value_not_yet_wrapped() -> None:
    """Crossing to an input comes after it."""
    seen: list[Any] = []
    assert call_of(lambda f: (constant((1, 2)), f.input(adapter=lambda v: seen.append(v) or v[0]))) == ((1,), {})
    assert seen == [(1, 2)]


# --- crossing ---


@pytest.mark.parametrize("value", [1, None, (1, 2), [1, 2], {"a": 1}, "text", ()])
def test_from_an_output_to_an_input_a_value_is_one_positional(value: Any) -> None:
    assert call_of(lambda f: (constant(value), f.input())) == ((value,), {})
    out = knot((constant(value), EXT.input("i")))({}, {})
    assert out.captured_inputs["i"].args == [value]


def test_from_an_output_to_an_input_an_input_args_stays_arguments() -> None:
    assert call_of(lambda f: (constant(InputArgs(1, 2, k=3)), f.input())) == ((1, 2), {"k": 3})
    assert call_of(lambda f: (constant(5), f.input(adapter=lambda v: InputArgs(v, k=v)))) == ((5,), {"k": 5})


def test_from_an_input_to_an_output_an_input_args_stays_what_it_is() -> None:
    call = InputArgs(1, k=2)
    out = knot((EXT.input("x"), EXT.output("y")))({"x": call}, {})
    assert out.captured_outputs["y"] is call
    out = knot((EXT.input("x"), EXT.output("y", adapter=lambda a: a.args[0])))({"x": call}, {})
    assert out.captured_outputs["y"] == 1


def test_a_modules_captured_input_goes_on_as_the_arguments_that_they_are() -> None:
    m, f = module(nn.Sequential(nn.Identity())), function()
    stitched = knot((EXT.input("x"), m.input("")), (m.input("0"), f.input()), (f.output(), EXT.output("y")))
    x = torch.ones(1)
    assert stitched({"x": x}, {})["y"] == ((x,), {})


def test_a_function_that_returns_arguments_spreads_them() -> None:
    f, g = function(lambda x: InputArgs(x, x + 1, k=2), "f"), function(name="g")
    stitched = knot(
        (EXT.input("x"), f.input()),
        (f.output(), g.input()),
        (constant(9), g.input()),
        (g.output(), EXT.output("g")),
        (f.output(), EXT.output("f")),
        (f.output(), EXT.input("f")),
    )
    out = stitched({"x": 5}, {})
    assert out["g"] == ((5, 6, 9), {"k": 2})
    assert said(out.captured_outputs["f"]) == said(out.captured_inputs["f"]) == ((5, 6), {"k": 2})


# --- straight from the caller to the caller ---


def test_from_the_caller_to_the_caller() -> None:
    value = object()
    stitched = knot(
        (EXT.input("a"), EXT.input("b")), (EXT.output("a"), EXT.output("c")), (EXT.output("a"), EXT.output("a"))
    )
    out = stitched({"a": value}, {"a": [value]})
    assert out.captured_inputs["b"].args[0] is value
    assert out.captured_outputs["c"] is out.captured_outputs["a"]
    assert out.captured_outputs["c"][0] is value


# --- wrong types ---


@pytest.mark.parametrize(
    ("stitch", "port"),
    [
        (lambda f: (EXT.input("x", adapter=lambda a: a.args[0]), f.input()), "external.input('x')"),
        (lambda f: (EXT.input("x", adapter=lambda a: None), EXT.output("y")), "external.input('x')"),
        (lambda f: (EXT.input("x"), f.input(adapter=lambda a: a.args[0])), "f.input()"),
        (lambda f: (EXT.input("x"), f.input(adapter=lambda a: None)), "f.input()"),
        (lambda f: (EXT.input("x"), f.input(reducer=lambda acc, v, *more: v.args)), "f.input()"),
        (lambda f: (EXT.input("x"), f.input(reducer=lambda *a: None)), "f.input()"),
        (lambda f: (EXT.input("x"), EXT.input("z", adapter=lambda a: [1])), "external.input('z')"),
        (lambda f: (EXT.input("x"), EXT.input("z", reducer=lambda *a: 3)), "external.input('z')"),
    ],
)
def test_at_an_input_adapters_and_reducers_must_give_arguments(stitch: Callable[[Any], Any], port: str) -> None:
    f = function()
    stitched = knot(stitch(f), (f.output(), EXT.output("call")))
    with pytest.raises(StitchedModuleException, match="InputArgs") as raised:
        stitched({"x": 1}, {})
    assert port in str(raised.value)


def test_a_reducer_at_a_later_place_is_named_too() -> None:
    f = function()
    stitched = knot(
        (constant(1), f.input()), (constant(2), f.input(reducer=lambda *a: "no")), (f.output(), EXT.output("y"))
    )
    with pytest.raises(StitchedModuleException, match=r"reducer of f\.input\(\) returned a str"):
        stitched({}, {})


def test_at_outputs_anything_goes() -> None:
    for value in (None, 1, (1,)):
        reducer = OutputReducer(lambda *a, v=value: v)
        out = knot(
            (constant(5), EXT.output("y", reducer=reducer)),
            (constant(5), EXT.output("z", adapter=lambda _, v=value: v)),
        )
        assert out({}, {}).captured_outputs == {"y": value, "z": value}


# --- constants and functions ---


def test_a_constant_is_read_in_every_run() -> None:
    c = ConstantTarget("c", 1)
    stitched = knot((c.output(), EXT.output("y")))
    assert stitched({}, {})["y"] == 1
    c.value = [2]
    assert stitched({}, {})["y"] is c.value


def test_a_constant_is_the_object_itself() -> None:
    value = {"a": torch.ones(1)}
    assert knot((constant(value), EXT.output("y")))({}, {})["y"] is value


class Awaitable:
    def __await__(self) -> Any:
        yield


@pytest.mark.parametrize(
    "value",
    [int, abs, Tiny, Awaitable, Awaitable(), EXT, StitchedModuleException("x")],
    ids=["class", "builtin", "module class", "awaitable class", "awaitable", "target", "exception"],
)
def test_a_constant_may_be_anything(value: Any) -> None:
    """Classes, functions and exceptions are values; so is something that could be awaited: nobody called for it."""
    f = function()
    stitched = knot((constant(value), EXT.output("y")), (constant(value), f.input()), (f.output(), EXT.output("call")))
    out = stitched({}, {})
    assert out["y"] is value
    assert out["call"] == ((value,), {})


def test_a_function_may_be_a_module_a_class_or_a_method() -> None:
    x = torch.ones(1, 3)
    net = Tiny()
    for f in (net, net.forward, lambda v: net(v)):
        out = knot((EXT.input("x"), (t := function(f)).input()), (t.output(), EXT.output("y")))({"x": x}, {})
        assert torch.equal(out["y"], net(x))
    made = function(dict)
    assert knot((constant(InputArgs(a=1)), made.input()), (made.output(), EXT.output("y")))({}, {})["y"] == {"a": 1}


def test_a_function_without_stitches_to_it_is_called_without_arguments() -> None:
    f = function()
    assert knot((f.output(), EXT.output("y")))({}, {})["y"] == ((), {})


def test_a_function_without_stitches_from_it_still_runs() -> None:
    ran: list[Any] = []
    sink = function(ran.append, "sink")
    out = knot((EXT.input("x"), sink.input()))({"x": 1}, {})
    assert ran == [1]
    assert out.captured_inputs == out.captured_outputs == {}


def test_one_function_in_two_targets_is_two_nodes() -> None:
    f, g = function(plus_one), function(plus_one)
    assert (
        knot((EXT.input("x"), f.input()), (f.output(), g.input()), (g.output(), EXT.output("y")))({"x": 0}, {})["y"]
        == 2
    )


@pytest.mark.parametrize("shape", [(1, 2), ((1,), [2])])
def test_the_callers_arguments_are_not_changed(shape: Any) -> None:
    call = InputArgs(*shape, k={"a": 1})
    f = function(lambda *args, **kwargs: kwargs.pop("k"))
    stitched = knot((EXT.input("x"), f.input()), (EXT.input("x"), EXT.input("y")), (f.output(), EXT.output("y")))
    for _ in range(2):
        out = stitched({"x": call}, {})
        out.captured_inputs["y"].args.append("mine")
        out.captured_inputs["y"].kwargs["mine"] = 1
    assert (call.args, call.kwargs) == (list(shape), {"k": {"a": 1}})


def test_values_are_the_objects_themselves() -> None:
    x = torch.ones(2)
    f = function(lambda v: v)
    stitched = knot((EXT.input("x"), f.input()), (f.output(), EXT.output("y")), (EXT.input("x"), EXT.input("x")))
    out = stitched({"x": x}, {})
    assert out["y"] is x
    assert out["x"].args[0] is x


def test_run_arguments_do_not_reach_functions() -> None:
    """They are for the modules only."""
    f = function()
    assert knot((EXT.input("x"), f.input()), (f.output(), EXT.output("y")))({"x": 1}, {}, 2, k=3)["y"] == ((1,), {})


def test_every_module_gets_the_runs_arguments() -> None:
    class Sees(nn.Module):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return args, kwargs

    m, n, replaced = (module(Sees(), name) for name in ("m", "n", "replaced"))
    stitched = knot(
        (m.output(""), EXT.output("m")),
        (n.output(""), EXT.output("n")),
        (EXT.input("x"), replaced.input("")),
        (replaced.output(""), EXT.output("replaced")),
    )
    # Keywords named as the engine's own parameters are.
    out = stitched({"x": InputArgs(7, k=8)}, {}, 1, 2, self_=3, run=4, args=5, kwargs=6, inputs=7)
    due = ((1, 2), {"self_": 3, "run": 4, "args": 5, "kwargs": 6, "inputs": 7})
    assert out["m"] == out["n"] == due
    assert out["replaced"] == ((7,), {"k": 8})
