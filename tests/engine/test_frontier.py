"""The frontier against a naive evaluation: random graphs, units fired in any order that it allows, and by threads."""

import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from weave import ExternalTarget, FunctionTarget, Needle, StitchedModule
from weave.engine.frontier import Frontier
from weave.engine.program import THREAD
from weave.graph.args import InputArgs
from weave.graph.plan import Plan


def combine(*values: int) -> int:
    return 1 + sum((place + 2) * value for place, value in enumerate(values))


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    """By node: whom it takes its arguments from, -1 being the caller; repeats and several readers are common."""
    size = draw(st.integers(1, 25))
    return [draw(st.lists(st.integers(-1, node - 1), max_size=4)) for node in range(size)]


def knot(graph: list[list[int]]) -> StitchedModule:
    ext, needle = ExternalTarget(), Needle()
    targets = [FunctionTarget(f"f{i}", combine) for i in range(len(graph))]
    outs = [t.output() for t in targets]  # one descriptor for all readers: one exit with many slots
    for target, out, feeders in zip(targets, outs, graph, strict=True):
        needle.get_node_for_target(target)
        for feeder in feeders:
            needle.stitch(ext.input("x") if feeder < 0 else outs[feeder], target.input())
        needle.stitch(out, ext.output(target.name))
    return needle.knot(ignore_extra_overrides=True)


def naive(graph: list[list[int]], x: int) -> dict[str, int]:
    values: list[int] = []
    for feeders in graph:
        values.append(combine(*(x if feeder < 0 else values[feeder] for feeder in feeders)))
    return {f"f{i}": value for i, value in enumerate(values)}


def begin(stitched: StitchedModule, x: int) -> Frontier:
    frontier = Frontier(stitched._program, (), {})
    for way in frontier.plan.given:
        frontier.queue(frontier.put(way, InputArgs(x)))
    return frontier


def fire(frontier: Frontier, index: int) -> list[int]:
    """What a driver does of a plain call; what became ready by it is queued, and returned."""
    plan: Plan = frontier.plan
    unit = plan.units[index]
    taken, _ = frontier.take(unit, unit.entries)
    call = sum(taken, InputArgs())
    result = combine(*call.args)
    became = [ready for way in unit.exits for ready in frontier.put(way, result)]
    frontier.queue(became)
    return became


def results(frontier: Frontier) -> dict[str, int]:
    values, _ = frontier.take(None, frontier.plan.taken)
    return {edge.port.name: value for edge, value in zip(frontier.plan.taken, values, strict=True)}


@given(graphs(), st.integers(-3, 3))
@settings(deadline=None)
def test_by_smallest_index_is_the_plans_order(graph: list[list[int]], x: int) -> None:
    frontier = begin(knot(graph), x)
    order = []
    while (index := frontier.next(THREAD)) is not None:
        order.append(index)
        fire(frontier, index)
    assert order == list(range(len(graph)))
    assert not frontier.waiting()
    assert results(frontier) == naive(graph, x)


@given(graphs(), st.integers(-3, 3), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_in_any_order_it_allows(graph: list[list[int]], x: int, random: object) -> None:
    frontier = begin(knot(graph), x)
    fired: list[int] = []
    at_hand: list[int] = []
    announced: set[int] = set()
    while True:
        while (index := frontier.next(THREAD)) is not None:
            at_hand.append(index)
        if not at_hand:
            break
        index = at_hand.pop(random.randrange(len(at_hand)))  # type: ignore[attr-defined]
        unit = frontier.plan.units[index]
        assert all(frontier.plan.producers[e.slot] in (-1, *fired) for e in unit.entries), "fired before its feeders"
        became = fire(frontier, index)
        fired.append(index)
        assert not announced & set(became), "a unit became ready twice"
        announced.update(became)
    assert sorted(fired) == list(range(len(graph)))
    assert results(frontier) == naive(graph, x)


@given(graphs(), st.integers(-3, 3))
@settings(deadline=None, max_examples=40)
def test_by_four_threads(graph: list[list[int]], x: int) -> None:
    frontier = begin(knot(graph), x)
    left = len(graph)
    turn = threading.Condition()
    failures: list[BaseException] = []

    def work() -> None:
        nonlocal left
        try:
            while True:
                with turn:
                    while left and (index := frontier.next(THREAD)) is None:
                        turn.wait()
                    if not left:
                        return
                    left -= 1
                fire(frontier, index)
                with turn:
                    turn.notify_all()
        except BaseException as error:
            failures.append(error)
            with turn:
                left = 0
                turn.notify_all()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert results(frontier) == naive(graph, x)


def test_units_that_wait_are_named() -> None:
    frontier = Frontier(knot([[-1], [0]])._program, (), {})
    assert frontier.next(THREAD) is None
    assert frontier.waiting() == [0, 1]
