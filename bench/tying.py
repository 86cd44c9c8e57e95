"""Section *engine*: how long knot() takes. Absolute figures, so they depend on the machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.comparing import Comparison, Experiment, told
from bench.graphs import Graph, Shape, chain, diamonds, doing_nothing, mixing
from bench.pairing import CLOCKS, Contender, Pace, Spread, Timed, finish, measure
from bench.peers import bare, hamilton_graphs, langgraph_graphs, sewing_kit, weave_graphs
from bench.rows import Row, Status, judged

SECTION = "engine"
Tie = Callable[[Graph], Callable[[], Any]]  # prepares all but the tying, which is what the returned function does


def experiments(pace: Pace) -> list[Experiment]:
    return [
        Experiment("knot, a chain", _chain),
        Experiment("knot, diamonds", _diamonds),
        Experiment("knot, a fresh process", _afresh),
    ]


def _weave(graph: Graph) -> Callable[[], Any]:
    return weave_graphs.needle(graph).knot


def _sewing_kit(graph: Graph) -> Callable[[], Any]:
    return sewing_kit.needle(graph).knot


def _langgraph(graph: Graph) -> Callable[[], Any]:
    return langgraph_graphs.state_graph(graph).compile


TIES: dict[str, Tie] = {
    "weave": _weave,
    "sewing_kit": _sewing_kit,
    "Hamilton": hamilton_graphs.builder,
    "LangGraph": _langgraph,
}


def _chain(pace: Pace) -> list[Row]:
    _check(chain(100))
    sizes = {"weave": pace.pick(1_000, 100), "sewing_kit": 100, "Hamilton": 100, "LangGraph": 100}
    rows = []
    for peer, size in sizes.items():
        comparison = Comparison(section=SECTION, what=f"tying a chain of {size:,}", each="node", per=size)
        rows.append(_ties(peer, chain(size), comparison, "µs/node", 10.0, pace.times(0.3)))
    return rows


def _diamonds(pace: Pace) -> list[Row]:
    """sewing_kit with two sizes, because it is the growth that matters: it follows each path anew."""
    _check(diamonds(10))
    rows = []
    for peer, count in (("weave", pace.pick(1_000, 10)), ("sewing_kit", 8), ("sewing_kit", 10)):
        comparison = Comparison(section=SECTION, what=f"tying {count:,} diamonds")
        rows.append(_ties(peer, diamonds(count), comparison, "ms", 50.0, pace.times(0.4)))
    return rows


_SCALES = {"µs/node": 1e6, "ms": 1e3}


def _ties(peer: str, shape: Shape, comparison: Comparison, unit: str, target: float, pace: Pace) -> Row:
    """How long this peer takes. The target is weave's."""

    clock = pace.clock("cpu")
    now = CLOCKS[clock]

    def once() -> Timed:
        tie = TIES[peer](doing_nothing(shape))  # a graph that was never tied before
        begin = now()
        tie()
        return Timed(now() - begin)

    aim = target if peer == "weave" else None
    try:
        seconds = finish(measure([Contender(peer, once)], pace)).seconds(peer)
    except Exception as error:
        status: Status = "missing" if isinstance(error, ImportError) else "broken"
        return comparison.row(peer, status=status, note=told(error), target=aim, unit=unit)
    figures = judged(seconds.times(_SCALES[unit] / comparison.per), aim)
    return comparison.row(peer, unit=unit, clock=clock, checked=peer == "weave", **figures)


_ALONE = """
import time
from bench.graphs import diamonds, doing_nothing
from bench.peers import weave_graphs
needle = weave_graphs.needle(doing_nothing(diamonds({count})))
begin = time.process_time()
needle.knot()
print(time.process_time() - begin)
"""


def _afresh(pace: Pace) -> list[Row]:
    """What a program meets that ties one graph, once: everything for the first time, and the collector on."""
    count, times = pace.pick(1_000, 10), pace.pick(3, 1)
    comparison = Comparison(section=SECTION, what=f"tying {count:,} diamonds in a fresh process, collector on")
    command = [sys.executable, "-c", _ALONE.format(count=count)]
    seconds = []
    for done in range(times):
        ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
        seconds.append(float(ran.stdout))
        pace.tick((done + 1) / times)
    return [
        comparison.row("weave", unit="ms", clock="cpu", checked=True, **judged(Spread.of(seconds).times(1e3), None))
    ]


def _check(shape: Shape) -> None:
    """That what is tied is the graph that was meant."""
    if weave_graphs.call(mixing(shape))() != bare.loop(mixing(shape))():
        raise AssertionError(f"weave gave another result for {shape.name}")
