"""Loops: what is one, what is none, and that looking for them is linear in the size of the graph."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tests.counted import calls_of, shallow
from tests.small import EXT, Tiny, knot, module, plus_one, sewn
from weave import (
    FunctionTarget,
    InputsLoopFoundException,
    KnotException,
    LoopFoundException,
    ModuleTarget,
    Needle,
    OutputsLoopFoundException,
    RemoteTarget,
)


def chain(length: int) -> Needle:
    functions = [FunctionTarget("f", plus_one) for _ in range(length)]
    needle = Needle().stitch(EXT.input("x"), functions[0].input())
    for one, next_one in itertools.pairwise(functions):
        needle.stitch(one.output(), next_one.input())
    return needle.stitch(functions[-1].output(), EXT.output("y"))


def ladder(diamonds: int) -> Needle:
    """Each diamond doubles the number of paths; there are 2 ** diamonds in the end."""
    top = FunctionTarget("top", plus_one)
    needle = Needle().stitch(EXT.input("x"), top.input())
    for _ in range(diamonds):
        left, right = FunctionTarget("left", plus_one), FunctionTarget("right", plus_one)
        bottom = FunctionTarget("bottom", max)
        for side in (left, right):
            needle.stitch(top.output(), side.input()).stitch(side.output(), bottom.input())
        top = bottom
    return needle.stitch(top.output(), EXT.output("y"))


# --- what is a loop ---


def test_inputs_that_lead_back() -> None:
    a, b, c = (module(Tiny(), name) for name in "abc")
    with pytest.raises(InputsLoopFoundException) as raised:
        knot(
            (EXT.input("x"), a.input("")),
            (a.output("a"), b.input("b")),
            (b.output("a"), c.input("")),
            (c.output("b"), a.input("b")),
        )
    message = str(raised.value)
    for step in (
        "a.output('a') -> b.input('b')",
        "b.output('a') -> c.input('')",
        "c.output('b') -> a.input('b')",
    ):
        assert step in message
    assert "external" not in message, "the way to the loop is no part of it"


def test_a_captured_input_that_leads_back() -> None:
    a, b = module(Tiny(), "a"), module(Tiny(), "b")
    with pytest.raises(InputsLoopFoundException):
        knot((EXT.input("x"), a.input("")), (a.input("b"), b.input("")), (b.input("b"), a.input("a")))


def test_outputs_that_lead_back() -> None:
    a, b = module(Tiny(), "a"), module(Tiny(), "b")
    with pytest.raises(OutputsLoopFoundException) as raised:
        knot((EXT.input("x"), a.input("")), (a.output("a"), b.output("a")), (b.output("b"), a.output("b")))
    assert "the outputs of" in str(raised.value)
    assert "a.output('a') -> b.output('a')" in str(raised.value)
    assert "b.output('b') -> a.output('b')" in str(raised.value)


@pytest.mark.parametrize(
    ("stitch", "exception"),
    [
        (lambda m: (m.output("a"), m.input("b")), InputsLoopFoundException),
        (lambda m: (m.input("a"), m.input("b")), InputsLoopFoundException),
        (lambda m: (m.output("a"), m.output("b")), OutputsLoopFoundException),
    ],
)
def test_a_target_stitched_to_itself(stitch: Callable[[Any], tuple[Any, Any]], exception: type[Exception]) -> None:
    m = module(Tiny())
    with pytest.raises(exception, match="of 'm' lead back to itself"):
        knot((EXT.input("x"), m.input("")), stitch(m))


def test_a_function_stitched_to_itself() -> None:
    f = FunctionTarget("f", plus_one)
    with pytest.raises(InputsLoopFoundException, match=r"f\.output\(\) -> f\.input\(\)"):
        knot((EXT.input("x"), f.input()), (f.output(), f.input()))


def test_a_loop_behind_and_in_front_of_other_nodes_is_spelled_alone() -> None:
    before, after = FunctionTarget("before", plus_one), FunctionTarget("after", plus_one)
    f, g = FunctionTarget("f", max), FunctionTarget("g", plus_one)
    with pytest.raises(LoopFoundException) as raised:
        knot(
            (EXT.input("x"), before.input()),
            (before.output(), f.input()),
            (f.output(), g.input()),
            (g.output(), f.input()),
            (g.output(), after.input()),
            (after.output(), EXT.output("y")),
        )
    message = str(raised.value)
    assert "f.output() -> g.input()" in message
    assert "g.output() -> f.input()" in message
    assert "before" not in message
    assert "after" not in message


def test_nodes_of_one_name_are_told_apart() -> None:
    f, g = FunctionTarget("f", plus_one), FunctionTarget("f", plus_one)
    with pytest.raises(LoopFoundException) as raised:
        knot((f.output(), g.input()), (g.output(), f.input()), (g.output(), EXT.output("y")))
    assert "f.output() -> f#2.input()" in str(raised.value)
    assert "f#2.output() -> f.input()" in str(raised.value)


def test_a_loop_that_nothing_outside_feeds() -> None:
    f, g = FunctionTarget("f", plus_one), FunctionTarget("g", plus_one)
    lone = FunctionTarget("lone", plus_one)
    with pytest.raises(LoopFoundException):
        knot((EXT.input("x"), lone.input()), (f.output(), g.input()), (g.output(), f.input()))


def test_the_remedy_is_a_second_target_on_the_same_module() -> None:
    net, other = Tiny(), Tiny()
    first, second, b = ModuleTarget("a", net), ModuleTarget("a", net), ModuleTarget("b", other)
    stitches = [
        (EXT.input("x"), first.input("")),
        (EXT.input("x"), second.input("")),
        (EXT.input("x"), b.input("")),
        (first.output("a"), b.input("b")),
        (b.output("b"), second.output("a")),
        (second.output(""), EXT.output("y")),
    ]
    assert [unit.node for unit in knot(*stitches).plan.units] == ["a", "b", "a#2"]


# --- what is none ---


def test_a_path_through_the_external_boundary_is_no_loop() -> None:
    f = FunctionTarget("f", plus_one)
    stitched = knot((EXT.input("x"), f.input()), (f.output(), EXT.input("x")), (EXT.output("x"), EXT.output("x")))
    out = stitched({"x": 1}, {"x": 7})
    assert out.captured_inputs["x"].args == [2]
    assert out.captured_outputs["x"] == 7


def test_receiving_from_a_peer_what_it_made_of_what_it_was_sent_is_no_loop() -> None:
    remote, f, g = RemoteTarget(1), FunctionTarget("f", plus_one), FunctionTarget("g", plus_one)
    plan = knot(
        (remote.value("a"), f.input()),
        (f.output(), remote.value("a")),
        (remote.value("b"), g.input()),
        (g.output(), remote.value("c")),
    ).plan
    assert {(unit.node, unit.role) for unit in plan.units} == {
        ("f", "fire"),
        ("g", "fire"),
        ("remote[1].receive('a')", "receive"),
        ("remote[1].send('a')", "send"),
        ("remote[1].receive('b')", "receive"),
        ("remote[1].send('c')", "send"),
    }


def test_a_loop_beside_a_remote_is_one() -> None:
    remote, f, g = RemoteTarget(1), FunctionTarget("f", max), FunctionTarget("g", plus_one)
    with pytest.raises(InputsLoopFoundException):
        knot(
            (remote.value("a"), f.input()),
            (f.output(), g.input()),
            (g.output(), f.input()),
            (g.output(), remote.value("a")),
        )


def test_many_edges_between_two_nodes_are_no_loop() -> None:
    m, f = module(Tiny()), FunctionTarget("f", max)
    assert knot(
        (EXT.input("x"), m.input("")),
        *[(m.output(p), f.input()) for p in ("a", "b", "", "a")],
        (f.output(), EXT.output("y")),
    )


# --- how much work it is ---


def test_a_ladder_of_diamonds_takes_work_in_proportion() -> None:
    small, large = ladder(500), ladder(1000)
    once = calls_of(small.knot)
    assert calls_of(large.knot) < 2.2 * once
    with shallow():
        stitched = large.knot()
        assert stitched({"x": 0}, {})["y"] == 1001


def test_a_chain_of_100_000_functions_knots_and_runs_without_recursion() -> None:
    needle = chain(100_000)
    with shallow():
        stitched = needle.knot()
        assert stitched({"x": 0}, {})["y"] == 100_000


def test_knotting_and_calling_take_work_in_proportion() -> None:
    short, long = chain(1000), chain(4000)
    assert calls_of(long.knot) < 4.2 * calls_of(short.knot)
    one, other = short.knot(), long.knot()
    assert calls_of(lambda: other({"x": 0}, {})) < 4.2 * calls_of(lambda: one({"x": 0}, {}))


def test_a_long_loop_is_found_without_recursion() -> None:
    functions = [FunctionTarget(f"f{i}", plus_one) for i in range(2000)]
    needle = sewn((EXT.input("x"), functions[0].input()), (functions[-1].output(), functions[0].input()))
    for one, next_one in itertools.pairwise(functions):
        needle.stitch(one.output(), next_one.input())
    with shallow(), pytest.raises(InputsLoopFoundException) as raised:
        needle.knot()
    assert str(raised.value).count("->") == 2000


def test_the_family() -> None:
    assert issubclass(InputsLoopFoundException, LoopFoundException)
    assert issubclass(OutputsLoopFoundException, LoopFoundException)
    assert issubclass(LoopFoundException, KnotException)
