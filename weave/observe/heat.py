"""How long the nodes of a graph took in a trace: what a picture of the graph is coloured by."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from typing import NamedTuple

from weave.observe.figures import critical_path
from weave.observe.trace import Trace


class Times(NamedTuple):
    """`mean_ns` by node, of the runs in which it ended; `critical`: on the critical path of at least half of `runs`."""

    runs: int
    mean_ns: dict[str, float]
    critical: frozenset[str]

    def heat(self) -> dict[str, tuple[float, str]]:
        """By node: its share of the longest mean, and its own mean as text."""
        most = max(self.mean_ns.values(), default=0.0)
        return {node: (mean / most if most else 0.0, said(mean)) for node, mean in self.mean_ns.items()}


def times(trace: Trace, nodes: Collection[str]) -> Times:
    """The times of these nodes, of those runs whose graph has all of them."""
    wanted = frozenset(nodes)
    spans: dict[str, list[int]] = defaultdict(list)
    critical: Counter[str] = Counter()
    runs = 0
    has: dict[int, bool] = {}  # by graph: asked once, not for every run
    for run in trace.runs:
        if id(run.graph) not in has:
            has[id(run.graph)] = wanted <= {unit.node for unit in run.graph.units}
        if not has[id(run.graph)]:
            continue
        runs += 1
        critical.update({run.graph.units[unit].node for unit in critical_path(run)[1]})
        for node in run.nodes.values():
            if node.node in wanted and node.started_ns is not None and node.finished_ns is not None:
                spans[node.node].append(node.finished_ns - node.started_ns)
    means = {node: sum(some) / len(some) for node, some in spans.items()}
    return Times(
        runs, means, frozenset(node for node, count in critical.items() if node in wanted and 2 * count >= runs)
    )


def said(ns: float) -> str:
    """A time as people say it, to three digits: `950 ns`, `1.20 ms`."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= 0.9995 * size:
            value = ns / size
            return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f} {unit}"
    return f"{ns:.0f} ns"
