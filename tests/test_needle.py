"""`Needle`: stitching ports, and what a knot is made of; `StitchedModule(nodes)` does the same by hand."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

from tests.small import EXT, Tiny, constant, knot, module, packed, plus_one, sewn, times_ten
from weave import (
    ConstantTarget,
    ExternalTarget,
    FunctionTarget,
    InputArgs,
    InputReducer,
    KnotException,
    LoopFoundException,
    ModuleTarget,
    Needle,
    Node,
    OnlyInternalNodesException,
    OutputReducer,
    PluginException,
    RemoteTarget,
    StitchDescriptor,
    StitchedModule,
    UnknownPortException,
)
from weave.passage import PassageInputOverrides, PassageOutputOverrides


def function(name: str = "f") -> FunctionTarget:
    return FunctionTarget(name, packed)


# --- stitching ---


def test_stitch_returns_the_needle() -> None:
    f, needle = function(), Needle()
    assert needle.stitch(EXT.input("x"), f.input()) is needle


def test_a_node_knows_the_stitches_at_both_its_ends() -> None:
    f, needle = function(), Needle()
    into, out = f.input(), f.output()
    source, end = EXT.input("x"), EXT.output("y")
    needle.stitch(source, into).stitch(out, end)
    node = needle.get_node_for_target(f)
    assert isinstance(node, Node)
    assert node.target is f
    assert [(s.source_descriptor, s.destination_descriptor) for s in node.stitches_to] == [(source, into)]
    assert [(s.source_descriptor, s.destination_descriptor) for s in node.stitches_from] == [(out, end)]
    boundary = needle.get_node_for_target(ExternalTarget())
    assert boundary.stitches_from == node.stitches_to
    assert boundary.stitches_to == node.stitches_from


def test_only_the_very_same_two_objects_are_the_same_stitch() -> None:
    f, needle = function(), Needle()
    source, end = EXT.input("x"), f.input()
    for _ in range(3):
        needle.stitch(source, end)
    assert len(needle.get_node_for_target(f).stitches_to) == 1
    needle.stitch(source, f.input()).stitch(EXT.input("x"), end)
    assert len(needle.get_node_for_target(f).stitches_to) == 3


def test_many_stitches_of_descriptors_that_nobody_else_keeps() -> None:
    """Told apart by identity: an id that is used again must not make a stitch go missing."""
    f, needle = function(), Needle()
    for _ in range(1000):
        needle.stitch(EXT.input("x"), f.input())
    assert len(needle.get_node_for_target(f).stitches_to) == 1000


@pytest.mark.parametrize(
    ("what", "remedy"),
    [
        (FunctionTarget("f", abs), r"target\.input\(\.\.\.\)"),
        (nn.Linear(1, 1), r"ModuleTarget\("),
        (abs, ""),
        (None, ""),
        ("external.input('x')", ""),
        (3, ""),
    ],
    ids=lambda v: type(v).__name__,
)
def test_only_ports_can_be_stitched(what: Any, remedy: str) -> None:
    f, needle = function(), Needle()
    for ends in ((what, f.input()), (EXT.input("x"), what)):
        with pytest.raises(TypeError, match=f"{type(what).__name__} is no port.*{remedy}"):
            needle.stitch(*ends)
    assert not needle.nodes, "and nothing was stitched half-way"


# --- names of reducers and adapters ---


@pytest.mark.parametrize(
    ("options", "name", "near"),
    [
        ({"reducer": "meen"}, "meen", "mean"),
        ({"adapter": "clon"}, "clon", "clone"),
        ({"reducer": "zzz"}, "zzz", ""),
        ({"adapter": ""}, "", ""),
    ],
)
def test_an_unknown_name_is_refused_at_the_knot_with_the_nearest(options: Any, name: str, near: str) -> None:
    f = function()
    with pytest.raises(PluginException) as raised:
        knot((EXT.input("x"), f.input(**options)))
    assert raised.value.name == name
    assert repr(name) in str(raised.value)
    assert tuple(raised.value.nearest) == ((near,) if near else ())
    if near:
        assert f"did you mean {near!r}?" in str(raised.value)
    assert isinstance(raised.value, LookupError)


def test_an_unknown_name_is_refused_naming_the_port() -> None:
    f = FunctionTarget("loss", packed)
    for stitch in ((EXT.input("x"), f.input(reducer="meen")), (EXT.input("x"), f.input(adapter="clon"))):
        with pytest.raises(PluginException, match=re.escape("loss.input()")):
            knot(stitch)


def test_a_name_for_the_other_kind_of_port() -> None:
    with pytest.raises(PluginException, match="no output reducer is called 'concat'"):
        knot((constant(1), EXT.output("y", reducer="concat")))


def test_a_reducer_that_nobody_looks_at_need_not_exist() -> None:
    """A source has no use for one."""
    f = function()
    assert knot((f.output(reducer="nope"), EXT.output("y")))({}, {})["y"] == ((), {})


# --- unstitched nodes ---


def test_a_node_without_a_stitch_is_part_of_the_graph() -> None:
    ran: list[str] = []
    f = FunctionTarget("lone", lambda *args: ran.append("lone"))

    class Net(nn.Module):
        def forward(self, *args: Any, **kwargs: Any) -> None:
            ran.append(f"net{args}{kwargs}")

    needle = sewn((constant(1), EXT.output("y")))
    needle.get_node_for_target(f)
    needle.get_node_for_target(ModuleTarget("net", Net()))
    needle.get_node_for_target(ConstantTarget("c", 1))
    stitched = needle.knot()
    assert stitched({}, {}, 1, k=2)["y"] == 1
    assert sorted(ran) == ["lone", "net(1,){'k': 2}"]
    assert len(stitched.plan.units) == 4


# --- after the knot ---


def test_stitching_on_changes_only_what_is_knotted_next() -> None:
    f, needle = function(), Needle()
    into = f.input()
    needle.stitch(EXT.input("x"), into).stitch(f.output(), EXT.output("y"))
    first = needle.knot()
    plan, text, keys = first.plan.to_dict(), repr(first), list(first.state_dict())
    net = Tiny()
    needle.stitch(constant(5), f.input()).stitch(f.output(), EXT.output("more"))
    needle.stitch(f.output(), ModuleTarget("m", net).input(""))
    second = needle.knot()
    assert first({"x": 1}, {}).captured_outputs == {"y": ((1,), {})}
    assert (first.plan.to_dict(), repr(first), list(first.state_dict())) == (plan, text, keys)
    assert second.plan != first.plan
    assert len(second.state_dict()) == 4
    third = Needle().stitch(EXT.input("x"), into).stitch(f.output(), EXT.output("y")).knot()
    assert third({"x": 1}, {})["y"] == ((1,), {})


def test_one_needle_knots_several() -> None:
    f, needle = function(), Needle()
    needle.stitch(EXT.input("x"), f.input()).stitch(f.output(), EXT.output("y"))
    one, other = needle.knot(), needle.knot(ignore_extra_overrides=True)
    assert one.plan == other.plan
    assert other({"x": 1, "z": 2}, {})["y"] == ((1,), {})
    with pytest.raises(KeyError):
        one({"x": 1, "z": 2}, {})


def test_options_may_be_given_by_position() -> None:
    f, needle = function(), Needle()
    needle.stitch(EXT.input("x"), f.input()).stitch(f.output(), EXT.output("y"))
    assert needle.knot(lambda name, module: False, False, True)({"x": 1, "z": 2}, {})["y"] == ((1,), {})


def test_changing_a_port_after_the_knot_changes_nothing() -> None:
    f = function()
    into = f.input(adapter=lambda a: a + InputArgs(2))
    stitched = knot((EXT.input("x"), into), (f.output(), EXT.output("y")))
    into.input_adapter = lambda a: InputArgs()
    assert stitched({"x": 1}, {})["y"] == ((1, 2), {})


# --- StitchedModule by hand ---


def hand_made(target: FunctionTarget, *, ends: str) -> dict[Any, Node]:
    """Nodes as somebody writes them who knows each stitch at one of its ends only."""
    stitches = [StitchDescriptor(EXT.input("x"), target.input()), StitchDescriptor(target.output(), EXT.output("y"))]
    nodes = {target: Node(target), EXT: Node(EXT)}
    for stitch in stitches:
        if "from" in ends:
            nodes[stitch.source_descriptor.target].stitches_from.append(stitch)
        if "to" in ends:
            nodes[stitch.destination_descriptor.target].stitches_to.append(stitch)
    return nodes


@pytest.mark.parametrize("ends", ["from", "to", "from and to"])
def test_nodes_made_by_hand(ends: str) -> None:
    f = FunctionTarget("f", plus_one)
    stitched = StitchedModule(hand_made(f, ends=ends))
    assert stitched({"x": 1}, {})["y"] == 2
    assert len(stitched.plan.edges) == 2


@pytest.mark.parametrize("ends", ["from", "to"])
def test_targets_that_only_a_stitch_knows(ends: str) -> None:
    f = FunctionTarget("f", plus_one)
    nodes = hand_made(f, ends=ends)
    del nodes[EXT if ends == "to" else f]
    # One of the two stitches went with its node; of the other the missing target is found.
    stitched = StitchedModule(nodes=nodes)
    assert f in stitched.plan.nodes
    assert EXT in stitched.plan.nodes
    assert len(stitched.plan.edges) == 1


def test_a_needles_nodes_are_what_a_knot_takes() -> None:
    needle = sewn((EXT.input("x"), (f := FunctionTarget("f", plus_one)).input()), (f.output(), EXT.output("y")))
    assert StitchedModule(needle.nodes).plan == needle.knot().plan
    assert StitchedModule(needle.nodes, lambda name, module: False, False, True)({"x": 1, "z": 0}, {})["y"] == 2


def test_made_by_hand_it_is_checked_all_the_same() -> None:
    f = FunctionTarget("f", plus_one)
    with pytest.raises(OnlyInternalNodesException):
        StitchedModule({})
    with pytest.raises(OnlyInternalNodesException):
        StitchedModule({f: Node(f)})
    loop = StitchDescriptor(f.output(), f.input())
    with pytest.raises(LoopFoundException):
        StitchedModule({f: Node(f, [loop], [loop]), EXT: Node(EXT)})
    m = module(Tiny())
    with pytest.raises(UnknownPortException):
        StitchedModule({m: Node(m, [StitchDescriptor(EXT.input("x"), m.input("nope"))])})


def test_later_changes_of_the_nodes_change_nothing() -> None:
    f = FunctionTarget("f", plus_one)
    nodes = hand_made(f, ends="from and to")
    stitched = StitchedModule(nodes)
    nodes[EXT].stitches_to.clear()
    nodes.clear()
    assert stitched({"x": 1}, {})["y"] == 2


# --- overrides by port name ---


def test_input_overrides_of_one_node() -> None:
    m = module(Tiny())
    one, two, other = m.input("a"), m.input("a"), m.input("b")
    keeps = m.input("", reducer=InputReducer(lambda acc, new, original, i, every: original.drop_args() + new))
    stitched = knot((EXT.input("x"), one), (EXT.input("x"), two), (EXT.input("x"), other), (EXT.input("x"), keeps))
    got = stitched.create_input_overrides({one: InputArgs(1, k=2), two: 3, other: (4, 5), keeps: InputArgs(6)})
    assert isinstance(got, PassageInputOverrides)
    assert isinstance(got, dict)
    assert set(got) == {"a", "b", ""}
    assert (got["a"].args, got["a"].kwargs) == ([1, 3], {"k": 2})
    assert got["b"].args == [(4, 5)], "an output's value crosses as one positional"
    # Where a reducer looks at the original, the override is a function of it.
    reduced = got[""](InputArgs(7, mask=8))
    assert (reduced.args, reduced.kwargs) == ([6], {"mask": 8})


def test_output_overrides_of_one_node() -> None:
    m = module(Tiny())
    one, two = m.output("a"), m.output("a")
    added = m.output(
        "b", reducer=OutputReducer(lambda acc, v, original, *_: original + v, requires_original_output=True)
    )
    named = m.output("", reducer="sum")
    stitched = knot(
        (EXT.output("x"), one), (EXT.output("x"), two), (EXT.output("x"), added), (EXT.output("y"), EXT.output("y"))
    )
    got = stitched.create_output_overrides({one: 1, two: 2, added: 3, named: 4})
    assert isinstance(got, PassageOutputOverrides)
    assert got["a"] == 2, "the newest"
    assert got[""] == 4
    assert got["b"](10) == 13
    assert stitched.create_output_overrides({}) == {}


def test_overrides_reduce_in_the_order_given() -> None:
    m = module(Tiny())
    ports = [m.input("a") for _ in range(4)]
    stitched = knot(*[(EXT.input("x"), p) for p in ports])
    got = stitched.create_input_overrides({ports[i]: InputArgs(i) for i in (2, 0, 3, 1)})
    assert got["a"].args == [2, 0, 3, 1]


def test_every_knot_exception_is_one() -> None:
    for cls in (OnlyInternalNodesException, LoopFoundException, UnknownPortException):
        assert issubclass(cls, KnotException)


# --- one graph, seen whole ---


def test_a_whole_graph_of_every_kind_of_target() -> None:
    net, x = Tiny(), torch.ones(2, 3)
    m, f, c = ModuleTarget("m", net), FunctionTarget("f", times_ten), ConstantTarget("c", torch.full((2, 3), 0.5))
    stitched = knot(
        (EXT.input("x"), m.input("")),
        (c.output(), m.output("a")),
        (m.input("b"), f.input(adapter=lambda args: InputArgs(args.args[0]))),
        (f.output(), EXT.output("ten")),
        (m.output(""), EXT.output("y")),
    )
    out = stitched({"x": x}, {})
    half = torch.full((2, 3), 0.5)
    assert torch.equal(out["ten"], torch.tanh(half) * 10)
    assert torch.equal(out["y"], net.b(torch.tanh(half)))
    assert RemoteTarget not in {type(unit.target) for unit in stitched.plan.units}
