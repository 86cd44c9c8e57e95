"""`needle.place`: one graph, written once, of which every rank keeps its part."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given as hypothesis_given
from hypothesis import settings
from hypothesis import strategies as st

from tests.remote.linked import EXT, on_ranks
from tests.small import Tiny
from weave import (
    ConstantTarget,
    FunctionTarget,
    KnotException,
    ModuleTarget,
    Needle,
    OverridesException,
    RemoteException,
    RemoteTarget,
    StitchedModule,
)
from weave.graph.plan import node_ids

both = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def add(*values: Any) -> Any:
    return sum(values)


def nodes(stitched: StitchedModule) -> set[str]:
    return {unit.node for unit in stitched.plan.units}


def parts(needle: Needle, size: int) -> list[set[str]]:
    return [nodes(needle.knot(rank=rank, world_size=size)) for rank in range(size)]


# --- where things are ---


def test_functions_and_constants_go_where_they_are_used() -> None:
    m, f, g, c = ModuleTarget("m", Tiny()), FunctionTarget("f", add), FunctionTarget("g", add), ConstantTarget("c", 1)
    alone = FunctionTarget("alone", add)
    needle = Needle().stitch(EXT.input("x"), f.input()).stitch(f.output(), g.input()).stitch(g.output(), m.input(""))
    needle.stitch(c.output(), g.input()).stitch(m.output(""), EXT.output("y")).stitch(m.output("a"), alone.input())
    needle.place(m, 1)
    assert parts(needle, 2) == [
        {"remote[1].send(\"external.input('x')\")", "remote[1].receive(\"m.output('')\")"},
        {"f", "g", "c", "m", "alone", "remote[0].receive(\"external.input('x')\")", "remote[0].send(\"m.output('')\")"},
    ]


def test_a_constant_is_on_every_rank_that_wants_it_unless_it_is_placed() -> None:
    def graph() -> Needle:
        fs = [FunctionTarget(f"f{rank}", add) for rank in range(2)]
        needle = Needle()
        for rank, f in enumerate(fs):
            needle.stitch(constant.output(), f.input()).stitch(f.output(), EXT.output(f"y{rank}")).place(f, rank)
        return needle

    constant = ConstantTarget("c", 1)
    assert all("c" in part for part in parts(graph(), 2))
    placed = parts(graph().place(constant, 1), 2)
    assert "c" not in placed[0]
    assert "remote[1].receive('c.output()')" in placed[0]


def test_external_ports_are_on_rank_0_unless_they_are_placed() -> None:
    f = FunctionTarget("f", add)

    def graph() -> Needle:
        return Needle().stitch(EXT.input("x"), f.input()).stitch(f.output(), EXT.output("y")).place(f, 1)

    assert len(parts(graph(), 2)[0]) == 2
    assert parts(graph().place(EXT, 1), 2) == [set(), {"f"}]
    assert parts(graph().place(EXT.output("y"), 1), 2)[1] == {"f", "remote[0].receive(\"external.input('x')\")"}


def test_a_value_goes_to_a_rank_once() -> None:
    f, gs = FunctionTarget("f", add), [FunctionTarget(f"g{i}", add) for i in range(3)]
    out = f.output()
    needle = Needle().stitch(EXT.input("x"), f.input()).place(f, 0)
    for i, g in enumerate(gs):
        needle.stitch(out, g.input()).stitch(g.output(), EXT.output(f"y{i}")).place(g, 1)
    first, second = parts(needle, 2)
    stitches = [edge.stitch for edge in needle.knot(rank=0, world_size=2).plan.edges]
    assert sum(isinstance(stitch.destination_descriptor.target, RemoteTarget) for stitch in stitches) == 1
    assert [node for node in first if "send" in node] == ["remote[1].send('f.output()')"]
    assert [node for node in second if "receive" in node] == ["remote[0].receive('f.output()')"]


def test_names_are_the_same_on_all_ranks_and_in_any_order_of_stitching() -> None:
    def graph(backwards: bool) -> Needle:
        f, g = FunctionTarget("f", add), FunctionTarget("g", add)
        stitches = [
            (EXT.input("x"), f.input()),
            (f.output(), g.input()),
            (EXT.input("z"), g.input()),
            (g.output(), EXT.output("y")),
        ]
        needle = Needle().place(f, 1).place(g, 2)
        for source, destination in stitches[:: -1 if backwards else 1]:
            needle.stitch(source, destination)
        return needle

    def edges(part: StitchedModule) -> list[Any]:
        return sorted(
            (unit.role, *unit.node.split(".", 1)) for unit in part.plan.units if unit.node.startswith("remote")
        )

    for rank in range(3):
        one, other = (graph(backwards).knot(rank=rank, world_size=3) for backwards in (False, True))
        assert edges(one) == edges(other)


def test_two_ports_of_one_name_have_two_keys() -> None:
    f, g = FunctionTarget("f", add), FunctionTarget("g", lambda *values: values)
    needle = Needle().stitch(EXT.input("x"), f.input()).stitch(f.output(), g.input())
    needle.stitch(f.output(adapter=lambda value: value * 100), g.input()).stitch(g.output(), EXT.output("y"))
    needle.place(f, 1).place(g, 0)

    async def main(rank: int) -> Any:
        return (await needle.knot().run({"x": 2}, {})).captured_outputs.get("y")

    assert on_ranks(2, main, "asyncio") == [(2, 200), None]


# --- running ---


def whole() -> tuple[Needle, Any, Any]:
    torch.manual_seed(0)
    first, second = ModuleTarget("first", Tiny()), ModuleTarget("second", Tiny())
    f = FunctionTarget("f", lambda a, b: a - b)
    needle = Needle().stitch(EXT.input("x"), first.input("")).stitch(first.output(""), second.input(""))
    needle.stitch(first.output("a"), f.input()).stitch(second.output(""), f.input()).stitch(f.output(), EXT.output("y"))
    needle.stitch(second.output("a"), EXT.output("z"))
    return needle, first, second


@both
def test_parts_give_what_the_whole_gives(backend: str) -> None:
    x = torch.rand(2, 3)
    needle, first, second = whole()
    due = needle.knot()({"x": x}, {})
    needle.place(first, 1).place(second, 2)

    async def main(rank: int) -> Any:
        out = await needle.knot().run({"x": x}, {})  # all are called alike
        if rank:
            with pytest.raises(OverridesException, match="'y' is captured on rank 0, and not on this one"):
                out["y"]
            assert "y" not in out
            return None
        return out["y"], out["z"]

    y, z = on_ranks(3, main, backend)[0]
    assert torch.equal(y, due["y"])
    assert torch.equal(z, due["z"])


@both
def test_results_where_the_caller_wants_them(backend: str) -> None:
    needle, first, second = whole()
    x = torch.rand(2, 3)
    due = needle.knot()({"x": x}, {})
    needle.place(first, 0).place(second, 1).place(EXT.output("z"), 1)

    async def main(rank: int) -> Any:
        out = await needle.knot().run({"x": x} if rank == 0 else {}, {})
        assert ("z" in out) == (rank == 1)
        return out["z" if rank else "y"]

    y, z = on_ranks(2, main, backend)
    assert torch.equal(y, due["y"])
    assert torch.equal(z, due["z"])


@both
def test_a_rank_that_has_nothing_ties_and_runs(backend: str) -> None:
    f = FunctionTarget("f", add)
    needle = Needle().stitch(EXT.input("x"), f.input()).stitch(f.output(), EXT.output("y")).place(f, 1)

    async def main(rank: int) -> Any:
        stitched = needle.knot()
        out = await stitched.run({"x": 1}, {})
        if rank == 2:
            assert not stitched.plan.units
            assert not list(stitched.parameters())
        return out.captured_outputs.get("y")

    assert on_ranks(3, main, backend) == [1, None, None]


def test_in_a_world_of_one_it_is_the_graph_itself() -> None:
    needle, first, second = whole()
    x = torch.rand(2, 3)
    due = needle.knot()({"x": x}, {})
    needle.place(first, 0).place(second, 0)
    for stitched in (needle.knot(), needle.knot(rank=0, world_size=1)):
        assert not any(node.startswith("remote") for node in nodes(stitched))
        assert torch.equal(stitched({"x": x}, {})["y"], due["y"])


def test_a_rank_registers_its_own_modules_only() -> None:
    needle, first, second = whole()
    needle.place(first, 0).place(second, 1)
    first_part, second_part = (needle.knot(rank=rank, world_size=2) for rank in range(2))
    assert {id(p) for p in first_part.parameters()} == {id(p) for p in first.module.parameters()}
    assert {id(p) for p in second_part.parameters()} == {id(p) for p in second.module.parameters()}


def test_a_name_that_no_rank_has_is_refused() -> None:
    needle, first, second = whole()
    needle.place(first, 0).place(second, 1).place(EXT.output("z"), 1)

    async def main(rank: int) -> Any:
        stitched = needle.knot()
        # Its own, or, where that was quicker, the other rank's.
        with pytest.raises((OverridesException, RemoteException), match="nobody has this"):
            await stitched.run({"x": 1, "nobody has this": 2}, {})

    on_ranks(2, main, "asyncio")


# --- what can't be ---


def test_a_module_without_a_place_is_named() -> None:
    needle, first, _ = whole()
    needle.place(first, 0)
    with pytest.raises(KnotException, match=r"'second' has no place.*needle.place"):
        needle.knot(rank=0, world_size=2)


def test_a_remote_target_without_a_place_is_named() -> None:
    f = FunctionTarget("f", add)
    needle = Needle().stitch(RemoteTarget(1).value("h"), f.input()).stitch(f.output(), EXT.output("y")).place(f, 0)
    with pytest.raises(KnotException, match=r"'remote\[1\]' has no place"):
        needle.knot(rank=0, world_size=2)


@pytest.mark.parametrize("size", [1, 2])
def test_a_rank_that_is_not_there(size: int) -> None:
    needle, first, second = whole()
    needle.place(first, 2).place(second, 0)
    with pytest.raises(KnotException, match=rf"'first' is placed on rank 2, and there (is|are) {size} "):
        needle.knot(rank=0, world_size=size)
    needle.place(first, 0).place(EXT.output("y"), 4)
    with pytest.raises(KnotException, match="external output 'y' is placed on rank 4"):
        needle.knot(rank=0, world_size=size)


def test_what_place_refuses() -> None:
    f = FunctionTarget("f", add)
    for rank in (True, -1, 1.0, "1", None):
        with pytest.raises(TypeError, match="a rank is a number from 0 on"):
            Needle().place(f, rank)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a target is placed as a whole"):
        Needle().place(f.output(), 0)
    with pytest.raises(TypeError, match="not a Tiny"):
        Needle().place(Tiny(), 0)  # type: ignore[arg-type]
    for rank, size in ((2, 2), (-1, 2), (1, None)):
        with pytest.raises(ValueError, match="ranks count from 0"):
            whole()[0].place(f, 0).knot(rank=rank, world_size=size)


# --- any graph ---


@st.composite
def graphs(draw: Any) -> Any:
    size = draw(st.integers(1, 10))
    feeders = [draw(st.lists(st.integers(-2, node - 1), min_size=1, max_size=3)) for node in range(size)]
    places = [draw(st.none() | st.integers(0, 3)) for _ in range(size)]
    results = draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=4, unique=True))
    return feeders, places, results, draw(st.none() | st.integers(0, 3))


@hypothesis_given(graphs())
@settings(max_examples=150)
def test_the_parts_together_are_the_whole(drawn: Any) -> None:
    """Every stitch is in one part, or cut into a send and a receive under one key; every node is on its rank, once."""
    feeders, places, results, outside = drawn
    targets: list[Any] = [FunctionTarget(f"n{node}", add) for node in range(len(feeders))]
    constant = ConstantTarget("c", 1)
    needle = Needle().place(EXT, outside or 0)
    whole: list[tuple[str, str]] = []
    for node, some in enumerate(feeders):
        for feeder in some:
            source = {-1: EXT.input("x"), -2: constant.output()}.get(feeder) or targets[feeder].output()
            needle.stitch(source, targets[node].input())
            whole.append(({-1: "external", -2: "c"}.get(feeder, f"n{feeder}"), f"n{node}"))
    for node in results:
        needle.stitch(targets[node].output(), EXT.output(f"y{node}"))
        whole.append((f"n{node}", "external"))
    for target, place in zip(targets, places, strict=True):
        if place is not None:
            needle.place(target, place)
    ids = node_ids(needle.nodes)
    found: list[tuple[str, str]] = []
    computed: list[str] = []
    sent: set[Any] = set()
    received: set[Any] = set()
    for rank in range(4):
        part = needle.knot(rank=rank, world_size=4)
        names = {target: ids.get(target, "") for target in ids}
        computed += [unit.node for unit in part.plan.units if unit.node.startswith("n")]
        for edge in part.plan.edges:
            source, destination = edge.stitch.source_descriptor, edge.stitch.destination_descriptor
            if isinstance(source.target, RemoteTarget):
                key = source.name
                assert isinstance(source.target.peer_rank, int)
                received.add((source.target.peer_rank, rank, key))
                found.append((key.split(".", 1)[0], names[destination.target]))
            elif isinstance(destination.target, RemoteTarget):
                sent.add((rank, destination.target.peer_rank, destination.name))
            else:
                found.append((names[source.target], names[destination.target]))
    assert sent == received
    assert sorted(found) == sorted(whole)
    assert sorted(computed) == sorted(f"n{node}" for node in range(len(feeders)))
    for node, place in enumerate(places):
        if place is not None:
            assert f"n{node}" in nodes(needle.knot(rank=place, world_size=4))
