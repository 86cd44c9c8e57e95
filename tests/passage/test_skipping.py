"""A submodule whose output is overridden does not run, unless a reducer on that port requires its original output."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import weave

from .nets import Again, Chain, Does, counting, lin, rows
from .stitching import ADDS, EXT, knot, ports


@pytest.mark.parametrize("early_exit", [True, False])
def test_a_skipped_forward_is_not_run_nor_what_is_in_it(early_exit: bool) -> None:
    net = nn.Sequential(lin(), nn.Sequential(lin(), nn.Sequential(lin())), lin())
    ran, v = counting(net), torch.ones(2, 3)
    got = ports(net, [""], new_outputs=["1"], early_exit=early_exit)({"x": rows()}, {"1": v})
    assert torch.equal(got[""], net[2](v))
    assert ran[:3] == ["", "0", "2"]


def test_a_skipped_forward_may_be_one_that_cant_run() -> None:
    class Raises(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise AssertionError("this forward must not run")

    net, v = nn.Sequential(lin(), Raises(), lin()), torch.ones(2, 3)
    assert torch.equal(ports(net, [""], new_outputs=["1"])({"x": rows()}, {"1": v})[""], net[2](v))


def test_a_skipped_submodules_input_is_what_the_caller_passes() -> None:
    net, x = nn.Sequential(lin(), lin(), lin()), rows()
    ran = counting(net[1])
    got = ports(net, [""], ["1"], new_outputs=["1"])({"x": x}, {"1": torch.ones(2, 3)})
    assert torch.equal(got.captured_inputs["1"].args[0], net[0](x))
    assert ran == []


def test_the_whole_module_can_be_skipped() -> None:
    net = Chain()
    m, ran = weave.ModuleTarget("m", net), counting(net)
    stitched = knot((EXT.output("v"), m.output("")), (m.output(""), EXT.output("y")), (m.input(""), EXT.input("in")))
    got = stitched({}, {"v": 5}, "anything", at="all")
    assert got["y"] == 5
    assert (got["in"].args, got["in"].kwargs) == (["anything"], {"at": "all"})
    assert ran == []


def test_a_required_original_makes_it_run_once_a_call() -> None:
    net, x, v = Again(3), rows(), torch.full((2, 3), 0.1)
    ran = counting(net.layer)
    m = weave.ModuleTarget("m", net)
    got = knot(
        (EXT.input("x"), m.input("")),
        (EXT.output("v"), m.output("layer", reducer=ADDS)),
        (m.output(""), EXT.output("y")),
    )({"x": x}, {"v": v})
    want = x
    for _ in range(3):
        want = torch.tanh(net.step(want) + v)
    assert torch.equal(got["y"], want)
    assert len(ran) == 3


def test_by_call_some_skipped_some_run() -> None:
    net, x, v = Again(4), rows(), torch.full((2, 3), 0.1)
    ran = counting(net.layer)
    m = weave.ModuleTarget("m", net)
    got = knot(
        (EXT.input("x"), m.input("")),
        (EXT.output("v"), m.output("layer", call=1)),
        (EXT.output("v"), m.output("layer", call=2, reducer=ADDS)),
        (m.output("layer", call="all"), EXT.output("all")),
    )({"x": x}, {"v": v})
    assert len(ran) == 3
    assert got["all"][1] is v
    assert torch.equal(got["all"][2], net.step(torch.tanh(v)) + v)


def test_skipping_one_block_and_capturing_in_another() -> None:
    net, x, v = nn.Sequential(Chain(), Chain(), Chain()), rows(), torch.ones(2, 3)
    ran = counting(net)
    got = ports(net, ["0.b", "2.b"], new_outputs=["1"])({"x": x}, {"1": v}).captured_outputs
    assert [name for name in ran if name.startswith("1")] == []
    assert torch.equal(got["0.b"], net[0].steps(x)["b"])
    assert torch.equal(got["2.b"], net[2].steps(v)["b"])


INSIDE = [
    ("output", {"outputs": ["1.a"]}),
    ("input", {"inputs": ["1.a"]}),
    ("output", {"new_outputs": ["1.a"]}),
    ("input", {"new_inputs": ["1.a"]}),
    ("input", {"new_inputs": ["1"]}),
]


@pytest.mark.parametrize(("kind", "wish"), INSIDE)
def test_what_a_skipped_submodule_could_never_do_is_refused_at_the_knot(kind: str, wish: dict[str, Any]) -> None:
    net, name = nn.Sequential(lin(), Chain()), next(iter(wish.values()))[0]
    options = {"outputs": [""], **wish, "new_outputs": ["1", *wish.get("new_outputs", [])]}
    with pytest.raises(weave.ContradictionException, match=rf"m\.{kind}\('{name}'\).*m\.output\('1'\)") as raised:
        ports(net, **options)
    assert raised.value.node == "m"


def test_where_some_calls_run_the_inside_can_be_stitched() -> None:
    net = Does(lambda m, x: m.block(m.block(x)), block=Chain())
    x, v = rows(), torch.ones(2, 3)
    m = weave.ModuleTarget("m", net)
    feed = (EXT.input("x"), m.input(""))
    got = knot(feed, (EXT.output("v"), m.output("block", call=0)), (m.output("block.b"), EXT.output("b")))(
        {"x": x}, {"v": v}
    )
    assert torch.equal(got["b"], net.block.steps(v)["b"])
    got = knot(feed, (EXT.output("v"), m.output("block", reducer=ADDS)), (m.output("block.b"), EXT.output("b")))(
        {"x": x}, {"v": v}
    )
    assert torch.equal(got["b"], net.block.steps(x)["b"])


def test_the_reference_of_a_replace_one_score() -> None:
    """A student in place of one teacher block: the teacher's own block does not run, the others do once."""
    teacher, student, x = nn.Sequential(Chain(), Chain(), Chain()), Chain(), rows()
    ran = counting(teacher)
    t, s = weave.ModuleTarget("teacher", teacher), weave.ModuleTarget("student", student)
    first = weave.ModuleTarget("front", teacher[0])
    stitched = knot(
        (EXT.input("x"), t.input("")),
        (EXT.input("x"), first.input("")),
        (first.output(""), s.input("")),
        (s.output(""), t.output("1")),
        (t.output(""), EXT.output("y")),
    )
    got = stitched({"x": x}, {})
    assert not any(name.startswith("1") for name in ran)
    assert torch.equal(got["y"], teacher[2](student(teacher[0](x))))
