"""What a run's events add up to: critical path, busy time, overlap. Computed from a recording, live or read back alike.

The critical path is the longest chain of nodes each of which waited for the one before, by the times that were measured:
with any number of threads, and no cost of our own, the run could not have been faster. A node that hands a value on
before its end counts up to there for who waits for that value.

Overlap: of the time in which something was awaited or transferred, the share in which something else computed.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from weave.observe.trace import NodeTrace, RunTrace

Interval = tuple[int, int]


class Figures(NamedTuple):
    """Of one run; times in nanoseconds.

    `path`: the units of the critical path, in order. `busy_ns`: how long at least one node computed or was awaited.
    `compute_ns`: the sum of the nodes' own times, `waited_ns` of the times between ready and started.
    `overlap_pct`: `None` where nothing was awaited or transferred.
    """

    duration_ns: int
    critical_path_ns: int
    path: tuple[int, ...]
    busy_ns: int
    compute_ns: int
    waited_ns: int
    overlap_pct: float | None
    nodes: int
    bytes: int


def figures(run: RunTrace) -> Figures:
    """A run's figures. Of one that is unfinished, as far as it is known."""
    end = run.end_ns
    spans: list[Interval] = []
    computing: list[Interval] = []
    waiting = [(t.started_ns, end if t.finished_ns is None else t.finished_ns) for t in run.transfers]
    waited = total = size = 0
    for node in run.nodes.values():
        if node.started_ns is None:
            continue
        span = (node.started_ns, end if node.finished_ns is None else node.finished_ns)
        spans.append(span)
        # A send or a receive is no computing, whether it holds a thread meanwhile or is awaited.
        idle = node.awaited or run.graph.units[node.unit].role != "fire"
        (waiting if idle else computing).append(span)
        total += span[1] - span[0]
        if node.ready_ns is not None:
            waited += max(0, node.started_ns - node.ready_ns)
        size += sum(out.bytes for out in node.outputs)
    covered = union(waiting)
    critical, path = critical_path(run)
    return Figures(
        duration_ns=end - run.started_ns,
        critical_path_ns=critical,
        path=path,
        busy_ns=length(union(spans)),
        compute_ns=total,
        waited_ns=waited,
        overlap_pct=100 * length(common(covered, union(computing))) / length(covered) if length(covered) else None,
        nodes=sum(node.status == "ok" for node in run.nodes.values()),
        bytes=size,
    )


def critical_path(run: RunTrace) -> tuple[int, tuple[int, ...]]:
    """The longest chain's length in nanoseconds, and its units from first to last."""
    earliest: dict[int, int] = {}  # by unit: when it could have started at the soonest, on a clock of its own
    before: dict[int, int] = {}
    entries, end = run.graph.entries(), run.end_ns
    for unit in sorted(run.nodes):  # units stand in topological order
        node = run.nodes[unit]
        if node.started_ns is None:
            continue
        earliest[unit], before[unit] = 0, -1
        for stitch in entries[unit]:
            producer = run.nodes.get(stitch.producer)
            if producer is None or producer.unit not in earliest:
                continue
            could = earliest[producer.unit] + _until(producer, stitch.source, node.started_ns)
            if could > earliest[unit] or before[unit] < 0:
                earliest[unit], before[unit] = could, producer.unit
    if not earliest:
        return 0, ()
    ends = {unit: start + _until(run.nodes[unit], None, end) for unit, start in earliest.items()}
    last = max(ends, key=lambda unit: (ends[unit], -unit))
    path = [last]
    while before[path[-1]] >= 0:
        path.append(before[path[-1]])
    return ends[last], tuple(reversed(path))


def parts(run: RunTrace, path: tuple[int, ...]) -> tuple[int, ...]:
    """What each unit of a critical path adds to it, in nanoseconds: up to where it gave to the next what that needed."""
    entries = run.graph.entries()
    added = []
    for unit, after in pairwise(path):
        begun = run.nodes[after].started_ns or 0
        ports = [stitch.source for stitch in entries[after] if stitch.producer == unit]
        added.append(max(_until(run.nodes[unit], port, begun) for port in ports))
    return (*added, *(_until(run.nodes[unit], None, run.end_ns) for unit in path[-1:]))


def _until(node: NodeTrace, port: str | None, latest: int) -> int:
    """How long after its start a node handed on what it gave at a port, or ended; for all that is known, at `latest`.

    Where nothing says when it handed a value on (it failed afterwards, or the recording ends before it does), whoever
    needed that value began with it at the latest.
    """
    if node.started_ns is None:
        return 0
    ends = [out.time_ns for out in node.outputs if out.port == port]
    ended = ends[-1] if ends else node.finished_ns
    return max(0, (latest if ended is None else min(ended, latest)) - node.started_ns)


def union(spans: Iterable[Interval]) -> list[Interval]:
    """The same stretch of time as intervals that neither touch nor overlap, ascending."""
    joined: list[Interval] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        elif end > begin:
            joined.append((begin, end))
    return joined


def common(one: list[Interval], other: list[Interval]) -> list[Interval]:
    """Where both of two unions are."""
    both: list[Interval] = []
    i = j = 0
    while i < len(one) and j < len(other):
        begin, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if end > begin:
            both.append((begin, end))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return both


def length(spans: Iterable[Interval]) -> int:
    """How long a union is, in nanoseconds."""
    return sum(end - begin for begin, end in spans)
