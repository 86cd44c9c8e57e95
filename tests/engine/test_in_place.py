"""A consumer that changes a delivered tensor in place while others still need it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.small import EXT, constant, knot, plus_one
from weave import ChangedInPlaceException, FunctionTarget, InputArgs, ModuleTarget, StitchedModuleException


def changes(x: torch.Tensor, *more: Any) -> torch.Tensor:
    return x.add_(100)


def looks(x: torch.Tensor, *more: Any) -> torch.Tensor:
    return x.clone()


def makes(x: Any) -> torch.Tensor:
    return x + 1


def function(f: Callable[..., Any], name: str) -> FunctionTarget:
    return FunctionTarget(name, f)


class Graph:
    """`make` gives a tensor to `bad`, which changes it, and to `good`; `bad` fires first."""

    def __init__(self, *, shared: bool, **adapters: Any) -> None:
        self.make, self.bad, self.good = function(makes, "make"), function(changes, "bad"), function(looks, "good")
        out = self.make.output()
        ports = (out, out) if shared else (self.make.output(**adapters), self.make.output())
        self.stitches = [
            (EXT.input("x"), self.make.input()),
            (ports[0], self.bad.input()),
            (self.bad.output(adapter=lambda _: 0), self.good.input(adapter=lambda _: InputArgs())),
            (ports[1], self.good.input()),
            (self.good.output(), EXT.output("y")),
        ]

    def run(self) -> Any:
        return knot(*self.stitches)({"x": torch.zeros(2)}, {})["y"]


@pytest.mark.parametrize("shared", [True, False], ids=["one descriptor", "two descriptors"])
def test_a_consumer_that_changes_what_another_still_needs(shared: bool) -> None:
    with pytest.raises(ChangedInPlaceException) as raised:
        Graph(shared=shared).run()
    error = raised.value
    assert (error.node, error.port) == ("make", "make.output()")
    assert "bad" in error.suspects
    for words in ("make.output()", "'bad'", 'adapter="clone"'):
        assert words in str(error)
    assert isinstance(error, StitchedModuleException)
    assert isinstance(error, RuntimeError)


def test_the_remedy_works() -> None:
    assert Graph(shared=False, adapter="clone").run().tolist() == [1, 1]


def test_the_last_consumer_may_change_what_it_got() -> None:
    """Nobody needs it any more: that is what in-place activations in a chain of functions do."""
    make, good, bad = function(makes, "make"), function(looks, "good"), function(changes, "bad")
    out = make.output()
    stitched = knot(
        (EXT.input("x"), make.input()),
        (out, good.input()),
        (good.output(), bad.input(adapter=lambda _: InputArgs())),
        (out, bad.input()),
        (good.output(), EXT.output("good")),
        (bad.output(), EXT.output("bad")),
    )
    out_values = stitched({"x": torch.zeros(1)}, {})
    assert (out_values["good"].item(), out_values["bad"].item()) == (1, 101)


def test_a_chain_may_work_in_place() -> None:
    steps = [function(changes, f"f{i}") for i in range(4)]
    stitched = knot(
        (EXT.input("x"), steps[0].input()),
        *[(a.output(), b.input()) for a, b in itertools.pairwise(steps)],
        (steps[-1].output(), EXT.output("y")),
    )
    assert stitched({"x": torch.zeros(1)}, {})["y"].item() == 400


def test_the_caller_is_a_consumer_who_still_needs_it() -> None:
    make, bad = function(makes, "make"), function(changes, "bad")
    stitched = knot((EXT.input("x"), make.input()), (make.output(), bad.input()), (make.output(), EXT.output("y")))
    with pytest.raises(ChangedInPlaceException, match=r"make\.output\(\).*'bad'"):
        stitched({"x": torch.zeros(1)}, {})


def test_a_tensor_of_the_callers_that_goes_to_several() -> None:
    bad, good = function(changes, "bad"), function(looks, "good")
    stitched = knot(
        (EXT.input("x"), bad.input()),
        (bad.output(adapter=lambda _: InputArgs()), good.input()),
        (EXT.input("x"), good.input()),
        (good.output(), EXT.output("y")),
    )
    with pytest.raises(ChangedInPlaceException, match=r"external\.input\('x'\).*'bad'"):
        stitched({"x": torch.zeros(1)}, {})


def test_through_a_function_that_gives_back_what_it_got() -> None:
    """The alias is another node's output, and the tensor is the same."""
    make, same = function(makes, "make"), function(lambda x: x, "same")
    bad, good = function(changes, "bad"), function(looks, "good")
    stitched = knot(
        (EXT.input("x"), make.input()),
        (make.output(), same.input()),
        (same.output(), bad.input()),
        (bad.output(adapter=lambda _: InputArgs()), good.input()),
        (make.output(), good.input()),
        (good.output(), EXT.output("y")),
    )
    with pytest.raises(ChangedInPlaceException) as raised:
        stitched({"x": torch.zeros(1)}, {})
    assert raised.value.node == "make"
    assert "bad" in raised.value.suspects


@pytest.mark.parametrize(
    "alias",
    [
        lambda x: x.view(-1),
        lambda x: x[:1],
        lambda x: x.detach(),
        lambda x: torch.as_strided(x, (1,), (1,)),
    ],
    ids=["view", "slice", "detach", "as_strided"],
)
def test_a_change_through_a_view(alias: Callable[[torch.Tensor], torch.Tensor]) -> None:
    make, bad, good = (
        function(makes, "make"),
        function(lambda x: int(alias(x).mul_(0).sum()), "bad"),
        function(looks, "good"),
    )
    out = make.output()
    stitched = knot(
        (EXT.input("x"), make.input()),
        (out, bad.input()),
        (bad.output(adapter=lambda _: InputArgs()), good.input()),
        (out, good.input()),
        (good.output(), EXT.output("y")),
    )
    with pytest.raises(ChangedInPlaceException, match="'bad'"):
        stitched({"x": torch.zeros(2)}, {})


HOLDERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "list": (lambda t: [1, t], lambda v: v[1]),
    "tuple": (lambda t: (t, None), lambda v: v[0]),
    "dict": (lambda t: {"h": t}, lambda v: v["h"]),
    "nested": (lambda t: {"h": [(0, {"x": t})]}, lambda v: v["h"][0][1]["x"]),
    "named tuple": (lambda t: torch.return_types.max((t, t.clone())), lambda v: v[0]),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_tensor_in_a_container(holder: str) -> None:
    wrap, pick = HOLDERS[holder]
    make = function(lambda x: wrap(x + 1), "make")
    bad, good = function(lambda v: (pick(v).zero_(), 0)[1], "bad"), function(lambda v: pick(v).clone(), "good")

    def stitched(**options: Any) -> Any:
        return knot(
            (EXT.input("x"), make.input()),
            (make.output(**options), bad.input()),
            (bad.output(adapter=lambda _: InputArgs()), good.input()),
            (make.output(), good.input()),
            (good.output(), EXT.output("y")),
        )({"x": torch.zeros(2)}, {})["y"]

    with pytest.raises(ChangedInPlaceException, match=r"make\.output\(\)"):
        stitched()
    assert stitched(adapter="clone").tolist() == [1, 1]


def test_a_tensor_among_arguments() -> None:
    make = function(lambda x: InputArgs(0, k=x + 1), "make")
    bad, good = function(lambda _, k: (k.zero_(), 0)[1], "bad"), function(lambda _, k: k, "good")
    stitched = knot(
        (EXT.input("x"), make.input()),
        (make.output(), bad.input()),
        (bad.output(adapter=lambda _: InputArgs()), good.input()),
        (make.output(), good.input()),
        (good.output(), EXT.output("y")),
    )
    with pytest.raises(ChangedInPlaceException, match="'bad'"):
        stitched({"x": torch.zeros(1)}, {})


def test_a_tensor_inside_another_object_is_the_objects_affair() -> None:
    """A cache that grows as it is used is no mistake."""

    class Cache:
        keys = torch.zeros(1)

    make, grow, look = (
        function(lambda: Cache(), "make"),
        function(lambda c: c.keys.add_(1), "grow"),
        function(lambda c, _: c.keys.item(), "look"),
    )
    stitched = knot(
        (make.output(), grow.input()),
        (make.output(), look.input()),
        (grow.output(), look.input()),
        (look.output(), EXT.output("y")),
    )
    assert stitched({}, {})["y"] == 1


def test_inference_tensors_have_no_counter() -> None:
    with torch.inference_mode():
        assert Graph(shared=True).run().tolist() == [101, 101]


def test_a_change_that_nobody_waits_for_is_no_mistake() -> None:
    make, good, bad = function(makes, "make"), function(looks, "good"), function(changes, "bad")
    stitched = knot(
        (EXT.input("x"), make.input()),
        (make.output(), bad.input()),
        (bad.output(), good.input()),
        (good.output(), EXT.output("y")),
    )
    assert stitched({"x": torch.zeros(1)}, {})["y"].item() == 101


def test_a_change_between_runs_is_no_mistake() -> None:
    value = torch.zeros(1)
    f, g = function(looks, "f"), function(looks, "g")
    source = constant(value)
    stitched = knot(
        (source, f.input()), (source, g.input()), (f.output(), EXT.output("f")), (g.output(), EXT.output("g"))
    )
    assert stitched({}, {})["f"].item() == 0
    value.add_(1)
    assert stitched({}, {})["g"].item() == 1


def test_a_parameter_that_is_trained_inside_the_run() -> None:
    """A training node changes its own student's parameters; they are on nobody's way."""
    student = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)

    def train(x: torch.Tensor) -> float:
        loss = student(x).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    t = function(train, "train")
    stitched = knot((EXT.input("x"), t.input()), (t.output(), EXT.output("loss")))
    losses = [stitched({"x": torch.ones(1, 2)}, {})["loss"] for _ in range(5)]
    assert losses[-1] < losses[0]


# --- adapters and reducers are consumers too ---


def test_an_adapter_at_the_source_that_changes_the_value() -> None:
    make, good = function(makes, "make"), function(looks, "good")
    stitched = knot(
        (EXT.input("x"), make.input()),
        (make.output(), good.input()),
        (make.output(adapter=changes), EXT.output("z")),
        (good.output(), EXT.output("y")),
    )
    with pytest.raises(ChangedInPlaceException, match=r"make\.output\(\)"):
        stitched({"x": torch.zeros(1)}, {})


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["kept first", "changed first"])
@pytest.mark.parametrize("kind", ["input", "output"])
def test_an_adapter_at_the_boundary_that_changes_what_the_caller_gave(kind: str, order: Any) -> None:
    def changed(value: Any) -> Any:
        (value.args[0] if kind == "input" else value).add_(100)
        return value

    keeps, gets, port = function(looks, "keeps"), function(looks, "gets"), EXT.input if kind == "input" else EXT.output
    starts = [(port("x"), keeps.input()), (port("x", adapter=changed), gets.input())]
    stitched = knot(
        *[starts[i] for i in order], (keeps.output(), EXT.output("keeps")), (gets.output(), EXT.output("gets"))
    )
    value = {"x": torch.zeros(1)}
    with pytest.raises(ChangedInPlaceException, match=rf"external\.{kind}\('x'\)"):
        stitched(*((value, {}) if kind == "input" else ({}, value)))


def test_an_adapter_of_a_consumer_that_changes_the_value() -> None:
    make, bad, good = function(makes, "make"), function(lambda x: 0, "bad"), function(looks, "good")
    stitched = knot(
        (EXT.input("x"), make.input()),
        (make.output(), bad.input(adapter=changes)),
        (bad.output(adapter=lambda _: InputArgs()), good.input()),
        (make.output(), good.input()),
        (good.output(), EXT.output("y")),
    )
    with pytest.raises(ChangedInPlaceException, match="'bad'"):
        stitched({"x": torch.zeros(1)}, {})


def test_a_reducer_of_a_consumer_that_changes_the_value() -> None:
    def add_into(acc: InputArgs, value: InputArgs, *more: Any) -> InputArgs:
        return InputArgs(acc.args[0].add_(value.args[0])) if acc.args else value

    make, bad, good = function(makes, "make"), function(lambda x: 0, "bad"), function(looks, "good")
    stitched = knot(
        (EXT.input("x"), make.input()),
        (make.output(), bad.input(reducer=add_into)),
        (constant(torch.ones(1)), bad.input(reducer=add_into)),
        (bad.output(adapter=lambda _: InputArgs()), good.input()),
        (make.output(), good.input()),
        (good.output(), EXT.output("y")),
    )
    with pytest.raises(ChangedInPlaceException, match="'bad'"):
        stitched({"x": torch.zeros(1)}, {})


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["kept first", "changed first"])
@pytest.mark.parametrize("shared", [True, False], ids=["one descriptor", "two descriptors"])
def test_an_adapter_at_the_boundary_that_changes_what_the_caller_also_gets(order: Any, shared: bool) -> None:
    make = function(makes, "make")
    out = make.output()
    other = out if shared else make.output()
    ends = [(out, EXT.output("kept")), (other, EXT.output("changed", adapter=changes))]
    stitched = knot((EXT.input("x"), make.input()), *[ends[i] for i in order])
    with pytest.raises(ChangedInPlaceException, match=r"make\.output\(\)"):
        stitched({"x": torch.zeros(1)}, {})


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0)], ids=["kept first", "changed first"])
def test_a_reducer_at_the_boundary_that_changes_what_the_caller_also_gets(order: Any) -> None:
    """`acc += value` is how one writes a sum; on tensors it works in place."""

    def add_into(acc: Any, value: Any, *more: Any) -> Any:
        if acc is None:
            return value
        acc += value
        return acc

    make, other = function(makes, "make"), function(plus_one, "other")
    ends = [
        (make.output(), EXT.output("kept")),
        (make.output(), EXT.output("sum", reducer=add_into)),
        (other.output(), EXT.output("sum", reducer=add_into)),
    ]
    stitched = knot((EXT.input("x"), make.input()), (EXT.input("x"), other.input()), *[ends[i] for i in order])
    with pytest.raises(ChangedInPlaceException, match=r"make\.output\(\)"):
        stitched({"x": torch.zeros(1)}, {})


def test_a_sum_in_place_of_what_nobody_else_gets_is_no_mistake() -> None:
    def add_into(acc: Any, value: Any, *more: Any) -> Any:
        return value if acc is None else acc.add_(value)

    make, other = function(makes, "make"), function(plus_one, "other")
    stitched = knot(
        (EXT.input("x"), make.input()),
        (EXT.input("x"), other.input()),
        (make.output(), EXT.output("sum", reducer=add_into)),
        (other.output(), EXT.output("sum", reducer=add_into)),
    )
    assert stitched({"x": torch.zeros(1)}, {})["sum"].item() == 2


def test_the_runs_arguments_while_a_module_is_still_to_be_called() -> None:
    """What a module was called with is the caller's own tensor, and the next module is called with it too."""
    first, second = ModuleTarget("first", nn.Identity()), ModuleTarget("second", nn.Identity())
    bad = function(lambda x: x.add_(100), "bad")
    stitched = knot(
        (first.input(""), bad.input()),
        (bad.output(adapter=lambda _: 0), EXT.output("x")),
        (
            bad.output(adapter=lambda _: InputArgs()),
            second.input("", reducer=lambda acc, new, original, *more: original),
        ),
        (second.output(""), EXT.output("y")),
    )
    with pytest.raises(ChangedInPlaceException, match=r"the run's arguments.*'bad'"):
        stitched({}, {}, torch.zeros(1))
