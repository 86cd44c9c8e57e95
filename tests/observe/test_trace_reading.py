"""Reading traces: whole, cut, several, and files that are none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.observe.traces import BEGAN, header, lines, traces, write
from weave.errors import TraceException
from weave.observe.trace import OutputTrace, RunTrace, Stitch, Trace, UnitInfo, read_trace

HEAD = header()
GRAPH = {
    "event": "graph",
    "graph": "g",
    "units": [["teacher", "module Net", "fire"], ["train", "function train", "fire"]],
    "stitches": [[-1, 0, "input('x')", "input()"], [0, 1, "output('2')", "input()"], [1, -1, "output()", "output()"]],
}
STARTED = {"event": "run.started", "run": "aa", "time_ns": 1000, "graph": "g", "driver": "tasks"}
READY = {"event": "node.ready", "run": "aa", "time_ns": 1100, "node": "teacher", "unit": 0}
BEGUN = {"event": "node.started", "run": "aa", "time_ns": 1200, "node": "teacher", "unit": 0, "thread": "worker 1"}
OUTPUT = {"port": "output('2')", "time_ns": 1500, "value": "float32[2]", "bytes": 8}
OVER = {**BEGUN, "event": "node.finished", "time_ns": 3200, "duration_ms": 0.002, "awaited": True, "outputs": [OUTPUT]}
SEND = {"run": "aa", "transfer": "t", "node": "to_1.send('x')", "direction": "send", "peer": 1, "port": "x"}
FINISHED = {"event": "run.finished", "run": "aa", "time_ns": 5000, "status": "ok", "duration_ms": 0.004}


def file(directory: Path, *told: Any, name: str = "run.jsonl") -> Path:
    path = directory / name
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in told))
    return path


def only(directory: Path, *told: Any) -> RunTrace:
    [run] = read_trace([file(directory, HEAD, GRAPH, STARTED, *told)]).runs
    return run


def test_a_run_by_hand(tmp_path: Path) -> None:
    run = only(
        tmp_path, READY, BEGUN, {**READY, "node": "train", "unit": 1, "by": "teacher", "time_ns": 1500}, OVER, FINISHED
    )
    assert (run.run, run.rank, run.driver, run.status, run.file) == ("aa", None, "tasks", "ok", 0)
    assert (run.started_ns, run.finished_ns, run.end_ns) == (1000, 5000, 5000)
    assert run.graph.units == (UnitInfo("teacher", "module Net", "fire"), UnitInfo("train", "function train", "fire"))
    assert run.graph.entries()[1] == [Stitch(0, 1, "output('2')", "input()")]
    teacher, train = run.nodes[0], run.nodes[1]
    assert (teacher.ready_ns, teacher.started_ns, teacher.finished_ns) == (1100, 1200, 3200)
    assert (teacher.thread, teacher.awaited, teacher.status, teacher.by) == ("worker 1", True, "ok", "")
    assert teacher.outputs == [OutputTrace("output('2')", 1500, "float32[2]", 8)]
    assert (train.by, train.started_ns, train.status) == ("teacher", None, "unfinished")
    assert run.finished == FINISHED


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_node_that_did_not_end_well(tmp_path: Path, status: str) -> None:
    facts = {"error_type": "ValueError", "error": "no weights"}
    over = {**OVER, "event": f"node.{status}", "outputs": [], "awaited": False, **facts}
    run = only(tmp_path, BEGUN, over, {**FINISHED, "status": status, **facts})
    assert (run.nodes[0].status, run.nodes[0].error_type, run.nodes[0].error) == (status, "ValueError", "no weights")
    assert (run.status, run.error_type, run.error) == (status, "ValueError", "no weights")


def test_transfers(tmp_path: Path) -> None:
    back = {**SEND, "direction": "receive"}  # a rank that sends to itself sees both ends under one id
    run = only(
        tmp_path,
        {**SEND, "event": "transfer.started", "time_ns": 2000},
        {**back, "event": "transfer.started", "time_ns": 2100},
        {**SEND, "event": "transfer.finished", "time_ns": 2500, "value": "float32[2]", "bytes": 8},
        {**SEND, "transfer": "u", "event": "transfer.started", "time_ns": 3000},
        {**SEND, "transfer": "u", "event": "transfer.failed", "time_ns": 3500, "error": "gone"},
    )
    sent, received, other = run.transfers
    assert (sent.started_ns, sent.finished_ns, sent.status, sent.bytes, sent.peer) == (2000, 2500, "ok", 8, 1)
    assert (received.status, received.finished_ns) == ("unfinished", None)
    assert (other.status, other.error, other.finished_ns) == ("failed", "gone", 3500)
    assert run.end_ns == 3500  # the last that is known


def test_an_event_that_a_later_weave_adds_is_passed_over(tmp_path: Path) -> None:
    assert only(tmp_path, {"event": "run.paused", "run": "aa", "time_ns": 1}, {"event": "weather", "of": 1}).nodes == {}


@given(trace=traces())
@settings(max_examples=200)
def test_what_was_written_is_read(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> None:
    read = read_trace(write(trace, tmp_path_factory.mktemp("trace")))
    assert read.headers == trace.headers
    by_name = {run.run: run for run in read.runs}
    assert by_name == {run.run: replace(run, finished=by_name[run.run].finished) for run in trace.runs}
    assert [run.started_ns for run in read.runs] == sorted(run.started_ns for run in trace.runs)


@given(trace=traces(ranks=1), data=st.data())
@settings(max_examples=100)
def test_a_file_that_is_cut_anywhere_is_read_up_to_there(
    trace: Trace, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    [path] = write(trace, tmp_path_factory.mktemp("trace"))
    whole = path.read_bytes()
    head = whole.index(b"\n") + 1
    kept = data.draw(st.integers(head, len(whole)))
    path.write_bytes(whole[:kept])
    read = read_trace([path])
    text = whole[:kept]
    incomplete = not text.endswith(b"\n") and whole[kept : kept + 1] != b"\n"
    assert read.cut == ([str(path)] if incomplete else [])
    told = [line for line in text[: None if not incomplete else text.rindex(b"\n")].split(b"\n") if line]
    started = [line for line in lines(trace)[: len(told)] if line["event"] == "run.started"]
    assert [run.run for run in read.runs] == [line["run"] for line in started]
    ended = {line["run"] for line in lines(trace)[: len(told)] if line["event"] == "run.finished"}
    assert all((run.status != "unfinished") == (run.run in ended) for run in read.runs)


def test_several_ranks_onto_one_clock(tmp_path: Path) -> None:
    first = file(
        tmp_path, {**HEAD, "rank": 1, "began_epoch_ns": BEGAN + 400}, GRAPH, STARTED, BEGUN, OVER, FINISHED, name="1"
    )
    second = file(tmp_path, {**HEAD, "rank": 0}, GRAPH, {**STARTED, "time_ns": 1300}, name="0")
    trace = read_trace([first, second])
    assert trace.ranks == [0, 1]
    assert [(run.rank, run.file, run.started_ns) for run in trace.runs] == [(0, 1, 1300), (1, 0, 1400)]
    shifted = trace.runs[1]
    assert (shifted.finished_ns, shifted.nodes[0].started_ns, shifted.nodes[0].outputs[0].time_ns) == (5400, 1600, 1900)


def test_runs_of_one_id_in_two_files_are_two(tmp_path: Path) -> None:
    both = [file(tmp_path, {**HEAD, "rank": rank}, GRAPH, STARTED, name=str(rank)) for rank in (0, 1)]
    assert [(run.run, run.rank) for run in read_trace(both).runs] == [("aa", 0), ("aa", 1)]


def test_a_program_without_a_rank_has_none(tmp_path: Path) -> None:
    trace = read_trace([file(tmp_path, HEAD)])
    assert (trace.ranks, trace.runs, trace.cut) == ([], [], [])


@pytest.mark.parametrize(
    ("told", "where", "said"),
    [
        ([], 1, "doesn't begin with the header"),
        ([STARTED], 1, "doesn't begin with the header"),
        (["{}"], 1, "not an object with a name under 'event'"),
        (["[1]", STARTED], 1, "not an object with a name under 'event'"),
        (["epoch,loss", "1,0.3"], 1, "Expecting value"),
        ([{**HEAD, "began_epoch_ns": "today"}], 1, "began_epoch_ns"),
        ([{**HEAD, "rank": "first"}], 1, "rank"),
        ([HEAD, '{"event": "run', STARTED], 2, "Invalid control character|Unterminated"),
        ([HEAD, STARTED], 2, "run.started has no 'g', or no line before it tells of it"),
        ([HEAD, GRAPH, BEGUN], 3, "no line before it tells of it"),
        ([HEAD, GRAPH, STARTED, {**BEGUN, "unit": 2}], 4, "has no unit 2"),
        ([HEAD, GRAPH, STARTED, {**BEGUN, "unit": "first"}], 4, "TypeError"),
        ([HEAD, GRAPH, STARTED, {**BEGUN, "time_ns": "now"}], 4, "TypeError"),
        ([HEAD, GRAPH, STARTED, {**OVER, "outputs": ["x"]}], 4, "TypeError"),
        ([HEAD, GRAPH, STARTED, {**BEGUN, "event": "node.slept"}], 4, "node.slept"),
        ([HEAD, {**GRAPH, "units": [["teacher"]]}], 2, "TypeError"),
        ([HEAD, {**GRAPH, "stitches": [[0, 9, "output()", "input()"]]}], 2, "a stitch leads to a unit"),
    ],
)
def test_what_is_no_trace(tmp_path: Path, told: list[Any], where: int, said: str) -> None:
    path = file(tmp_path, *told)
    with pytest.raises(TraceException, match=said) as raised:
        read_trace([path])
    assert f"{path}, line {where}, is not of a weave trace" in str(raised.value)
    assert "WEAVE_TRACE=run.jsonl" in str(raised.value)  # what to do
    assert raised.value.path == str(path)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"\x93\xff\x00\n\x01\x02\n")
    with pytest.raises(TraceException, match="line 1, is not of a weave trace"):
        read_trace([path])


def test_another_format(tmp_path: Path) -> None:
    with pytest.raises(TraceException, match="format 2, and this weave reads format 1: use the weave that wrote it"):
        read_trace([file(tmp_path, {**HEAD, "format": 2})])


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(TraceException, match=r"gone\.jsonl can't be read: No such file"):
        read_trace([tmp_path / "gone.jsonl"])
    with pytest.raises(TraceException, match="no trace file was given"):
        read_trace([])


def test_the_bad_file_of_several_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceException) as raised:
        read_trace([file(tmp_path, HEAD, name="good"), file(tmp_path, "x", name="bad")])
    assert raised.value.path == str(tmp_path / "bad")
