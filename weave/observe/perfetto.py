"""A trace as Perfetto and chrome://tracing read it: JSON of trace events.

A process for each file, which is a rank's or the only one; in it tracks of the runs, of each thread that computed, of
what was sent and received. On one track Perfetto takes slices that nest, and drops or misplaces those that overlap
otherwise, so what goes on at once (coroutines awaited on one thread, concurrent runs) lies on several tracks:
`worker 1`, `worker 1 (2)`. Nodes aren't nested either: one inside another would read as a call.

Arrows follow the values: from a node to those that needed what it gave, and from a send to its receive.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from weave.observe.figures import Figures, figures
from weave.observe.lanes import lanes
from weave.observe.trace import NodeTrace, RunTrace, Trace, TransferTrace

Event = dict[str, Any]

UNFINISHED = "the recording ends before this does"


@dataclass
class _Slice:
    """A stretch of a track. Where it is `parted`, it is drawn as two: waiting, and from there on what was waited for."""

    begin: int
    end: int
    name: str
    kind: str
    args: Event
    parted: int | None = None
    pid: int = 0
    tid: int = 0

    def __post_init__(self) -> None:
        # A nanosecond at least, which is less than the clock can tell: an arrow needs a slice that it can lie in, and
        # at the end of one Perfetto has forgotten it.
        self.end = max(self.end, self.begin + 1)


class _Arrow(NamedTuple):
    kind: str
    tail: _Slice
    leaves: int
    head: _Slice
    meets: int


@dataclass
class _Process:
    name: str
    tracks: dict[str, list[_Slice]] = field(default_factory=lambda: {"runs": []})

    def put(self, track: str, drawn: _Slice) -> _Slice:
        self.tracks.setdefault(track, []).append(drawn)
        return drawn


class Drawing:
    """A trace's slices and arrows, as trace events.

    `left_out`: how many arrows there are not, because they would have led back in time, by `behind_ns` at most. Within a
    rank none does. Between ranks it comes of clocks that differ by more than a transfer takes. Moving a slice so that
    its arrow fits would falsify times that are right among its own rank's; so the arrow is left out, and it's said.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.left_out = self.behind_ns = 0
        self._arrows: list[_Arrow] = []
        self._sent: dict[str, list[_Slice]] = {}
        self._received: dict[str, list[_Slice]] = {}
        self._processes: dict[tuple[int, int], _Process] = {}
        for run in trace.runs:
            process = self._process(run)
            process.put("runs", _whole(run, found := figures(run)))
            self._nodes(run, found, process)
            for transfer in run.transfers:
                self._transfer(run, transfer, process)
        for transfer_id, sent in self._sent.items():
            by_time = sorted(self._received.get(transfer_id, ()), key=_begin)  # an id that is used again
            for tail, head in zip(sorted(sent, key=_begin), by_time, strict=False):
                self._meet(tail, head)

    def _process(self, run: RunTrace) -> _Process:
        key = (
            -1 if run.rank is None else run.rank,
            run.file,
        )  # two files of one rank are two processes, with threads each
        if key not in self._processes:
            header = self.trace.headers[run.file] if run.file < len(self.trace.headers) else {}
            said = [f"rank {run.rank}" if run.rank is not None else "weave"]
            said += [str(header["program"])] if header.get("program") else []
            said += [f"(pid {header['pid']})"] if header.get("pid") else []
            self._processes[key] = _Process(" ".join(said))
        return self._processes[key]

    def _nodes(self, run: RunTrace, found: Figures, process: _Process) -> None:
        drawn: dict[int, _Slice] = {}
        critical = set(found.path)
        for unit, node in sorted(run.nodes.items()):
            if node.started_ns is not None:
                until = run.end_ns if node.finished_ns is None else node.finished_ns
                name = node.node if node.status == "ok" else f"{node.node} ({node.status})"
                slice_ = _Slice(node.started_ns, until, name, "node", _facts(run, node, unit in critical))
                drawn[unit] = process.put(f"thread {node.thread}", slice_)
        for stitch in run.graph.stitches:
            tail, head = drawn.get(stitch.producer), drawn.get(stitch.consumer)
            if tail is None or head is None:
                continue
            if tail.begin > head.begin:
                self._leave_out(tail.begin - head.begin)
                continue
            given = [out.time_ns for out in run.nodes[stitch.producer].outputs if out.port == stitch.source]
            # Whoever waits for several values begins with the last. One that is said to have been handed on after that
            # (a clock is read after the fact) left when it must have.
            leaves = max(tail.begin, min(given[-1] if given else tail.end, tail.end - 1, head.begin))
            self._arrows.append(_Arrow("stitch", tail, leaves, head, head.begin))

    def _transfer(self, run: RunTrace, transfer: TransferTrace, process: _Process) -> None:
        send = transfer.direction == "send"
        until = run.end_ns if transfer.finished_ns is None else transfer.finished_ns
        way = f"{transfer.port} to {transfer.peer}" if send else f"{transfer.port} from {transfer.peer}"
        args: Event = {"node": transfer.node, "run": run.run, "transfer": transfer.transfer, "status": transfer.status}
        args |= _took(transfer.started_ns, transfer.finished_ns)
        args |= {fact: said for fact in ("value", "bytes", "error") if (said := getattr(transfer, fact))}
        slice_ = _Slice(transfer.started_ns, until, f"{transfer.direction} {way}", "transfer", args)
        process.put("sent" if send else "received", slice_)
        if send or transfer.status == "ok":  # what never came has no arrow
            (self._sent if send else self._received).setdefault(transfer.transfer, []).append(slice_)

    def _meet(self, tail: _Slice, head: _Slice) -> None:
        """The arrow of a transfer.

        A receive begins when its node begins to wait, mostly before the send does; Perfetto turns an arrow round that
        leads to a slice which began earlier. Such a receive is drawn in two parts, and the arrow leads to the second.
        """
        if tail.begin >= head.end:
            self._leave_out(tail.begin - head.end)
            return
        if tail.begin > head.begin:
            head.parted = tail.begin
        self._arrows.append(_Arrow("transfer", tail, tail.begin, head, max(tail.begin, head.begin)))

    def _leave_out(self, behind: int) -> None:
        self.left_out += 1
        self.behind_ns = max(self.behind_ns, behind)

    def events(self) -> list[Event]:
        """The trace events: what tracks are called, then all others by their time."""
        named: list[Event] = []
        timed: list[tuple[int, Event]] = []
        tid = len(self._processes)  # processes and threads share one row of numbers, as on a real machine
        for pid, (_, process) in enumerate(sorted(self._processes.items(), key=itemgetter(0)), 1):
            named += _called("process", pid, pid, process.name, pid)
            for label, slices in sorted(process.tracks.items(), key=_place):
                first = tid + 1
                for slice_, lane in zip(slices, lanes((s.begin, s.end) for s in slices), strict=True):
                    slice_.pid, slice_.tid = pid, first + lane
                    tid = max(tid, first + lane)
                    timed += _drawn(slice_)
                for number in range(first, tid + 1):
                    name = (label.removeprefix("thread ") or "a thread") + (
                        f" ({number - first + 1})" if number > first else ""
                    )
                    named += _called("thread", pid, number, name, number)
        for number, arrow in enumerate(self._arrows, 1):
            said = {"name": arrow.kind, "cat": arrow.kind, "id": number}
            tail, head = arrow.tail, arrow.head
            timed.append((arrow.leaves, {"ph": "s", **said, "pid": tail.pid, "tid": tail.tid}))
            timed.append((arrow.meets, {"ph": "f", "bp": "e", **said, "pid": head.pid, "tid": head.tid}))
        timed.sort(key=itemgetter(0))  # stable: at one time slices come first, else an arrow has nothing to lie in
        base = min(0, timed[0][0]) if timed else 0  # times are never negative, whatever a file says
        for time_ns, event in timed:
            event["ts"] = microseconds(time_ns - base)
        return named + [event for _, event in timed]

    def document(self) -> Event:
        """All of it, ready for `json.dump`."""
        facts = {
            "arrows_left_out": self.left_out,
            "headers": [dict(header) for header in self.trace.headers],
            "cut": self.trace.cut,
        }
        return {"traceEvents": self.events(), "displayTimeUnit": "ns", "otherData": facts}


def to_perfetto(trace: Trace) -> Event:
    """A trace as the object that Perfetto reads."""
    return Drawing(trace).document()


def write_perfetto(trace: Trace, path: str | Path) -> Drawing:
    """Write a trace for https://ui.perfetto.dev; returns the drawing, which knows what it left out."""
    drawing = Drawing(trace)
    Path(path).write_text(json.dumps(drawing.document(), separators=(",", ":")), encoding="utf-8")
    return drawing


def microseconds(ns: int) -> float:
    """The unit of trace events. Perfetto multiplies by 1000 and cuts the rest off, so that 1001 ns as 1.001 µs would
    become 1000 and overlap its neighbour: what would is put up by the least that there is.
    """
    value = ns / 1000
    while int(value * 1000.0) < ns:
        value = math.nextafter(value, math.inf)
    return value


def _begin(slice_: _Slice) -> int:
    return slice_.begin


def _place(track: tuple[str, list[_Slice]]) -> tuple[int, int, str]:
    """Where a track stands in its process: runs, threads by their first node, transfers."""
    label, slices = track
    return (0 if label == "runs" else 1 if label.startswith("thread ") else 2, min(map(_begin, slices)), label)


def _called(what: str, pid: int, tid: int, name: str, place: int) -> Iterator[Event]:
    at = {"ph": "M", "pid": pid, "tid": tid, "ts": 0.0}
    yield {"name": f"{what}_name", **at, "args": {"name": name}}
    yield {"name": f"{what}_sort_index", **at, "args": {"sort_index": place}}


def _drawn(slice_: _Slice) -> Iterator[tuple[int, Event]]:
    """A slice's events, without their time, and when each begins."""
    at = {"ph": "X", "cat": slice_.kind, "pid": slice_.pid, "tid": slice_.tid, "args": slice_.args}
    begin = slice_.begin
    if slice_.parted is not None:
        begin = slice_.parted
        waited = {**at, "name": f"wait: {slice_.name}", "dur": microseconds(begin - slice_.begin)}
        yield slice_.begin, waited
    yield begin, {**at, "name": slice_.name, "dur": microseconds(slice_.end - begin)}


def _took(begin: int, end: int | None) -> Event:
    return {"unfinished": UNFINISHED} if end is None else {"duration_ms": (end - begin) / 1e6}


def _whole(run: RunTrace, found: Figures) -> _Slice:
    """A run's slice."""
    name = f"run {run.run}" if run.status == "ok" else f"run {run.run} ({run.status})"
    args: Event = {"run": run.run, "status": run.status, "driver": run.driver, "graph": run.graph.id}
    args |= _took(run.started_ns, run.finished_ns)
    args |= {
        "critical_path_ms": found.critical_path_ns / 1e6,
        "critical_path": [run.nodes[unit].node for unit in found.path],
        "busy_ms": found.busy_ns / 1e6,
        "nodes": found.nodes,
        "bytes": found.bytes,
    }
    if found.overlap_pct is not None:
        args["overlap_pct"] = found.overlap_pct
    waiting = [node.node for node in run.nodes.values() if node.started_ns is None]
    if waiting:
        args["ready_but_never_started"] = waiting
    return _Slice(run.started_ns, run.end_ns, name, "run", args | _raised(run))


def _facts(run: RunTrace, node: NodeTrace, critical: bool) -> Event:
    """What a click on a node shows. `ready_ms` counts from the run's start."""
    assert node.started_ns is not None
    unit = run.graph.units[node.unit]
    args: Event = {"node": node.node, "unit": node.unit, "what": unit.what, "run": run.run, "status": node.status}
    args |= _took(node.started_ns, node.finished_ns)
    if node.ready_ns is not None:
        args["ready_ms"] = (node.ready_ns - run.started_ns) / 1e6
        args["wait_ms"] = max(0, node.started_ns - node.ready_ns) / 1e6
    if node.by:
        args["ready_by"] = node.by
    args |= {"thread": node.thread, "awaited": node.awaited, "on_critical_path": critical}
    if node.outputs:
        args["outputs"] = [
            {"port": o.port, "value": o.value, "bytes": o.bytes, "after_ms": (o.time_ns - node.started_ns) / 1e6}
            for o in node.outputs
        ]
    return args | _raised(node)


def _raised(of: RunTrace | NodeTrace) -> Event:
    return {fact: said for fact in ("error_type", "error") if (said := getattr(of, fact))}
