"""Figures against a hand's and a naive program's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.observe.traces import runs
from weave.observe.figures import common, critical_path, figures, length, parts, union
from weave.observe.trace import Graph, NodeTrace, OutputTrace, RunTrace, Stitch, TransferTrace, UnitInfo

spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda two: (min(two), max(two))), max_size=8)


def run_of(stitches: list[Stitch], *nodes: NodeTrace, end: int | None = 100, roles: tuple[str, ...] = ()) -> RunTrace:
    units = tuple(
        UnitInfo(n.node, "function f", role) for n, role in zip(nodes, roles or ["fire"] * len(nodes), strict=True)
    )
    status = "unfinished" if end is None else "ok"
    return RunTrace("aa", None, Graph("g", units, tuple(stitches)), "tasks", 0, end, status, {n.unit: n for n in nodes})


def node(unit: int, ready: int, start: int, end: int | None, awaited: bool = False, **given: int) -> NodeTrace:
    """`given`: when it handed on at the ports of these names."""
    outputs = [OutputTrace(f"output('{name}')", at, "float32[1]", 4) for name, at in given.items()]
    status = "unfinished" if end is None else "ok"
    return NodeTrace(unit, "abcd"[unit], ready, "", start, end, "worker 1", status, awaited, outputs)


def stitch(producer: int, consumer: int, port: str = "x") -> Stitch:
    return Stitch(producer, consumer, f"output('{port}')", "input()")


def test_a_diamond() -> None:
    """a, then b (awaited) and c at once, then d."""
    run = run_of(
        [stitch(0, 1), stitch(0, 2), stitch(1, 3), stitch(2, 3)],
        node(0, 0, 2, 12, x=12),
        node(1, 12, 12, 32, awaited=True, x=32),
        node(2, 12, 15, 30, x=30),
        node(3, 32, 33, 40),
        end=41,
    )
    found = figures(run)
    assert (found.duration_ns, found.nodes, found.bytes) == (41, 4, 12)
    assert (found.critical_path_ns, found.path) == (10 + 20 + 7, (0, 1, 3))
    assert parts(run, found.path) == (10, 20, 7)
    assert found.busy_ns == 10 + 20 + 7
    assert found.compute_ns == 10 + 20 + 15 + 7
    assert found.waited_ns == 2 + 0 + 3 + 1
    assert found.overlap_pct == 100 * 15 / 20


def test_a_value_handed_on_before_the_end() -> None:
    """What waits for it is on the path from there; unless the giver goes on for longer than all that hangs on it."""
    short = run_of([stitch(0, 1)], node(0, 0, 0, 90, x=40), node(1, 40, 50, 80))
    assert critical_path(short) == (90, (0,))
    long = run_of([stitch(0, 1)], node(0, 0, 0, 50, x=40), node(1, 40, 50, 80))
    assert critical_path(long) == (40 + 30, (0, 1))
    assert parts(long, (0, 1)) == (40, 30)


def test_of_several_ports_the_one_that_was_last_counts() -> None:
    run = run_of([stitch(0, 1, "x"), stitch(0, 1, "y")], node(0, 0, 0, 50, x=10, y=30), node(1, 30, 30, 90))
    assert critical_path(run) == (90, (0, 1))
    assert parts(run, (0, 1)) == (30, 60)


def test_a_port_that_gave_several_values_counts_with_the_last() -> None:
    first = node(0, 0, 0, 50)
    first.outputs = [OutputTrace("output('x')", at, "int", 0) for at in (10, 20)]
    assert critical_path(run_of([stitch(0, 1)], first, node(1, 20, 20, 70))) == (70, (0, 1))


def test_no_overlap_where_nothing_waits_and_all_where_all_is_covered() -> None:
    assert figures(run_of([], node(0, 0, 0, 10))).overlap_pct is None
    assert figures(run_of([], node(0, 0, 0, 10), node(1, 0, 2, 5, awaited=True))).overlap_pct == 100
    assert figures(run_of([], node(0, 0, 0, 10, awaited=True), node(1, 0, 2, 5, awaited=True))).overlap_pct == 0


def test_transfers_wait() -> None:
    run = run_of([], node(0, 0, 5, 10))
    run.transfers = [
        TransferTrace("t", "n", "send", 1, "x", 0, 10, "ok"),
        TransferTrace("u", "n", "receive", 1, "y", 5, 20),
    ]
    run.finished_ns, run.status = None, "unfinished"
    assert run.end_ns == 20
    assert figures(run).overlap_pct == 100 * 5 / 20


def test_a_send_or_a_receive_computes_nothing() -> None:
    run = run_of([], node(0, 0, 0, 10), node(1, 0, 0, 20), node(2, 0, 15, 25), roles=("receive", "send", "fire"))
    assert figures(run).overlap_pct == 100 * 5 / 20


def test_what_never_ended_counts_to_the_end_and_what_never_began_not_at_all() -> None:
    waits = NodeTrace(2, "c", 50)
    run = run_of([stitch(0, 1), stitch(1, 2)], node(0, 0, 0, 50, x=50), node(1, 50, 60, None), waits)
    found = figures(run)
    assert (found.critical_path_ns, found.path) == (50 + 40, (0, 1))
    assert (found.busy_ns, found.compute_ns, found.waited_ns, found.nodes) == (90, 90, 10, 1)


def test_one_that_failed_after_it_handed_on_is_no_longer_than_it_can_have_been() -> None:
    """A failed node's line says nothing of what it handed on before."""
    failed = node(0, 0, 0, 90)
    failed.status = "failed"
    assert critical_path(run_of([stitch(0, 1)], failed, node(1, 20, 20, 95))) == (95, (0, 1))


def test_a_run_in_which_nothing_began() -> None:
    found = figures(run_of([], end=7))
    assert (found.duration_ns, found.critical_path_ns, found.path, found.busy_ns, found.overlap_pct) == (
        7,
        0,
        (),
        0,
        None,
    )
    assert parts(run_of([]), ()) == ()


# --- against naive ones ---


def chains(run: RunTrace) -> Iterator[int]:
    """How long each chain of nodes took, of all that there are."""

    def handed_on(producer: NodeTrace, port: str, to: NodeTrace) -> int:
        assert producer.started_ns is not None
        assert to.started_ns is not None
        times = [out.time_ns for out in producer.outputs if out.port == port]
        ended = to.started_ns if producer.finished_ns is None else producer.finished_ns
        return max(0, min(times[-1] if times else ended, to.started_ns) - producer.started_ns)

    def onwards(at: NodeTrace) -> Iterator[int]:
        assert at.started_ns is not None
        yield (run.end_ns if at.finished_ns is None else at.finished_ns) - at.started_ns
        for s in run.graph.stitches:
            to = run.nodes.get(s.consumer)
            if s.producer == at.unit and to is not None and to.started_ns is not None:
                yield from (handed_on(at, s.source, to) + rest for rest in onwards(to))

    for node in run.nodes.values():
        if node.started_ns is not None:
            yield from onwards(node)


@given(runs())
@settings(max_examples=300)
def test_the_critical_path_is_the_longest_of_all_and_fits_into_the_run(run: RunTrace) -> None:
    found = figures(run)
    assert found.critical_path_ns == max(chains(run), default=0)
    assert found.critical_path_ns <= found.duration_ns
    assert sum(parts(run, found.path)) == found.critical_path_ns
    edges = {(s.producer, s.consumer) for s in run.graph.stitches}
    assert all(step in edges for step in pairwise(found.path))


@given(runs())
@settings(max_examples=100)
def test_times_add_up(run: RunTrace) -> None:
    found = figures(run)
    assert 0 <= found.busy_ns <= min(found.duration_ns, found.compute_ns)
    assert found.overlap_pct is None or 0 <= found.overlap_pct <= 100
    ticks, waiting, computing = set[int](), set[int](), set[int]()
    for n in run.nodes.values():
        if n.started_ns is not None:
            during = range(n.started_ns, run.end_ns if n.finished_ns is None else n.finished_ns)
            ticks.update(during)
            (waiting if n.awaited or run.graph.units[n.unit].role != "fire" else computing).update(during)
    assert found.busy_ns == len(ticks)
    assert found.overlap_pct == (100 * len(waiting & computing) / len(waiting) if waiting else None)


def covered(intervals: list[tuple[int, int]]) -> set[int]:
    return {tick for begin, end in intervals for tick in range(begin, end)}


@given(spans, spans)
def test_unions_and_what_is_common(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    first, second = union(one), union(other)
    assert covered(first) == covered(one)
    assert length(first) == len(covered(one))
    assert all(a[1] < b[0] for a, b in pairwise(first))
    both = common(first, second)
    assert covered(both) == covered(one) & covered(other)
    assert length(both) == len(covered(one) & covered(other))
