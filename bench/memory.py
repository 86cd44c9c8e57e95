"""Section *engine*: what a plan weighs, and a run. Counted by tracemalloc, so there is no noise to speak of."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio

from bench.comparing import Comparison, Experiment, told
from bench.graphs import Graph, Shape, chain, doing_nothing
from bench.pairing import Pace, Spread
from bench.peers import bare, hamilton_graphs, langgraph_graphs, sewing_kit, weave_graphs
from bench.rows import Row, Status, judged
from bench.tying import TIES

SECTION = "engine"
FEW = 100


def experiments(pace: Pace) -> list[Experiment]:
    return [Experiment("memory of a plan", _plans), Experiment("memory of a run", _runs)]


def _plans(pace: Pace) -> list[Row]:
    sizes = {"weave": pace.pick(10_000, FEW), "sewing_kit": FEW, "Hamilton": FEW, "LangGraph": FEW}
    return [
        _weighed("that tying takes", peer, size, 500.0 if peer == "weave" else None, partial(_tied, peer, chain(size)))
        for peer, size in sizes.items()
    ]


def _runs(pace: Pace) -> list[Row]:
    """The most that a run holds at a time. The values are one small number, so what is seen is all the run's own."""
    many = pace.pick(10_000, FEW)

    def on_a_loop() -> int:
        return anyio.run(_peak_async, weave_graphs.run(doing_nothing(chain(many), waits=True)))

    def called(build: Callable[[Graph], Callable[[], Any]], size: int) -> Callable[[], int]:
        return lambda: _peak(build(doing_nothing(chain(size))))

    weighed = partial(_weighed, "that a run takes")
    return [
        weighed("bare loop", many, None, called(bare.loop, many)),
        weighed("weave", many, 100.0, called(weave_graphs.call, many)),
        weighed("weave, on asyncio", many, 100.0, on_a_loop),
        weighed("sewing_kit", FEW, None, called(sewing_kit.call, FEW)),
        weighed("Hamilton", FEW, None, called(hamilton_graphs.call, FEW)),
        weighed("LangGraph", FEW, None, called(langgraph_graphs.call, FEW)),
    ]


def _weighed(what: str, peer: str, size: int, target: float | None, weigh: Callable[[], int]) -> Row:
    comparison = Comparison(section=SECTION, what=f"memory {what}, chain of {size:,}")
    try:
        weight = weigh() / size
    except Exception as error:
        status: Status = "missing" if isinstance(error, ImportError) else "broken"
        return comparison.row(peer, status=status, note=told(error), target=target, unit="B/node")
    return comparison.row(peer, unit="B/node", **judged(Spread(weight, weight, weight, 1), target))


def _tied(peer: str, shape: Shape) -> int:
    """Bytes that are held after tying and were not before. The first time is not counted: caches fill then."""
    TIES[peer](doing_nothing(shape))()
    tie = TIES[peer](doing_nothing(shape))
    with _Watch() as watch:
        tied = tie()
        gc.collect()
        held = watch.now()
    del tied
    return held


def _peak(run: Callable[[], Any]) -> int:
    run()
    with _Watch() as watch:
        run()
        return watch.most()


async def _peak_async(run: Callable[[], Awaitable[Any]]) -> int:
    await run()
    with _Watch() as watch:
        await run()
        return watch.most()


class _Watch:
    """Counts what is allocated inside."""

    def __enter__(self) -> _Watch:
        gc.collect()
        tracemalloc.start()
        return self

    def __exit__(self, *_: object) -> None:
        tracemalloc.stop()

    def now(self) -> int:
        return tracemalloc.get_traced_memory()[0]

    def most(self) -> int:
        return tracemalloc.get_traced_memory()[1]
