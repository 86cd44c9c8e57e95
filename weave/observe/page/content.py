"""What the page is told of a trace: lists of small numbers, texts said once, times from each run's start.

`model.js` reads it back, in the same order of fields. A node with its stitches costs about 100 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weave.observe.figures import figures
from weave.observe.lanes import lanes
from weave.observe.page.layout import places
from weave.observe.trace import Graph, NodeTrace, RunTrace, Trace


class Texts:
    """Each text once; elsewhere its place stands for it."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._place: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        """The place of a text."""
        place = self._place.get(text)
        if place is None:
            place = self._place[text] = len(self.all)
            self.all.append(text)
        return place


def content(trace: Trace) -> dict[str, Any]:
    """Everything that the page shows, ready for JSON."""
    texts = Texts()
    graphs: list[Any] = []
    known: dict[int, int] = {}  # by identity: the runs of one file share their graphs
    runs = []
    for run in trace.runs:
        if id(run.graph) not in known:
            known[id(run.graph)] = len(graphs)
            graphs.append(_graph(run.graph, texts))
        runs.append(_run(run, known[id(run.graph)], texts))
    header = trace.headers[0] if trace.headers else {}
    pairs = _pairs(trace.runs)
    return {
        "program": str(header.get("program") or ""),
        "versions": [f"{name} {header[name]}" for name in ("weave", "torch", "python") if header.get(name)],
        "began": header.get("began_epoch_ns"),
        "cut": trace.cut,
        "graphs": graphs,
        "runs": runs,
        "views": _views(trace.runs, pairs),
        "pairs": pairs,
        "texts": texts.all,
    }


def _graph(graph: Graph, texts: Texts) -> dict[str, Any]:
    return {
        "units": [
            [texts(unit.node), texts(unit.what), texts(unit.role), *place]
            for unit, place in zip(graph.units, places(graph), strict=True)
        ],
        "stitches": [[s.producer, s.consumer, texts(s.source), texts(s.destination)] for s in graph.stitches],
    }


def _run(run: RunTrace, graph: int, texts: Texts) -> dict[str, Any]:
    begin = run.started_ns
    names, lane_of_node, lane_of_transfer = _lanes(run)
    sums = figures(run)

    def since(time_ns: int | None) -> int | None:
        return None if time_ns is None else time_ns - begin

    return {
        "run": run.run,
        "rank": run.rank,
        "graph": graph,
        "driver": run.driver,
        "begin": begin,
        "took": run.end_ns - begin,
        "status": run.status,
        "error": _error(run.error_type, run.error),
        "figures": [
            sums.duration_ns,
            sums.critical_path_ns,
            sums.busy_ns,
            sums.compute_ns,
            sums.waited_ns,
            None if sums.overlap_pct is None else round(sums.overlap_pct, 1),
            sums.nodes,
            sums.bytes,
        ],
        "path": list(sums.path),
        "lanes": names,
        "nodes": [
            [
                node.unit,
                lane_of_node.get(node.unit, -1),
                texts(node.status),
                int(node.awaited),
                texts(node.thread),
                since(node.ready_ns),
                since(node.started_ns),
                since(node.finished_ns),
                texts(node.by),
                texts(_error(node.error_type, node.error)),
                [[texts(out.port), out.time_ns - begin, texts(out.value), out.bytes] for out in node.outputs],
            ]
            for node in run.nodes.values()
        ],
        "transfers": [
            [
                lane_of_transfer[place],
                texts(transfer.status),
                texts(transfer.node),
                int(transfer.direction == "send"),
                transfer.peer,
                texts(transfer.port),
                since(transfer.started_ns),
                since(transfer.finished_ns),
                texts(transfer.value),
                transfer.bytes,
                texts(transfer.error),
            ]
            for place, transfer in enumerate(run.transfers)
        ],
    }


def _error(kind: str, message: str) -> str:
    return ": ".join(part for part in (kind, message) if part)


def _lanes(run: RunTrace) -> tuple[list[str], dict[int, int], list[int]]:
    """The lanes' names from top to bottom, the lane of each unit that has started, the lane of each transfer.

    First what computed, a lane a thread; then what was awaited on a thread's loop, in as many as were awaited at once;
    then what was on its way. What was cancelled was awaited.
    """
    groups: dict[tuple[bool, str], list[NodeTrace]] = {}
    for node in sorted(run.nodes.values(), key=lambda node: (node.started_ns or 0, node.unit)):
        if node.started_ns is not None:
            groups.setdefault((node.awaited or node.status == "cancelled", node.thread), []).append(node)
    names: list[str] = []
    of_node: dict[int, int] = {}
    end = run.end_ns
    for (awaited, thread), nodes in sorted(groups.items(), key=lambda group: group[0][0]):
        name = f"{thread} · awaited" if awaited else thread
        spans = ((node.started_ns or 0, end if node.finished_ns is None else node.finished_ns) for node in nodes)
        of_node.update(zip((node.unit for node in nodes), _on_lanes(spans, name, names), strict=True))
    of_transfer = [0] * len(run.transfers)
    for direction, name in (("send", "sends"), ("receive", "receives")):
        of_direction = [place for place, transfer in enumerate(run.transfers) if transfer.direction == direction]
        ways = [run.transfers[place] for place in of_direction]
        spans = ((way.started_ns, end if way.finished_ns is None else way.finished_ns) for way in ways)
        for place, lane in zip(of_direction, _on_lanes(spans, name, names), strict=True):
            of_transfer[place] = lane
    return names, of_node, of_transfer


def _on_lanes(spans: Iterable[tuple[int, int]], name: str, names: list[str]) -> list[int]:
    """Lanes for spans that stand below what is there; puts their names to the others'."""
    first = len(names)
    on = lanes(spans)
    names += [name] * (max(on, default=-1) + 1)
    return [first + lane for lane in on]


def _pairs(runs: list[RunTrace]) -> list[list[int]]:
    """Sends with their receives: `[run, transfer, run, transfer]`, places all of them."""
    ends: dict[tuple[str, str], tuple[int, int]] = {}
    for place, run in enumerate(runs):
        for number, transfer in enumerate(run.transfers):
            ends.setdefault((transfer.transfer, transfer.direction), (place, number))
    return [
        [*sent, *ends[name, "receive"]]
        for (name, direction), sent in ends.items()
        if direction == "send" and (name, "receive") in ends
    ]


def _views(runs: list[RunTrace], pairs: list[list[int]]) -> list[list[int]]:
    """The runs that are looked at together: those that sent each other values, or are one run on several ranks.

    Where that makes several, all of them together come last.
    """
    first = list(range(len(runs)))  # the first of those that belong together

    def root(place: int) -> int:
        while first[place] != place:
            place = first[place] = first[first[place]]
        return place

    same: dict[str, int] = {}
    joined = [(one, other) for one, _, other, _ in pairs]
    joined += [(same.setdefault(run.run, place), place) for place, run in enumerate(runs)]
    for one, other in joined:
        low, high = sorted((root(one), root(other)))
        first[high] = low
    views: dict[int, list[int]] = {}
    for place in range(len(runs)):
        views.setdefault(root(place), []).append(place)
    together = [sorted(view, key=lambda place: (runs[place].rank or 0, place)) for view in views.values()]
    if len(together) > 1:
        together.append(sorted(range(len(runs)), key=lambda place: (runs[place].rank or 0, place)))
    return together
