"""Section *engine*: how near a run comes to its critical path, when nodes wait rather than compute."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio

from bench.comparing import Compared, Comparison, Entry, Experiment
from bench.graphs import Graph, Shape, critical_path, mixing, scattered, side_by_side, sleeping
from bench.pairing import Pace
from bench.peers import bare, hamilton_graphs, langgraph_graphs, weave_graphs
from bench.rows import Row, judged

SECTION = "engine"
NAP = 0.05
TO_PATH, TO_GROUP = 1.08, 1.02


def experiments(pace: Pace) -> list[Experiment]:
    shape = scattered(pace.pick(120, 40))
    dice = random.Random(2)
    naps = [dice.uniform(0.2 * NAP, NAP) for _ in range(len(shape))]
    return [
        *(
            Experiment(f"{size} sleepers, {backend}", partial(_asleep, side_by_side(size), [NAP] * size, backend))
            for backend in ("asyncio", "trio")
            for size in pace.pick((100, 1_000), (100,))
        ),
        *(
            Experiment(f"graph of sleepers, {backend}", partial(_asleep, shape, naps, backend))
            for backend in ("asyncio", "trio")
        ),
        Experiment("blocking sleepers", _blocking),
    ]


def _asleep(shape: Shape, naps: list[float], backend: str, pace: Pace) -> list[Row]:
    timed, proof = sleeping(shape, naps), mixing(shape, waits=True)
    kind = (
        f"{len(shape):,} sleepers of {NAP * 1e3:.0f} ms"
        if len(shape.ends) == len(shape)
        else f"{len(shape)} sleepers in a graph"
    )

    def entry(name: str, build: Callable[[Graph], Callable[[], Awaitable[Any]]], **more: Any) -> Entry:
        return Entry(name, lambda: build(timed), lambda: build(proof)(), **more)

    slow = "" if len(shape) < 1_000 else "tried up to 120 nodes"
    if backend == "asyncio":
        entries = [
            entry("TaskGroup", bare.task_group),
            entry("weave", weave_graphs.run, target=TO_GROUP),
            entry("Hamilton", hamilton_graphs.run, not_run=slow),
            entry("LangGraph", langgraph_graphs.run, not_run=slow),
        ]
    else:
        entries = [entry("trio nursery, events", bare.nursery), entry("weave", weave_graphs.run, target=TO_GROUP)]
    return _compare(f"{kind}, {backend}", entries, critical_path(shape, naps), backend, pace)


def _blocking(pace: Pace) -> list[Row]:
    """Sync functions that block their thread, as many as there may be threads."""
    shape = side_by_side(8)
    timed, proof = sleeping(shape, [NAP] * 8, waits=False), mixing(shape)
    entries = [
        Entry("a pool of 8 threads", lambda: bare.threads(timed), lambda: bare.threads(proof)()),
        Entry(
            "weave, max_workers=8",
            lambda: weave_graphs.run(timed, max_workers=8),
            lambda: weave_graphs.run(proof, max_workers=8)(),
            target=TO_GROUP,
        ),
    ]
    return _compare("8 functions that block for 50 ms, asyncio", entries, NAP, "asyncio", pace)


def _compare(what: str, entries: list[Entry], path: float, backend: str, pace: Pace) -> list[Row]:
    beside = Comparison(section=SECTION, what=what, clock="wall")
    compared: Compared = anyio.run(beside.run_async, entries, pace.times(0.8), backend=backend)
    over = Comparison(section=SECTION, what=f"{what}: over critical path ({path * 1e3:.0f} ms)")
    rows = list(compared.rows)
    names = [name for name in compared.timed if not name.endswith(", again")]
    if path < NAP * 1.5:  # side by side: what is done besides sleeping, which a busy machine doesn't change
        work = Comparison(section=SECTION, what=f"{what}: processor seconds")
        for name in names[1:]:
            seconds = compared.timings.seconds(name, "cpu").median
            figures = judged(compared.timings.ratio(name, names[0], "cpu"), None)
            rows.append(work.row(name, seconds=seconds, clock="cpu", checked=True, **figures))
    for name in names:
        spread = compared.timings.seconds(name)
        target = TO_PATH if name.startswith("weave") else None
        rows.append(
            over.row(name, seconds=spread.median, clock="wall", checked=True, **judged(spread.times(1 / path), target))
        )
    return rows
