"""The plan: order, edges in stitch order, and being data that compares, prints and goes into JSON."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import weave
from tests.small import EXT, Tiny, constant, knot, module, packed, plus_one, times_ten
from weave import (
    ConstantTarget,
    ExternalTarget,
    FunctionTarget,
    Needle,
    OutputReducer,
    Plan,
    RemoteTarget,
    StitchedModule,
)


@st.composite
def graphs(draw: st.DrawFn) -> StitchedModule:
    """Functions that read earlier ones, constants and the caller; some captured; stitched in any order."""
    targets: list[Any] = []
    stitches: list[tuple[Any, Any]] = [(EXT.input("always"), EXT.input("there"))]
    for i in range(draw(st.integers(1, 12))):
        name = draw(st.sampled_from("fgh"))
        if draw(st.integers(0, 4)) == 0:
            target: Any = ConstantTarget(name, i)
        else:
            target = FunctionTarget(name, packed)
            for feeder in draw(st.lists(st.integers(-1, i - 1), max_size=4)):
                stitches.append((EXT.input("x") if feeder < 0 else targets[feeder].output(), target.input()))
        targets.append(target)
        if draw(st.booleans()):
            stitches.append((target.output(), EXT.output(f"y{i}")))
    needle = Needle()
    for target in draw(st.permutations(targets)):
        needle.get_node_for_target(target)
    for src, dst in draw(st.permutations(stitches)):
        needle.stitch(src, dst)
    stitched = needle.knot()
    stitched.drawn = list(needle.nodes.values())  # what the plan was made of
    return stitched


@given(graphs())
def test_units_stand_in_topological_order(stitched: StitchedModule) -> None:
    plan = stitched.plan
    for index, unit in enumerate(plan.units):
        for edge in unit.entries:
            assert plan.producers[edge.slot] < index
        for way in unit.exits:
            for slot in way.slots:
                assert plan.producers[slot] == index


@given(graphs())
def test_every_target_is_one_unit_and_every_stitch_one_edge(stitched: StitchedModule) -> None:
    plan, nodes = stitched.plan, stitched.drawn
    assert Counter(unit.target for unit in plan.units) == Counter(n.target for n in nodes if n.target is not EXT)
    stitches = [s for node in nodes for s in node.stitches_to]
    assert Counter(id(edge.stitch) for edge in plan.edges) == Counter(map(id, stitches))
    assert [edge.slot for edge in plan.edges] == list(range(len(stitches)))
    filled = [slot for exits in (plan.given, *(u.exits for u in plan.units)) for way in exits for slot in way.slots]
    emptied = [e.slot for entries in (plan.taken, *(u.entries for u in plan.units)) for e in entries]
    assert sorted(filled) == sorted(emptied) == list(range(len(stitches)))


@given(graphs())
def test_entries_stand_in_stitch_order(stitched: StitchedModule) -> None:
    plan = stitched.plan
    for node in stitched.drawn:
        entries = plan.taken if node.target is EXT else next(u.entries for u in plan.units if u.target is node.target)
        assert [e.stitch for e in entries] == node.stitches_to


@given(graphs())
def test_in_degrees_count_the_values_that_a_unit_waits_for(stitched: StitchedModule) -> None:
    assert stitched.plan.in_degrees() == [len(unit.entries) for unit in stitched.plan.units]


@given(graphs())
def test_node_ids_are_unique_and_the_first_of_a_name_keeps_it(stitched: StitchedModule) -> None:
    ids = [unit.node for unit in stitched.plan.units]
    assert len(ids) == len(set(ids))
    assert len(set(stitched.plan.nodes.values())) == len(stitched.plan.nodes)
    for unit in stitched.plan.units:
        assert stitched.plan.nodes[unit.target] == unit.node
        assert unit.node.split("#")[0] == unit.target.name  # type: ignore[attr-defined]
    for name in {unit.target.name for unit in stitched.plan.units}:  # type: ignore[attr-defined]
        assert name in ids


@given(graphs())
def test_a_plan_goes_into_json_and_prints(stitched: StitchedModule) -> None:
    plan = stitched.plan
    assert json.loads(json.dumps(plan.to_dict())) == plan.to_dict()
    for unit in plan.units:
        assert f"  {unit.node}: " in str(plan)
    assert plan.to_mermaid().count("-->") == len(plan.edges)


# --- ids that somebody else has taken ---


def test_user_given_names_that_look_like_ids() -> None:
    targets = [FunctionTarget(name, packed) for name in ("f", "f", "f#2", "f")]
    stitched = knot(*[(t.output(), EXT.output(str(i))) for i, t in enumerate(targets)])
    ids = list(stitched.plan.nodes.values())
    assert len(set(ids)) == len(targets) + 1
    assert ids[0] == "f"


def test_a_node_called_as_the_boundary_is() -> None:
    """Whichever of the two comes first."""
    f = FunctionTarget("external", packed)
    for stitches in ([(f.output(), EXT.output("y"))], [(EXT.input("x"), f.input()), (f.output(), EXT.output("y"))]):
        stitched = knot(*stitches)
        assert len(set(stitched.plan.nodes.values())) == 2
        ends = stitched.plan.to_dict()["stitches"][-1]
        assert ends["source"]["node"] != ends["destination"]["node"]


def test_a_node_called_as_a_rank_is() -> None:
    f = FunctionTarget("remote[1]", packed)
    for stitches in (
        [(f.output(), RemoteTarget(1).value("k"))],
        [(RemoteTarget(1).value("k"), f.input()), (f.output(), EXT.output("y"))],
    ):
        assert len(set(knot(*stitches).plan.nodes.values())) == len(stitches) + 1


def test_two_ranks_of_one_number_are_told_apart() -> None:
    one, other = RemoteTarget(1), RemoteTarget(1)
    plan = knot((constant(1), one.value("a")), (constant(2), other.value("b"))).plan
    assert {u.node for u in plan.units if u.role == "send"} == {"remote[1].send('a')", "remote[1]#2.send('b')"}


# --- what a plan says ---


def pieces(*, reducer: Any = "sum", name: str = "y") -> Plan:
    m, f = module(Tiny()), FunctionTarget("f", plus_one)
    return knot(
        (EXT.input("x"), m.input("")),
        (m.output("a", call=1, adapter="clone"), f.input()),
        (ConstantTarget("c", 2).output(), f.input(reducer=reducer)),
        (EXT.output("o"), m.output("b", reducer=OutputReducer(times_ten, requires_original_output=True))),
        (f.output(), EXT.output(name)),
    ).plan


def test_to_dict() -> None:
    said = pieces().to_dict()
    assert said["units"] == [
        {"node": "m", "target": "ModuleTarget", "role": "fire"},
        {"node": "c", "target": "ConstantTarget", "role": "fire"},
        {"node": "f", "target": "FunctionTarget", "role": "fire"},
    ]
    due = [
        {
            "source": {"node": "external", "kind": "input", "name": "x"},
            "destination": {"node": "m", "kind": "input", "name": ""},
        },
        {
            "source": {"node": "external", "kind": "output", "name": "o"},
            "destination": {
                "node": "m",
                "kind": "output",
                "name": "b",
                "reducer": "times_ten",
                "requires_original_output": True,
            },
        },
        {
            "source": {"node": "m", "kind": "output", "name": "a", "call": 1, "adapter": "clone"},
            "destination": {"node": "f", "kind": "input", "name": ""},
        },
        {
            "source": {"node": "c", "kind": "output", "name": ""},
            "destination": {"node": "f", "kind": "input", "name": "", "reducer": "sum"},
        },
        {
            "source": {"node": "f", "kind": "output", "name": ""},
            "destination": {"node": "external", "kind": "output", "name": "y"},
        },
    ]
    # In which order stitches of different ports stand is the plan's affair.
    assert sorted(said["stitches"], key=json.dumps) == sorted(due, key=json.dumps)


def test_plans_compare_by_what_they_say() -> None:
    assert pieces() == pieces()
    assert pieces() != pieces(reducer="mean")
    assert pieces() != pieces(name="z")
    assert pieces() != pieces().to_dict()
    with pytest.raises(TypeError):
        hash(pieces())


def test_identity_adapters_and_default_reducers_are_dropped() -> None:
    f = FunctionTarget("f", plus_one)
    plan = knot((EXT.input("x"), f.input()), (f.output(), EXT.output("y"))).plan
    assert [(edge.adapter, edge.reducer) for edge in plan.edges] == [(None, None)] * 2
    assert all(way.adapter is None for exits in (plan.given, *(u.exits for u in plan.units)) for way in exits)


def test_one_descriptor_for_several_stitches_is_one_exit() -> None:
    f, g = FunctionTarget("f", plus_one), FunctionTarget("g", packed)
    out = f.output()
    plan = knot((EXT.input("x"), f.input()), (out, g.input()), (out, EXT.output("y")), (f.output(), g.input())).plan
    (unit,) = (u for u in plan.units if u.node == "f")
    assert sorted(len(way.slots) for way in unit.exits) == [1, 2]


def test_a_plan_is_public() -> None:
    assert isinstance(pieces(), weave.Plan)


def test_the_boundary_is_no_unit() -> None:
    plan = knot((EXT.input("x"), EXT.input("y"))).plan
    assert plan.units == ()
    assert isinstance(plan.edges[0].stitch.source_descriptor.target, ExternalTarget)


def test_a_modules_stitches_do_not_keep_others_waiting() -> None:
    """Independent nodes stand in the order in which they appeared, whatever hangs on them."""
    a, b = module(nn.Identity(), "a"), module(nn.Identity(), "b")
    plan = knot((EXT.input("x"), b.input("")), (EXT.input("x"), a.input("")), (b.output(""), EXT.output("y"))).plan
    assert [u.node for u in plan.units] == ["b", "a"]
