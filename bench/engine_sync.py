"""Section *engine*: a graph of functions that do nothing, in one thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bench.comparing import Comparison, Entry, Experiment
from bench.graphs import Shape, chain, doing_nothing, layered, mixing
from bench.pairing import Contender, Pace, finish, measure
from bench.peers import bare, hamilton_graphs, langgraph_graphs, sewing_kit, weave_graphs
from bench.rows import Row, judged

SECTION = "engine"
SIZES = (100, 1_000, 10_000)


def experiments(pace: Pace) -> list[Experiment]:
    return [
        *(
            Experiment(f"sync, {shape.name} of {len(shape)}", partial(_no_ops, shape))
            for make in (chain, layered)
            for shape in map(make, pace.pick(SIZES, SIZES[:1]))
        ),
        *(Experiment(f"growth, {make(1).name}", partial(_growth, make)) for make in (chain, layered)),
    ]


def _no_ops(shape: Shape, pace: Pace) -> list[Row]:
    size = len(shape)
    timed, proof = doing_nothing(shape), mixing(shape)
    comparison = Comparison(
        section=SECTION, what=f"sync no-op functions, {shape.name} of {size:,}", per=size, each="node"
    )
    steep = (
        ""
        if size <= 1_000
        else "tried up to 1,000 nodes: a chain of that many is already more recursion than Python allows"
    )
    slow = "" if size <= 100 else "tried up to 100 nodes: each node has a step of its own, or each layer"
    quadratic = "" if size <= 100 else "tried up to 100 nodes: tying the graph takes seconds at a few hundred"
    swapped = "another result: it gives a function its arguments in the order in which they became ready"
    entries = [
        Entry("bare loop", lambda: bare.loop(timed), lambda: bare.loop(proof)()),
        Entry("weave", lambda: weave_graphs.call(timed), lambda: weave_graphs.call(proof)(), target=2.0),
        Entry(
            "sewing_kit",
            lambda: sewing_kit.call(timed),
            lambda: sewing_kit.call(proof)(),
            not_run=quadratic,
            when_unequal=swapped,
        ),
        Entry("Hamilton", lambda: hamilton_graphs.call(timed), lambda: hamilton_graphs.call(proof)(), not_run=steep),
        Entry("LangGraph", lambda: langgraph_graphs.call(timed), lambda: langgraph_graphs.call(proof)(), not_run=slow),
    ]
    return comparison.run(entries, pace.times(0.8)).rows


def _growth(make: Callable[[int], Shape], pace: Pace) -> list[Row]:
    """What a node costs in a graph of 10 000, over what it costs in one of 100."""
    small, large = make(SIZES[0]), make(pace.pick(SIZES[-1], SIZES[1]))
    comparison = Comparison(
        section=SECTION, what=f"a node among {len(large):,} over one among {len(small)}, {small.name}", each="node"
    )
    rows = []
    for peer, build, target in (("bare loop", bare.loop, None), ("weave", weave_graphs.call, 1.5)):
        for shape in (small, large):
            if build(mixing(shape))() != bare.loop(mixing(shape))():
                raise AssertionError(f"{peer} gave another result for {shape.name} of {len(shape)}")
        turns = [Contender("large", build(doing_nothing(large))), Contender("small", build(doing_nothing(small)))]
        timings = finish(measure(turns, pace.times(0.3)))
        ratio = timings.ratio("large", "small").times(len(small) / len(large))
        seconds = timings.seconds("large").median / len(large)
        rows.append(
            comparison.row(peer, seconds=seconds, clock=pace.clock("cpu"), checked=True, **judged(ratio, target))
        )
    return rows
