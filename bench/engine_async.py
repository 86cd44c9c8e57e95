"""Section *engine*: a graph of coroutines that do nothing, on asyncio and on trio."""

from __future__ import annotations

from functools import partial

import anyio

from bench.comparing import Comparison, Entry, Experiment
from bench.graphs import Graph, Shape, chain, doing_nothing, layered, mixing
from bench.pairing import Pace
from bench.peers import bare, hamilton_graphs, langgraph_graphs, weave_graphs
from bench.rows import Row

SECTION = "engine"
SIZES = (100, 1_000, 5_000)


def experiments(pace: Pace) -> list[Experiment]:
    shapes = [shape for make in (chain, layered) for shape in map(make, pace.pick(SIZES, SIZES[:1]))]
    return [
        *(Experiment(f"asyncio, {shape.name} of {len(shape)}", partial(_on_asyncio, shape)) for shape in shapes),
        *(Experiment(f"trio, {shape.name} of {len(shape)}", partial(_on_trio, shape)) for shape in shapes),
    ]


def _on_asyncio(shape: Shape, pace: Pace) -> list[Row]:
    size = len(shape)
    timed, proof = doing_nothing(shape, waits=True), mixing(shape, waits=True)
    slow = "" if size <= 100 else "tried up to 100 nodes: each node has a step of its own, or each layer"
    steep = "" if size <= 1_000 else "tried up to 1,000 nodes: it recurses"
    entries = [
        Entry("TaskGroup", lambda: bare.task_group(timed), lambda: bare.task_group(proof)()),
        Entry("anyio group, events", lambda: bare.anyio_group(timed), lambda: bare.anyio_group(proof)()),
        _weave(timed, proof, size),
        Entry("Hamilton", lambda: hamilton_graphs.run(timed), lambda: hamilton_graphs.run(proof)(), not_run=steep),
        Entry("LangGraph", lambda: langgraph_graphs.run(timed), lambda: langgraph_graphs.run(proof)(), not_run=slow),
    ]
    return _run(shape, "asyncio", entries, pace)


def _on_trio(shape: Shape, pace: Pace) -> list[Row]:
    timed, proof = doing_nothing(shape, waits=True), mixing(shape, waits=True)
    entries = [
        Entry("trio nursery, events", lambda: bare.nursery(timed), lambda: bare.nursery(proof)()),
        _weave(timed, proof, len(shape)),
    ]
    return _run(shape, "trio", entries, pace.times(0.6))


def _weave(timed: Graph, proof: Graph, size: int) -> Entry:
    return Entry(
        "weave",
        lambda: weave_graphs.run(timed),
        lambda: weave_graphs.run(proof)(),
        target=0.3 if size >= 1_000 else None,
    )


def _run(shape: Shape, backend: str, entries: list[Entry], pace: Pace) -> list[Row]:
    what = f"async no-op coroutines on {backend}, {shape.name} of {len(shape):,}"
    comparison = Comparison(section=SECTION, what=what, per=len(shape), each="node")
    return anyio.run(comparison.run_async, entries, pace.times(0.8), backend=backend).rows
