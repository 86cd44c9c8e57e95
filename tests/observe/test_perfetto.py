"""A trace as Perfetto reads it. `imported` goes by the rules of Perfetto's own import: whole nanoseconds, cut off; slices
on a track nest or are dropped; an arrow is bound to the slice that is open on its track when it comes, and turned round
where the slice that it leads to began earlier."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings

from tests.observe.traces import header, traces
from weave.observe.figures import figures
from weave.observe.perfetto import Drawing, microseconds, to_perfetto, write_perfetto
from weave.observe.trace import Graph, NodeTrace, OutputTrace, RunTrace, Stitch, Trace, TransferTrace, UnitInfo


class Slice(NamedTuple):
    pid: int
    tid: int
    begin: int
    end: int
    name: str
    kind: str
    args: dict[str, Any]


class Imported(NamedTuple):
    slices: list[Slice]
    arrows: list[tuple[str, Slice, Slice]]
    tracks: dict[tuple[int, int], str]
    processes: dict[int, str]


def imported(document: dict[str, Any]) -> Imported:
    """What Perfetto makes of it; `AssertionError` where it would drop, misplace or turn round something."""
    assert document["displayTimeUnit"] in ("ns", "ms")
    events = json.loads(json.dumps(document, allow_nan=False))["traceEvents"]
    tracks: dict[tuple[int, int], str] = {}
    processes: dict[int, str] = {}
    on: dict[tuple[int, int], Slice] = {}  # by track, the last slice that began
    slices, arrows = [], []
    flying: dict[int, tuple[str, Slice]] = {}
    used: set[int] = set()
    now = 0
    for event in events:
        at = (event["pid"], event["tid"])
        if event["ph"] == "M":
            assert not slices, "what is called how comes first"
            if event["name"] == "thread_name":
                assert at not in tracks
                tracks[at] = event["args"]["name"]
            elif event["name"] == "process_name":
                assert event["pid"] not in processes
                processes[event["pid"]] = event["args"]["name"]
            continue
        ts = int(event["ts"] * 1000.0)
        assert ts >= now >= 0, "times go forward"
        now = ts
        assert at in tracks
        last = on.get(at)
        if event["ph"] == "X":
            dur = int(event["dur"] * 1000.0)
            assert dur > 0
            assert last is None or last.end <= ts, f"{last} overlaps {event}"
            on[at] = Slice(*at, ts, ts + dur, event["name"], event["cat"], event["args"])
            slices.append(on[at])
            continue
        assert last is not None
        assert last.begin <= ts < last.end, "an arrow lies in a slice"
        if event["ph"] == "s":
            assert event["id"] not in used
            used.add(event["id"])
            flying[event["id"]] = (event["name"] + event["cat"], last)
        else:
            assert event["ph"] == "f"
            assert event["bp"] == "e"
            kind, tail = flying.pop(event["id"])
            assert kind == event["name"] + event["cat"]
            assert tail.begin <= last.begin, "Perfetto turns this one round"
            arrows.append((event["cat"], tail, last))
    assert not flying
    assert len({tid for _, tid in tracks}) == len(tracks)
    assert not {tid for _, tid in tracks} & set(processes)
    assert {pid for pid, _ in tracks} == set(processes)
    assert set(tracks) == set(on), "no empty tracks"
    assert all(n == 1 for n in Counter((pid, name) for (pid, _), name in tracks.items()).values())
    return Imported(slices, arrows, tracks, processes)


@given(traces())
@settings(max_examples=1000)
def test_any_trace_keeps_to_perfettos_rules_and_says_all_of_it(trace: Trace) -> None:
    drawing = Drawing(trace)
    seen = imported(drawing.document())
    base = min([0, *(run.started_ns for run in trace.runs)])
    runs = Counter((run.run, run.started_ns - base) for run in trace.runs)
    assert Counter((s.args["run"], s.begin) for s in seen.slices if s.kind == "run") == runs

    nodes = {(run.run, node.unit): (run, node) for run in trace.runs for node in run.nodes.values() if _began(node)}
    drawn = {(s.args["run"], s.args["unit"]): s for s in seen.slices if s.kind == "node"}
    assert drawn.keys() == nodes.keys()
    assert len(drawn) == sum(s.kind == "node" for s in seen.slices)
    for key, (run, node) in nodes.items():
        slice_ = drawn[key]
        assert node.started_ns is not None
        until = run.end_ns if node.finished_ns is None else node.finished_ns
        assert (slice_.begin, slice_.end) == (node.started_ns - base, max(until, node.started_ns + 1) - base)
        assert ("unfinished" in slice_.args) == (node.finished_ns is None)
        assert seen.tracks[slice_.pid, slice_.tid].startswith(node.thread)

    stitched = Counter(
        (run.run, stitch.producer, stitch.consumer)
        for run in trace.runs
        for stitch in run.graph.stitches
        if (run.run, stitch.producer) in nodes and (run.run, stitch.consumer) in nodes
    )
    assert stitched == Counter(
        (tail.args["run"], tail.args["unit"], head.args["unit"])
        for kind, tail, head in seen.arrows
        if kind == "stitch" and tail.args["run"] == head.args["run"]
    )

    ends = {(run.file, t.transfer, t.direction): (run, t) for run in trace.runs for t in run.transfers}
    could, late = Counter[str](), 0
    for (_, name, direction), (run, sent) in ends.items():
        came = next((pair for key, pair in ends.items() if key[1:] == (name, "receive")), None)
        if direction == "send" and came is not None and came[1].status == "ok":
            assert came[1].finished_ns is not None
            if sent.started_ns < max(came[1].finished_ns, came[1].started_ns + 1):
                could[name] += 1
            else:
                late += 1
            assert run.file != came[0].file
    assert Counter(tail.args["transfer"] for kind, tail, _ in seen.arrows if kind == "transfer") == could
    for kind, tail, head in seen.arrows:
        if kind == "transfer":
            assert tail.args["transfer"] == head.args["transfer"]
            assert (tail.name.split()[0], head.name.split()[0]) == ("send", "receive")
    assert drawing.left_out == late


def _began(node: NodeTrace) -> bool:
    return node.started_ns is not None


@given(traces())
@settings(max_examples=100)
def test_its_figures_are_those_of_the_runs(trace: Trace) -> None:
    said = {s.args["run"]: s.args for s in imported(to_perfetto(trace)).slices if s.kind == "run"}
    for run in trace.runs:
        found, args = figures(run), said[run.run]
        assert args["critical_path_ms"] == found.critical_path_ns / 1e6
        assert args["critical_path"] == [run.nodes[unit].node for unit in found.path]
        assert args.get("overlap_pct") == found.overlap_pct
        assert (args["busy_ms"], args["nodes"], args["bytes"]) == (found.busy_ns / 1e6, found.nodes, found.bytes)
        assert args.get("duration_ms") == (None if run.finished_ns is None else found.duration_ns / 1e6)


@pytest.mark.parametrize(
    "ns", [0, 1, 1001, 2003, 290, 8_041_003, 1_000_000_007, 86_400_000_000_001, 5_000_000_000_000_033]
)
def test_a_nanosecond_is_never_lost(ns: int) -> None:
    assert int(microseconds(ns) * 1000.0) == ns
    assert microseconds(ns) == pytest.approx(ns / 1000)


def test_most_need_no_nudge_and_some_do() -> None:
    nudged = [ns for ns in range(5000) if microseconds(ns) != ns / 1000]
    assert nudged
    assert all(int(microseconds(ns) * 1000.0) == ns for ns in nudged)
    assert all(int(ns / 1000 * 1000.0) != ns for ns in nudged)


# --- by hand ---

PAIR = Graph(
    "g",
    (UnitInfo("teacher", "module Net", "fire"), UnitInfo("train", "function train", "fire")),
    (
        Stitch(-1, 0, "input('x')", "input()"),
        Stitch(0, 1, "output('2')", "input()"),
        Stitch(1, -1, "output()", "output()"),
    ),
)


def pair(run: str = "aa", rank: int | None = None, file: int = 0, shift: int = 0) -> RunTrace:
    """A teacher that hands on half-way."""
    made = RunTrace(run, rank, PAIR, "tasks", shift, shift + 130, "ok", file=file)
    out = OutputTrace("output('2')", shift + 50, "float32[2]", 8)
    made.nodes[0] = NodeTrace(0, "teacher", shift, "", shift + 10, shift + 100, "worker 1", "ok", outputs=[out])
    made.nodes[1] = NodeTrace(1, "train", shift + 50, "teacher", shift + 60, shift + 120, "worker 2", "ok")
    return made


def test_a_node_its_facts_and_its_arrow() -> None:
    document = to_perfetto(Trace([header()], [pair()]))
    seen = imported(document)
    assert list(seen.tracks.values()) == ["runs", "worker 1", "worker 2"]
    assert list(seen.processes.values()) == ["weave examples/x.py (pid 1000)"]
    run, teacher, train = seen.slices
    assert (run.name, run.begin, run.end) == ("run aa", 0, 130)
    assert (teacher.name, teacher.begin, teacher.end) == ("teacher", 10, 100)
    assert teacher.args == {
        "node": "teacher",
        "unit": 0,
        "what": "module Net",
        "run": "aa",
        "status": "ok",
        "duration_ms": 9e-5,
        "ready_ms": 0.0,
        "wait_ms": 1e-5,
        "thread": "worker 1",
        "awaited": False,
        "on_critical_path": True,
        "outputs": [{"port": "output('2')", "value": "float32[2]", "bytes": 8, "after_ms": 4e-5}],
    }
    assert (train.args["ready_by"], train.args["ready_ms"], train.args["wait_ms"]) == ("teacher", 5e-5, 1e-5)
    assert seen.arrows == [("stitch", teacher, train)]
    times = [(e["ph"], e["ts"]) for e in document["traceEvents"] if e["ph"] in "sf"]
    assert times == [("s", 0.05), ("f", 0.06)]  # it leaves when the value was handed on, not at the node's end


def test_what_goes_on_at_once_on_one_thread_lies_side_by_side() -> None:
    run = pair()
    for node in run.nodes.values():
        node.thread, node.awaited = "MainThread", True
    other = pair("bb", shift=5)
    seen = imported(to_perfetto(Trace([header()], [run, other])))
    assert sorted(seen.tracks.values()) == ["MainThread", "MainThread (2)", "runs", "runs (2)", "worker 1", "worker 2"]


def test_what_never_ended_goes_on_to_the_end_and_says_so() -> None:
    run = pair()
    run.finished_ns, run.status = None, "unfinished"
    run.nodes[0].finished_ns, run.nodes[0].status, run.nodes[0].outputs = None, "unfinished", []
    seen = imported(to_perfetto(Trace([header()], [run])))
    whole, teacher, _ = seen.slices
    assert (whole.name, whole.end) == ("run aa (unfinished)", 120)
    assert (teacher.name, teacher.end) == ("teacher (unfinished)", 120)
    assert teacher.args["unfinished"] == whole.args["unfinished"] == "the recording ends before this does"
    assert "duration_ms" not in teacher.args
    assert len(seen.arrows) == 1  # train began, so it had its value


def test_what_became_ready_and_never_began_is_named() -> None:
    run = pair()
    run.status, run.error_type, run.error = "failed", "ValueError", "no weights"
    run.nodes[0].status, run.nodes[0].error_type, run.nodes[0].error = "failed", "ValueError", "no weights"
    run.nodes[1] = NodeTrace(1, "train", 50, "teacher")
    seen = imported(to_perfetto(Trace([header()], [run])))
    assert [s.name for s in seen.slices] == ["run aa (failed)", "teacher (failed)"]
    assert seen.slices[0].args["ready_but_never_started"] == ["train"]
    assert seen.slices[1].args["error"] == "no weights"
    assert not seen.arrows


def _sent(received: tuple[int, int], sent: tuple[int, int]) -> tuple[Drawing, Imported]:
    runs = [pair("aa", 0, 0), pair("bb", 1, 1)]
    for run, direction, (begin, end) in zip(runs, ("send", "receive"), (sent, received), strict=True):
        peer = 1 - (run.rank or 0)
        run.transfers = [TransferTrace("t1", "n", direction, peer, "x", begin, end, "ok", "float32[2]", 8)]
    drawing = Drawing(Trace([header(0), header(1)], runs))
    return drawing, imported(drawing.document())


def test_a_receive_that_waited_is_drawn_in_two_parts() -> None:
    drawing, seen = _sent(received=(10, 70), sent=(40, 60))
    assert list(seen.processes.values()) == ["rank 0 examples/x.py (pid 1000)", "rank 1 examples/x.py (pid 1001)"]
    parts = [(s.name, s.begin, s.end) for s in seen.slices if s.kind == "transfer"]
    assert parts == [
        ("wait: receive x from 0", 10, 40),
        ("send x to 1", 40, 60),
        ("receive x from 0", 40, 70),
    ]
    [(_, tail, head)] = [arrow for arrow in seen.arrows if arrow[0] == "transfer"]
    assert (tail.name, head.name, head.begin) == ("send x to 1", "receive x from 0", 40)
    assert drawing.left_out == 0


def test_a_receive_that_began_later_is_one_piece() -> None:
    _, seen = _sent(received=(50, 70), sent=(40, 60))
    assert [s.name for s in seen.slices if s.kind == "transfer"] == ["send x to 1", "receive x from 0"]
    assert sum(kind == "transfer" for kind, _, _ in seen.arrows) == 1


def test_an_arrow_back_in_time_is_left_out_and_counted() -> None:
    drawing, seen = _sent(received=(10, 20), sent=(45, 60))
    assert not [arrow for arrow in seen.arrows if arrow[0] == "transfer"]
    assert sum(s.kind == "transfer" for s in seen.slices) == 2
    assert (drawing.left_out, drawing.behind_ns) == (1, 25)
    assert drawing.document()["otherData"]["arrows_left_out"] == 1


def test_within_a_rank_too_no_arrow_leads_back() -> None:
    """No run is like that, but a file may be."""
    run = pair()
    run.nodes[1].started_ns = 5
    drawing = Drawing(Trace([header()], [run]))
    assert not imported(drawing.document()).arrows
    assert (drawing.left_out, drawing.behind_ns) == (1, 5)


def test_times_before_the_beginning() -> None:
    seen = imported(to_perfetto(Trace([header()], [pair(shift=-20)])))
    assert [(s.name, s.begin) for s in seen.slices] == [("run aa", 0), ("teacher", 10), ("train", 60)]


def test_a_file(tmp_path: Path) -> None:
    trace = Trace([header()], [pair()])
    write_perfetto(trace, tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == json.loads(json.dumps(to_perfetto(trace)))


def test_a_trace_without_runs() -> None:
    assert to_perfetto(Trace([header()], []))["traceEvents"] == []
