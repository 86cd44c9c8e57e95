"""Random traces as hypothesis draws them, and their files.

A trace is simulated: nodes become ready when what they need was handed on, begin then or later, end, fail, are cancelled
or never end; runs of a process overlap, coroutines overlap on one thread, ranks send to each other by clocks that may be
wrong. Times are small whole numbers, so that much happens at the same nanosecond.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from weave.observe.trace import Graph, NodeTrace, OutputTrace, RunTrace, Stitch, Trace, TransferTrace, UnitInfo

BEGAN = 1764547200000000000


class Tape:
    """Choices out of bytes: one draw for a whole trace is quick, and a trace of zeros is the simplest one."""

    def __init__(self, choices: bytes) -> None:
        self._choices = iter(choices)

    def below(self, count: int) -> int:
        return next(self._choices, 0) % count

    def once_in(self, count: int) -> bool:
        return self.below(count) == count - 1


def traces(ranks: int = 3, runs: int = 3, units: int = 6) -> st.SearchStrategy[Trace]:
    """Traces of up to so many ranks, runs of each, units of each run's graph."""
    return st.binary(min_size=480, max_size=480).map(lambda choices: _trace(Tape(choices), ranks, runs, units))


def runs(units: int = 6) -> st.SearchStrategy[RunTrace]:
    """A single run."""
    return traces(1, 1, units).map(lambda trace: trace.runs[0])


def _trace(tape: Tape, ranks: int, most: int, units: int) -> Trace:
    count = 1 + tape.below(ranks)
    numbered = count > 1 or tape.once_in(4)
    trace = Trace([], [])
    for rank in range(count):
        skew = tape.below(25) if tape.once_in(2) else 0  # nanoseconds by which this rank's clock is ahead
        trace.headers.append(header(rank if numbered else None, began_epoch_ns=BEGAN + skew))
        for place in range(1 + tape.below(most)):
            run = _run(tape, f"{rank}{place:011x}", units, skew + tape.below(20))
            run.rank, run.file = rank if numbered else None, rank
            trace.runs.append(run)
    if count > 1:
        _transfers(tape, trace)
    trace.runs.sort(key=lambda run: run.started_ns)
    # As read: the earliest file's clock is everybody's.
    first = min(header["began_epoch_ns"] for header in trace.headers) - BEGAN
    for run in trace.runs:
        _shift(run, -first)
    return trace


def _graph(tape: Tape, name: str, most: int) -> Graph:
    count = 1 + tape.below(most)
    roles = ["fire", "fire", "fire", "send", "receive"]
    units = tuple(UnitInfo(f"node_{unit}", "function f", roles[tape.below(5)]) for unit in range(count))
    stitches = []
    for consumer in range(count):
        for _ in range(tape.below(3)):
            producer = tape.below(consumer + 1) - 1
            port = "input('x')" if producer < 0 else ("output()", "output('a')", "output('b')")[tape.below(3)]
            stitches.append(Stitch(producer, consumer, port, "input()"))
    stitches.append(Stitch(count - 1, -1, "output()", "output('y')"))
    return Graph(name, units, tuple(stitches))


def _run(tape: Tape, name: str, units: int, started: int) -> RunTrace:
    graph = _graph(tape, f"graph of {name}", units)
    run = RunTrace(name, None, graph, ("inline", "tasks")[tape.below(2)], started)
    handed: dict[tuple[int, str], int] = {}  # when each port's value was, by unit and port
    broken = tape.once_in(3)
    for unit, entries in enumerate(graph.entries()):
        needed = [(s.producer, s.source) for s in entries if s.producer >= 0]
        if any(port not in handed for port in needed):
            continue
        node = NodeTrace(unit, graph.units[unit].node, ready_ns=max([started, *(handed[port] for port in needed)]))
        if needed:
            node.by = graph.units[max(needed, key=lambda port: handed[port])[0]].node
        run.nodes[unit] = node
        if not (broken and tape.once_in(6)):
            _fire(tape, run, node, handed, broken)
    ends = [n.finished_ns or n.started_ns or n.ready_ns or 0 for n in run.nodes.values()]
    if not (broken and tape.once_in(2)):
        run.finished_ns = max([started, *ends]) + tape.below(3)
        statuses = {node.status for node in run.nodes.values()}
        run.status = "failed" if "failed" in statuses else "cancelled" if "cancelled" in statuses else "ok"
        if run.status == "failed":
            run.error_type, run.error = "ValueError", "no\nweights"
    return run


def _fire(tape: Tape, run: RunTrace, node: NodeTrace, handed: dict[tuple[int, str], int], broken: bool) -> None:
    assert node.ready_ns is not None
    node.started_ns = node.ready_ns + tape.below(4)
    awaited = tape.once_in(3)
    node.thread = "MainThread" if awaited else f"worker {tape.below(2)}"
    took = tape.below(12)
    kind = tape.below(10) if broken else 0
    node.status = {7: "failed", 8: "cancelled", 9: "unfinished"}.get(kind, "ok")
    for port in dict.fromkeys(s.source for s in run.graph.stitches if s.producer == node.unit):
        at = node.started_ns + tape.below(took + 1)
        if node.status == "ok" or tape.once_in(2):  # what doesn't end well may have handed on something before
            handed[node.unit, port] = at
        if node.status == "ok":
            node.outputs.append(OutputTrace(port, at, f"float32[{took}]", 4 * took))
    if node.status != "unfinished":
        node.finished_ns = node.started_ns + took
        node.awaited = awaited and node.status == "ok"
    if node.status == "failed":
        node.error_type, node.error = "ValueError", "no\nweights"


def _transfers(tape: Tape, trace: Trace) -> None:
    by_rank: dict[int, RunTrace] = {run.file: run for run in trace.runs}
    ranks = sorted(by_rank)
    for number in range(tape.below(4)):
        sender = ranks[tape.below(len(ranks))]
        receiver = ranks[(sender + 1) % len(ranks)]
        for here, peer, direction in ((sender, receiver, "send"), (receiver, sender, "receive")):
            if tape.once_in(8):  # the other rank never came to it
                continue
            run = by_rank[here]
            at = run.started_ns + tape.below(15)
            transfer = TransferTrace(f"x{number}", f"to_{peer}.{direction}('x')", direction, peer, "x", at)
            state = tape.below(8)
            if state < 7:
                transfer.finished_ns = at + tape.below(10)
                transfer.status = "failed" if state == 6 else "ok"
            if transfer.status == "ok":
                transfer.value, transfer.bytes = "float32[3]", 12
            elif transfer.status == "failed":
                transfer.error = "gone"
            run.transfers.append(transfer)
    for run in trace.runs:
        run.transfers.sort(key=lambda transfer: transfer.started_ns)
        if run.finished_ns is not None:
            run.finished_ns = max([run.finished_ns, *(t.finished_ns or t.started_ns for t in run.transfers)])


def _shift(run: RunTrace, by: int) -> None:
    run.started_ns += by
    run.finished_ns = None if run.finished_ns is None else run.finished_ns + by
    for item in (*run.nodes.values(), *run.transfers):
        for name in ("ready_ns", "started_ns", "finished_ns"):
            if getattr(item, name, None) is not None:
                setattr(item, name, getattr(item, name) + by)
    for node in run.nodes.values():
        for out in node.outputs:
            out.time_ns += by


# --- files ---


def header(rank: int | None = None, **facts: Any) -> dict[str, Any]:
    return {
        "event": "trace.started",
        "format": 1,
        "weave": "0.1.0",
        "pid": 1000 + (rank or 0),
        "rank": rank,
        "began_epoch_ns": BEGAN,
        "python": "3.11.7",
        "torch": "2.13.0",
        "program": "examples/x.py",
    } | facts


def write(trace: Trace, directory: Path, name: str = "run.jsonl") -> list[Path]:
    """A trace's files, one for each header."""
    paths = []
    for file, head in enumerate(trace.headers):
        rank = head["rank"]
        path = directory / (name if rank is None else name.replace(".jsonl", f".rank{rank}.jsonl"))
        path.write_text("".join(json.dumps(line) + "\n" for line in lines(trace, file)))
        paths.append(path)
    return paths


def lines(trace: Trace, file: int = 0) -> list[Mapping[str, Any]]:
    """One file's lines: runs interleaved, by time."""
    began = trace.headers[file]["began_epoch_ns"]
    shift = began - min(head["began_epoch_ns"] for head in trace.headers)
    here = [run for run in trace.runs if run.file == file]
    graphs = {run.graph.id: run.graph for run in here}
    told = [(line["time_ns"], place, line) for place, run in enumerate(here) for line in _of_run(run, shift)]
    told.sort(key=lambda entry: (entry[0], entry[2]["event"] != "run.started"))
    return [
        trace.headers[file],
        *({"event": "graph", "graph": g.id, "units": g.units, "stitches": g.stitches} for g in graphs.values()),
        *(line for _, _, line in told),
    ]


def _of_run(run: RunTrace, shift: int) -> Iterable[dict[str, Any]]:
    def line(event: str, time_ns: int, **facts: Any) -> dict[str, Any]:
        kept = {name: fact for name, fact in facts.items() if fact not in (None, "", [])}
        return {"event": event, "run": run.run, "time_ns": time_ns - shift, **kept}

    def took(item: NodeTrace | TransferTrace | RunTrace) -> float:
        assert item.finished_ns is not None
        assert item.started_ns is not None
        return (item.finished_ns - item.started_ns) / 1e6

    yield line("run.started", run.started_ns, graph=run.graph.id, driver=run.driver)
    for node in run.nodes.values():
        at: dict[str, Any] = {"node": node.node, "unit": node.unit}
        if node.ready_ns is not None:
            yield line("node.ready", node.ready_ns, **at, by=node.by)
        if node.started_ns is not None:
            yield line("node.started", node.started_ns, **at, thread=node.thread)
        if node.finished_ns is not None:
            said = {"ok": "finished"}.get(node.status, node.status)
            outputs = [{**vars(out), "time_ns": out.time_ns - shift} for out in node.outputs]
            at |= {"thread": node.thread, "duration_ms": took(node), "awaited": node.awaited or None}
            at |= {"outputs": outputs, "error_type": node.error_type, "error": node.error}
            yield line(f"node.{said}", node.finished_ns, **at)
    for t in run.transfers:
        at = {"transfer": t.transfer, "node": t.node, "direction": t.direction, "peer": t.peer, "port": t.port}
        yield line("transfer.started", t.started_ns, **at)
        if t.finished_ns is not None:
            said = {"ok": "finished"}.get(t.status, t.status)
            at |= {"duration_ms": took(t), "value": t.value, "bytes": t.bytes, "error": t.error}
            yield line(f"transfer.{said}", t.finished_ns, **at)
    if run.finished_ns is not None:
        facts = {"duration_ms": took(run), "error_type": run.error_type, "error": run.error}
        yield line("run.finished", run.finished_ns, status=run.status, **facts)
