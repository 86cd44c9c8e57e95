"""What a knot refuses of a graph's form: who takes part, which end of a stitch a port can be, calls, ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import nn

from tests.small import EXT, Tiny, appearance, constant, knot, module, packed, plus_one, sewn
from weave import (
    ConstantTarget,
    ContradictionException,
    ExternalTarget,
    FunctionTarget,
    InputDescriptor,
    KnotException,
    MultipleExternalNodesException,
    Needle,
    OnlyInternalNodesException,
    OutputDescriptor,
    RemoteTarget,
    UnknownPortException,
)


def function(name: str = "f") -> FunctionTarget:
    return FunctionTarget(name, plus_one)


# --- who takes part ---


def test_a_graph_of_internal_nodes_only() -> None:
    with pytest.raises(OnlyInternalNodesException, match=r"'first', 'second'.*ExternalTarget\(\)"):
        knot((function("first").output(), function("second").input()))


def test_a_graph_of_nothing() -> None:
    with pytest.raises(OnlyInternalNodesException, match="no targets at all"):
        Needle().knot()


def test_remote_targets_are_boundary_enough() -> None:
    """A middle rank of a pipeline has no external node."""
    f = function()
    assert knot((RemoteTarget(0).value("h"), f.input()), (f.output(), RemoteTarget(2).value("h"))).plan.units


class OtherBoundary(ExternalTarget):
    pass


def test_two_external_nodes() -> None:
    f = function()
    with pytest.raises(
        MultipleExternalNodesException, match=r"2 external nodes.*ExternalTarget\(\).*OtherBoundary\(\)"
    ):
        knot((EXT.input("x"), f.input()), (f.output(), OtherBoundary().output("y")))


def test_a_subclass_alone_is_the_external_boundary() -> None:
    f = function()
    assert (
        knot((OtherBoundary().input("x"), f.input()), (f.output(), OtherBoundary().output("y")))({"x": 1}, {})["y"] == 2
    )


# --- directions ---

CAN_BE = {
    # which ports of a target may be a source, and which a destination
    "function": (function(), {"output"}, {"input"}),
    "constant": (ConstantTarget("c", 1), {"output"}, set()),
    "module": (module(nn.Identity()), {"input", "output"}, {"input", "output"}),
    "external": (EXT, {"input", "output"}, {"input", "output"}),
    "remote": (RemoteTarget(1), {"output"}, {"output"}),
}


@pytest.mark.parametrize("kind", ["input", "output"])
@pytest.mark.parametrize("name", CAN_BE)
def test_sources(name: str, kind: str) -> None:
    target, sources, _ = CAN_BE[name]
    port = (InputDescriptor if kind == "input" else OutputDescriptor)(target, "")
    stitch = (port, EXT.input("y") if kind == "input" else EXT.output("y"))
    if kind in sources:
        assert len(knot(stitch).plan.edges) == 1
        return
    with pytest.raises(UnknownPortException, match="source of a stitch") as raised:
        knot(stitch)
    assert repr(port) in str(raised.value)
    assert repr(stitch[1]) in str(raised.value)
    assert raised.value.nearest == tuple(sources)


@pytest.mark.parametrize("kind", ["input", "output"])
@pytest.mark.parametrize("name", CAN_BE)
def test_destinations(name: str, kind: str) -> None:
    target, _, destinations = CAN_BE[name]
    port = (InputDescriptor if kind == "input" else OutputDescriptor)(target, "")
    stitch = (EXT.input("x") if kind == "input" else EXT.output("x"), port)
    if kind in destinations:
        assert len(knot(stitch).plan.edges) == 1
        return
    with pytest.raises(UnknownPortException, match="destination of a stitch") as raised:
        knot(stitch)
    assert repr(port) in str(raised.value)
    assert repr(stitch[0]) in str(raised.value)
    assert raised.value.nearest == tuple(destinations)


@pytest.mark.parametrize(
    "stitch",
    [
        lambda f: (EXT.input("x"), InputDescriptor(f, "nope")),
        lambda f: (OutputDescriptor(f, "nope"), EXT.output("y")),
        lambda f: (OutputDescriptor(ConstantTarget("c", 1), "nope"), EXT.output("y")),
    ],
)
def test_a_function_and_a_constant_have_one_port_without_a_name(stitch: Callable[[Any], tuple[Any, Any]]) -> None:
    """A name that nobody looks at would be a stitch that seems to go somewhere and doesn't."""
    with pytest.raises(UnknownPortException, match="nope"):
        knot(stitch(function()))


# --- call= ---


@pytest.mark.parametrize("call", [-1, True, False, 1.0, "first", "", [0], (0,), b"last"])
def test_values_of_call_that_mean_nothing(call: Any) -> None:
    m = module(Tiny())
    for stitch in ((EXT.input("x"), m.input("a", call=call)), (m.output("a", call=call), EXT.output("y"))):
        with pytest.raises(UnknownPortException, match='a number from 0 on, "last" or "all"') as raised:
            knot((EXT.input("x"), m.input("")), stitch)
        assert raised.value.node == "m"
        assert repr(call) in str(raised.value)


@pytest.mark.parametrize("call", [None, 0, 7, "last", "all"])
def test_values_of_call_for_a_capture(call: Any) -> None:
    m = module(Tiny())
    assert knot((EXT.input("x"), m.input("")), (m.output("a", call=call), EXT.output("y"))).plan.edges


@pytest.mark.parametrize("call", [None, 0, 7, "all"])
def test_values_of_call_for_an_override(call: Any) -> None:
    m = module(Tiny())
    assert knot((EXT.input("x"), m.input("a", call=call)), (EXT.output("y"), m.output("b", call=call))).plan.edges


@pytest.mark.parametrize("kind", ["input", "output"])
def test_which_call_is_the_last_is_not_known_ahead(kind: str) -> None:
    m = module(Tiny())
    stitch = (
        (EXT.output("o"), m.output("a", call="last"))
        if kind == "output"
        else (EXT.input("i"), m.input("a", call="last"))
    )
    with pytest.raises(ContradictionException, match=r"call='last'.*call=k") as raised:
        knot((EXT.input("x"), m.input("")), stitch)
    assert (raised.value.node, raised.value.port) == ("m", f"m.{kind}('a', call='last')")


@pytest.mark.parametrize(
    "stitch",
    [
        lambda f: (EXT.input("x"), InputDescriptor(f, call=0)),
        lambda f: (OutputDescriptor(f, call=0), EXT.output("y")),
        lambda f: (EXT.input("x", call=0), f.input()),
        lambda f: (f.output(), EXT.output("y", call="all")),
        lambda f: (OutputDescriptor(RemoteTarget(1), "k", call=1), f.input()),
    ],
)
def test_only_a_modules_ports_have_calls(stitch: Callable[[Any], tuple[Any, Any]]) -> None:
    with pytest.raises(UnknownPortException, match="is no ModuleTarget; leave it out"):
        knot(stitch(function()))


# --- ranks ---


@pytest.mark.parametrize(("peers", "said"), [([1, 2], "2 .1, 2."), ([], "0 ")])
def test_a_value_comes_from_one_peer(peers: list[int], said: str) -> None:
    remote, f = RemoteTarget(peers), function()
    with pytest.raises(UnknownPortException, match=f"can't be a source.*{said}") as raised:
        knot((remote.value("h"), f.input()), (f.output(), EXT.output("y")))
    assert "output('h')" in raised.value.port


def test_one_peer_in_a_list_is_one_peer() -> None:
    f = function()
    assert knot((RemoteTarget([1]).value("h"), f.input()), (f.output(), EXT.output("y"))).plan.units


def test_several_peers_may_be_sent_to() -> None:
    assert knot((EXT.output("x"), RemoteTarget([1, 2]).value("h"))).plan.units
    with pytest.raises(UnknownPortException, match="no peer at all"):
        knot((EXT.output("x"), RemoteTarget([]).value("h")))


@pytest.mark.parametrize("others", [1, [1], [3, 1]])
def test_two_targets_with_one_key_towards_one_peer(others: Any) -> None:
    one, other = RemoteTarget(1), RemoteTarget(others)
    with pytest.raises(ContradictionException, match=r"two RemoteTargets \('remote\[1\]' and .*send.*'h'.*rank 1"):
        knot((constant(1), one.value("h")), (constant(2), other.value("h")))


def test_two_targets_that_receive_one_key() -> None:
    f = function()
    with pytest.raises(ContradictionException, match=r"receive.*'h'.*rank 1"):
        knot((RemoteTarget(1).value("h"), f.input()), (RemoteTarget(1).value("h"), f.input()))


def test_one_key_in_both_directions_is_two_things() -> None:
    """Whether by one target or by two."""
    f = function()
    remote = RemoteTarget(1)
    knot((remote.value("h"), f.input()), (f.output(), remote.value("h")))
    knot((RemoteTarget(1).value("h"), f.input()), (f.output(), RemoteTarget(1).value("h")))


def test_other_keys_peers_and_groups_are_others() -> None:
    one = RemoteTarget(1)
    knot((constant(1), one.value("h")), (constant(2), RemoteTarget(1).value("g")))
    knot((constant(1), one.value("h")), (constant(2), RemoteTarget(2).value("h")))
    group: Any = object()
    knot((constant(1), one.value("h")), (constant(2), RemoteTarget(1, group).value("h")))


def test_several_stitches_meet_on_one_targets_key() -> None:
    remote, port = RemoteTarget(1), RemoteTarget(2).value("h")
    plan = knot(
        (constant(1), remote.value("h")), (constant(2), remote.value("h")), (constant(3), port), (constant(4), port)
    ).plan
    sends = [unit for unit in plan.units if unit.role == "send"]
    assert [len(unit.entries) for unit in sends] == [2, 2]


# --- adapters, reducers, names ---


@pytest.mark.parametrize("adapter", [None, 3, [abs]])
def test_an_adapter_that_can_not_be_called(adapter: Any) -> None:
    f = function()
    for stitch in ((EXT.input("x"), f.input(adapter=adapter)), (EXT.input("x", adapter=adapter), f.input())):
        port = next(p for p in stitch if p.adapter is adapter)
        with pytest.raises(KnotException) as raised:
            knot(stitch, (f.output(), EXT.output("y")))
        assert repr(port) in str(raised.value)
        assert repr(adapter) in str(raised.value)


# --- what a refused knot leaves behind ---


def test_a_refused_knot_changes_nothing() -> None:
    net = nn.Sequential(Tiny(), nn.ReLU())
    before = appearance(net)
    m = module(net)
    needle = sewn((EXT.input("x"), m.input("")), (m.output("0.a"), EXT.output("a")))
    needle.stitch(m.output("0.nope"), EXT.output("y"))
    with pytest.raises(UnknownPortException):
        needle.knot()
    assert appearance(net) == before
    assert {len(node.stitches_to) for node in needle.nodes.values()} == {1, 2}, "the needle kept its stitches"


def test_a_needle_can_be_stitched_on_after_a_refusal() -> None:
    f = FunctionTarget("f", packed)
    needle = Needle().stitch(constant(1), f.input())
    with pytest.raises(OnlyInternalNodesException):
        needle.knot()
    stitched = needle.stitch(f.output(), EXT.output("y")).knot()
    assert stitched({}, {})["y"] == ((1,), {})


@pytest.mark.parametrize(
    "needle",
    [
        Needle(),
        sewn((function().output(), function().input())),
        sewn((EXT.input("x"), module(nn.Identity()).input("nope"))),
        sewn((EXT.output("x"), module(nn.Identity()).output("", call="last"))),
        sewn((EXT.input("x"), function().input(adapter=None))),
    ],
)
def test_every_refusal_is_a_knot_exception(needle: Needle) -> None:
    with pytest.raises(KnotException):
        needle.knot()
