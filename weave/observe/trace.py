"""A recorded trace, read back: runs, their graphs, their nodes, on one clock.

A trace is a JSON object a line. The first is the header, `trace.started`; `graph` describes a graph before the first of
its runs; every other line is an event of `weave.observe.EVENTS`. A file whose program was killed ends anywhere: a last
line that is cut is left out, and runs without an end are `"unfinished"`.

Several files, one a rank, become one trace: each header says when its clock began, in nanoseconds since the epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from weave.errors import TraceException

if TYPE_CHECKING:
    from weave.observe.figures import Figures

FORMAT = 1


class Stitch(NamedTuple):
    """A stitch of a recorded graph: places of units, -1 for the caller; ports without their nodes: `output('layers.3')`."""

    producer: int
    consumer: int
    source: str
    destination: str


class UnitInfo(NamedTuple):
    """A unit of a recorded graph: its node's id, what it is (`module Linear`, `function loss`), `fire|send|receive`."""

    node: str
    what: str
    role: str


@dataclass
class Graph:
    """A graph, as its runs' events know it."""

    id: str
    units: tuple[UnitInfo, ...]
    stitches: tuple[Stitch, ...]

    def entries(self) -> list[list[Stitch]]:
        """By unit, the stitches that end at it."""
        ending: list[list[Stitch]] = [[] for _ in self.units]
        for stitch in self.stitches:
            if stitch.consumer >= 0:
                ending[stitch.consumer].append(stitch)
        return ending


@dataclass
class OutputTrace:
    """A value handed on: `port` such as `output('layers.3')`, `value` such as `float32[8, 16]`; times in ns."""

    port: str
    time_ns: int
    value: str
    bytes: int


@dataclass
class NodeTrace:
    """One firing of one unit. Times are nanoseconds since the trace began; `None` where it didn't come to that.

    `status`: "ok", "failed", "cancelled", or "unfinished" where the recording ends before the node does.
    """

    unit: int
    node: str
    ready_ns: int | None = None
    by: str = ""  # the node that gave the last of what it needs
    started_ns: int | None = None
    finished_ns: int | None = None
    thread: str = ""
    status: str = "unfinished"
    awaited: bool = False
    outputs: list[OutputTrace] = field(default_factory=list)
    error: str = ""
    error_type: str = ""


@dataclass
class TransferTrace:
    """A value's way between ranks, as one rank saw it."""

    transfer: str
    node: str
    direction: str
    peer: int
    port: str
    started_ns: int
    finished_ns: int | None = None
    status: str = "unfinished"
    value: str = ""
    bytes: int = 0
    error: str = ""


@dataclass
class RunTrace:
    """One run. `nodes` are those that became ready at least, by unit."""

    run: str
    rank: int | None
    graph: Graph
    driver: str
    started_ns: int
    finished_ns: int | None = None
    status: str = "unfinished"
    nodes: dict[int, NodeTrace] = field(default_factory=dict)
    transfers: list[TransferTrace] = field(default_factory=list)
    finished: Mapping[str, Any] = field(default_factory=dict)  # the `run.finished` line, as it was written
    error: str = ""
    error_type: str = ""
    file: int = 0  # which of the files, as `Trace.headers` has them

    def figures(self) -> Figures:
        """What its events add up to."""
        from weave.observe.figures import figures

        return figures(self)

    @property
    def end_ns(self) -> int:
        """When it ended; the last that is known of it where it didn't."""
        if self.finished_ns is not None:
            return self.finished_ns
        known = [self.started_ns]
        for node in self.nodes.values():
            known += [t for t in (node.ready_ns, node.started_ns, node.finished_ns) if t is not None]
        for transfer in self.transfers:
            known.append(transfer.started_ns if transfer.finished_ns is None else transfer.finished_ns)
        return max(known)


@dataclass
class Trace:
    """Everything that the files say, runs by their start."""

    headers: list[Mapping[str, Any]]
    runs: list[RunTrace]
    cut: list[str] = field(default_factory=list)  # files whose last line was incomplete

    @property
    def ranks(self) -> list[int]:
        """The ranks that recorded, ascending; empty where there is but one process without a rank."""
        return sorted({run.rank for run in self.runs if run.rank is not None})


def read_trace(paths: Iterable[str | Path]) -> Trace:
    """Read files of one program, a rank each, onto one clock that begins with the earliest.

    Raises:
        TraceException: a file can't be read or isn't a trace; says which, where, and what to do.
    """
    files = [(Path(path), *_read(Path(path))) for path in paths]
    if not files:
        raise TraceException("no trace file was given; WEAVE_TRACE=run.jsonl records one")
    began = min(lines[0][1]["began_epoch_ns"] for _, lines, _ in files)
    runs: list[RunTrace] = []
    for file, (path, lines, _) in enumerate(files):
        header = lines[0][1]
        runs += _runs(path, lines, header["began_epoch_ns"] - began, file)
    runs.sort(key=lambda run: run.started_ns)
    return Trace([lines[0][1] for _, lines, _ in files], runs, [str(path) for path, _, cut in files if cut])


def _read(path: Path) -> tuple[list[tuple[int, dict[str, Any]]], bool]:
    """The lines of a file, with their numbers, and whether the last one was cut off."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise TraceException(f"{path} can't be read: {error.strerror or error}", path=str(path)) from error
    lines: list[tuple[int, dict[str, Any]]] = []
    texts = raw.split(b"\n")
    cut = False
    for number, text in enumerate(texts, 1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
            if not isinstance(line, dict) or not isinstance(line.get("event"), str):
                raise ValueError("not an object with a name under 'event'")
        except ValueError as error:
            if number == len(texts):  # what was written last when the program was killed
                cut = True
                break
            raise _not_a_trace(path, number, str(error)) from error
        lines.append((number, line))
    if not lines or lines[0][1]["event"] != "trace.started":
        raise _not_a_trace(path, 1, "it doesn't begin with the header 'trace.started'")
    if lines[0][1].get("format") != FORMAT:
        raise TraceException(
            f"{path} is a trace of format {lines[0][1].get('format')!r}, and this weave reads format {FORMAT}: "
            "use the weave that wrote it",
            path=str(path),
        )
    header = lines[0][1]
    if not isinstance(header.get("began_epoch_ns"), int) or not isinstance(header.get("rank"), int | None):
        raise _not_a_trace(path, 1, "its header lacks a whole number under 'began_epoch_ns', or has another 'rank'")
    return lines, cut


def _not_a_trace(path: Path, number: int, why: str) -> TraceException:
    return TraceException(
        f"{path}, line {number}, is not of a weave trace: {why}. WEAVE_TRACE=run.jsonl or weave.observe.Recorder writes one",
        path=str(path),
    )


def _runs(path: Path, lines: Sequence[tuple[int, dict[str, Any]]], shift: int, file: int) -> Iterator[RunTrace]:
    graphs: dict[str, Graph] = {}
    runs: dict[str, RunTrace] = {}
    rank = lines[0][1].get("rank")
    for number, line in lines[1:]:
        try:
            name = line["event"]
            if name == "graph":
                graphs[line["graph"]] = _graph(line)
            elif name == "run.started":
                runs[line["run"]] = RunTrace(
                    line["run"], rank, graphs[line["graph"]], line["driver"], line["time_ns"] + shift, file=file
                )
            elif "run" in line:
                take(runs[line["run"]], line, shift)
        except KeyError as error:
            raise _not_a_trace(
                path, number, f"{line['event']} has no {error}, or no line before it tells of it"
            ) from error
        except (AttributeError, TypeError, ValueError) as error:
            raise _not_a_trace(path, number, f"{type(error).__name__}: {error}") from error
    yield from runs.values()


def _graph(line: Mapping[str, Any]) -> Graph:
    units = tuple(UnitInfo(*unit) for unit in line["units"])
    stitches = tuple(Stitch(*stitch) for stitch in line["stitches"])
    if not all(-1 <= place < len(units) for stitch in stitches for place in stitch[:2]):
        raise ValueError(f"a stitch leads to a unit that is none of the {len(units)}")
    return Graph(line["graph"], units, stitches)


def take(run: RunTrace, line: Mapping[str, Any], shift: int) -> None:
    """Put one event's line into its run. `shift`: nanoseconds to add to its times."""
    name = line["event"]
    time_ns = line["time_ns"] + shift
    if name == "run.finished":
        run.finished_ns, run.status, run.finished = time_ns, line["status"], line
        run.error, run.error_type = line.get("error", ""), line.get("error_type", "")
    elif name.startswith("node."):
        if not 0 <= line["unit"] < len(run.graph.units):
            raise ValueError(f"the run's graph has no unit {line['unit']}")
        node = run.nodes.setdefault(line["unit"], NodeTrace(line["unit"], line["node"]))
        if name == "node.ready":
            node.ready_ns, node.by = time_ns, line.get("by", "")
        elif name == "node.started":
            node.started_ns, node.thread = time_ns, line["thread"]
        else:
            node.finished_ns = time_ns
            node.status = {"node.finished": "ok", "node.failed": "failed", "node.cancelled": "cancelled"}[name]
            node.awaited = line.get("awaited", False)
            node.error, node.error_type = line.get("error", ""), line.get("error_type", "")
            node.outputs = [
                OutputTrace(out["port"], out["time_ns"] + shift, out["value"], out["bytes"])
                for out in line.get("outputs", ())
            ]
    elif name.startswith("transfer."):
        _take_transfer(run, name, line, time_ns)


def _take_transfer(run: RunTrace, name: str, line: Mapping[str, Any], time_ns: int) -> None:
    if name == "transfer.started":
        run.transfers.append(
            TransferTrace(line["transfer"], line["node"], line["direction"], line["peer"], line["port"], time_ns)
        )
        return
    for transfer in reversed(run.transfers):
        if transfer.transfer == line["transfer"] and transfer.direction == line["direction"]:
            transfer.finished_ns = time_ns
            transfer.status = "ok" if name == "transfer.finished" else "failed"
            transfer.value, transfer.bytes = line.get("value", ""), line.get("bytes", 0)
            transfer.error = line.get("error", "")
            return
