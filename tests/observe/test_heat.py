"""A graph's times in a trace."""

from __future__ import annotations

import pytest

from tests.observe.test_figures import node, run_of, stitch
from weave.observe.heat import said, times
from weave.observe.trace import NodeTrace, RunTrace, Trace


def diamond(*ends: int | None) -> RunTrace:
    """`a` from 0 to 10, then `b` and `c` up to the given ends, each before `d`."""
    b, c = (node(unit, 10, 10, end) for unit, end in enumerate(ends, 1))
    last = max((end for end in ends if end is not None), default=10)
    stitches = [stitch(0, 1), stitch(0, 2), stitch(1, 3), stitch(2, 3)]
    return run_of(stitches, node(0, 0, 0, 10), b, c, node(3, last, last, last + 10))


def test_means_and_the_critical_path() -> None:
    measured = times(Trace([], [diamond(20, 60), diamond(40, 100)]), "abcd")
    assert measured.runs == 2
    assert measured.mean_ns == {"a": 10, "b": 20, "c": 70, "d": 10}
    assert measured.critical == {"a", "c", "d"}
    assert measured.heat() == {"a": (1 / 7, "10 ns"), "b": (2 / 7, "20 ns"), "c": (1.0, "70 ns"), "d": (1 / 7, "10 ns")}


def test_critical_is_what_half_of_the_runs_waited_for() -> None:
    once, thrice = [diamond(90, 20)], [diamond(20, 90)] * 3
    assert times(Trace([], [*once, *thrice]), "abcd").critical == {"a", "c", "d"}
    assert times(Trace([], [*once, *once, *thrice[:2]]), "abcd").critical == {"a", "b", "c", "d"}


def test_only_runs_of_that_graph_count() -> None:
    other = run_of([], NodeTrace(0, "a", 0, "", 0, 1000, "worker 1", "ok"))
    trace = Trace([], [other, diamond(20, 60)])
    assert times(trace, "abcd").mean_ns["a"] == 10
    assert times(trace, "a").runs == 2, "a trace of a graph that has more nodes is a trace of these nodes"
    assert times(trace, "az") == (0, {}, frozenset())
    assert times(trace, "az").heat() == {}


def test_a_node_that_never_ended_has_no_time() -> None:
    measured = times(Trace([], [diamond(None, 60)]), "abcd")
    assert "b" not in measured.mean_ns
    assert "b" not in measured.heat()


def test_no_time_at_all_is_no_division_by_zero() -> None:
    run = run_of([], NodeTrace(0, "a", 5, "", 5, 5, "worker 1", "ok"))
    assert times(Trace([], [run]), "a").heat() == {"a": (0.0, "0 ns")}


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"), (999, "999 ns"), (999.6, "1.00 µs"), (1_200, "1.20 µs"), (12_340, "12.3 µs"), (123_400, "123 µs"),
        (999_600, "1.00 ms"), (9_996_000, "10.0 ms"), (99_960_000, "100 ms"), (1.5e9, "1.50 s"), (7.2e12, "7200 s"),
    ],
)  # fmt: skip
def test_times_as_people_say_them(ns: float, text: str) -> None:
    assert said(ns) == text
