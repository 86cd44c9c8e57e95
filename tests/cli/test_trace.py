"""`weave trace summary | convert | html`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from tests.observe.traces import header, traces, write
from weave.cli import main
from weave.cli.trace import found as files_of
from weave.observe.perfetto import to_perfetto
from weave.observe.summary import node_rows, run_rows
from weave.observe.trace import Graph, NodeTrace, OutputTrace, RunTrace, Stitch, Trace, TransferTrace, UnitInfo

MS = 1_000_000
GRAPH = Graph(
    "g",
    tuple(UnitInfo(name, "function f", "fire") for name in ("teacher", "fetch", "train")),
    (
        Stitch(0, 2, "output('2')", "input()"),
        Stitch(1, 2, "output()", "input()"),
        Stitch(2, -1, "output()", "output()"),
    ),
)


def run_of(name: str, begin: int, rank: int | None = None, file: int = 0) -> RunTrace:
    """Times in ms: the teacher 1 to 11 hands on at 6, `fetch` 1 to 9 awaited, train 10 to 30."""
    b = begin * MS
    run = RunTrace(name, rank, GRAPH, "tasks", b, b + 31 * MS, "ok", file=file)
    given = [OutputTrace("output('2')", b + 6 * MS, "float32[256]", 1024)]
    run.nodes[0] = NodeTrace(0, "teacher", b, "", b + 1 * MS, b + 11 * MS, "worker 1", "ok", outputs=given)
    run.nodes[1] = NodeTrace(1, "fetch", b, "", b + 1 * MS, b + 9 * MS, "MainThread", "ok", awaited=True)
    run.nodes[2] = NodeTrace(2, "train", b + 9 * MS, "fetch", b + 10 * MS, b + 30 * MS, "worker 2", "ok")
    return run


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with `run.jsonl` of two runs, the second one failed; the user stands in it."""
    failed = run_of("bbb222", 40)
    failed.status, failed.error_type, failed.error = "failed", "ValueError", "no weights\nat all"
    failed.nodes[2].status, failed.nodes[2].error_type = "failed", "ValueError"
    failed.finished_ns = 72 * MS
    write(Trace([header()], [run_of("aaa111", 0), failed]), tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def weave(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["trace", *arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    status, out, err = weave(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith(f"weave trace {arguments[0]}: ")
    assert len(err.splitlines()) == 1
    return err


def test_the_summary(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = weave(capsys, "summary", "run.jsonl")
    assert (status, err) == (0, "")
    assert (
        out
        == """\
run.jsonl: 2 runs, 1 ok, 1 failed
examples/x.py, weave 0.1.0, torch 2.13.0, python 3.11.7

run     status  began ms  took ms  critical path ms  busy ms  overlap  nodes  bytes
------  ------  --------  -------  ----------------  -------  -------  -----  -----
aaa111  ok         0.000   31.000            28.000   29.000  100.0 %      3  1,024
bbb222  failed    40.000   32.000            28.000   29.000  100.0 %      2  1,024
bbb222 raised ValueError: no weights

critical path of the longest run, bbb222: 28.000 of 32.000 ms
  node   adds ms   share
  -----  -------  ------
  fetch    8.000  28.6 %
  train   20.000  71.4 %

node     count  not ok  total ms  mean ms  max ms  waited ms  bytes
-------  -----  ------  --------  -------  ------  ---------  -----
train        2       1    40.000   20.000  20.000      2.000      0
teacher      2            20.000   10.000  10.000      2.000  2,048
fetch        2            16.000    8.000   8.000      2.000      0
"""
    )


def test_the_summary_as_json(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = weave(capsys, "summary", "run.jsonl", "--json")
    assert (status, err) == (0, "")
    said = json.loads(out)
    assert (said["files"], said["cut"], said["ranks"]) == (["run.jsonl"], [], [])
    first, second = said["runs"]
    assert first == {
        "run": "aaa111",
        "rank": None,
        "graph": "g",
        "driver": "tasks",
        "status": "ok",
        "started_ms": 0.0,
        "duration_ms": 31.0,
        "critical_path_ms": 28.0,
        "critical_path": [{"node": "fetch", "adds_ms": 8.0}, {"node": "train", "adds_ms": 20.0}],
        "busy_ms": 29.0,
        "compute_ms": 38.0,
        "wait_ms": 3.0,
        "overlap_pct": 100.0,
        "nodes": 3,
        "bytes": 1024,
    }
    assert (second["status"], second["error_type"], second["error"]) == ("failed", "ValueError", "no weights\nat all")
    assert said["nodes"][1] == {
        "node": "teacher",
        "count": 2,
        "not_ok": 0,
        "total_ms": 20.0,
        "mean_ms": 10.0,
        "max_ms": 10.0,
        "wait_ms": 2.0,
        "bytes": 2048,
    }


def test_one_run_of_several(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = weave(capsys, "summary", "run.jsonl", "--run", "aaa")
    assert "run.jsonl: 1 run\n" in out
    assert "critical path of aaa111" in out
    assert "bbb222" not in out
    assert refused(capsys, "summary", "run.jsonl", "--run", "c") == (
        "weave trace summary: there is no run c; there are aaa111, bbb222\n"
    )


def test_only_the_top(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = weave(capsys, "summary", "run.jsonl", "--top", "1")
    lines = out.splitlines()
    assert "aaa111" not in out  # the shorter one
    assert "... and 1 shorter run (--top 2 shows all)" in lines
    assert "  ... and 1 other on it: 8.000 ms" in lines
    assert "... and 2 other nodes (--top 3 shows all)" in lines
    said = json.loads(weave(capsys, "summary", "run.jsonl", "--top", "1", "--json")[1])
    assert (len(said["runs"]), len(said["nodes"])) == (1, 1)
    for wrong in ("0", "few"):
        with pytest.raises(SystemExit):
            main(["trace", "summary", "run.jsonl", "--top", wrong])


def test_ranks_are_one_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [run_of("aaa111", 0, 0, 0), run_of("bbb222", 1, 1, 1)]
    runs[0].transfers = [TransferTrace("t", "n", "send", 1, "x", 20 * MS, 21 * MS, "ok")]
    runs[1].transfers = [TransferTrace("t", "n", "receive", 0, "x", 5 * MS, 12 * MS, "ok")]  # before it was sent
    write(Trace([header(0), header(1)], runs), tmp_path)
    for words in (["run.rank0.jsonl", "run.rank1.jsonl"], ["run.jsonl"], ["."], ["run.rank*.jsonl"], ["*.jsonl", "."]):
        status, out, err = weave(capsys, "summary", *words)
        assert (status, err) == (0, "")
        assert out.startswith("run.rank0.jsonl and 1 other: 2 runs, 2 ok, 2 ranks\n")
        assert [line.split()[:2] for line in out.splitlines()[5:7]] == [["aaa111", "0"], ["bbb222", "1"]]
    status, out, err = weave(capsys, "convert", "run.jsonl")
    assert (status, out.split(":")[0]) == (0, "run.perfetto.json")
    assert err == (
        "weave trace: 1 arrow left out: by these clocks a value came before it was sent, up to 8.000 ms; "
        "the ranks' clocks differ by that much at least\n"
    )


def test_convert(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = weave(capsys, "convert", str(files / "run.jsonl"))
    made = files / "run.perfetto.json"
    assert (status, err) == (0, "")
    assert out == f"{made}: 2 runs. Open it at https://ui.perfetto.dev (it stays on your machine).\n"
    document = json.loads(made.read_text())
    assert {event["cat"] for event in document["traceEvents"] if event["ph"] == "X"} == {"run", "node"}
    assert weave(capsys, "convert", "run.jsonl", "-o", "other.json", "--run", "aaa111")[0] == 0
    assert "bbb222" not in (files / "other.json").read_text()


def test_the_page(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = weave(capsys, "html", "run.jsonl")
    assert (status, err) == (0, "")
    assert out == "run.html: 2 runs. Open it in a browser; it needs no network.\n"
    assert "<html" in (files / "run.html").read_text()


def test_what_summary_and_convert_say_is_the_same(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary = json.loads(weave(capsys, "summary", "run.jsonl", "--json")[1])
    weave(capsys, "convert", "run.jsonl")
    _agree(summary["runs"], summary["nodes"], json.loads((files / "run.perfetto.json").read_text()))


@given(traces())
@settings(max_examples=100)
def test_so_it_is_of_any_trace(trace: Trace) -> None:
    runs = [row.as_dict() for row in run_rows(trace.runs)]
    _agree(runs, [row.as_dict() for row in node_rows(trace.runs)], to_perfetto(trace))


def _agree(runs: list[dict[str, Any]], nodes: list[dict[str, Any]], document: dict[str, list[dict[str, Any]]]) -> None:
    slices = [event for event in document["traceEvents"] if event["ph"] == "X"]
    said = {event["args"]["run"]: event["args"] for event in slices if event["cat"] == "run"}
    assert len(said) == len(runs)
    for row in runs:
        args = said[row["run"]]
        for fact in ("status", "driver", "critical_path_ms", "busy_ms", "nodes", "bytes"):
            assert args[fact] == row[fact]
        assert args.get("duration_ms", row["duration_ms"]) == row["duration_ms"]
        assert args.get("overlap_pct") == row["overlap_pct"]
        assert args["critical_path"] == [step["node"] for step in row["critical_path"]]
        assert sum(step["adds_ms"] for step in row["critical_path"]) == pytest.approx(row["critical_path_ms"])
    drawn = [event for event in slices if event["cat"] == "node"]
    for row in nodes:
        mine = [event for event in drawn if event["args"]["node"] == row["node"]]
        assert len(mine) == row["count"]
        assert sum(event["args"]["status"] != "ok" for event in mine) == row["not_ok"]
        # A slice has a nanosecond at least.
        assert sum(event["dur"] for event in mine) / 1000 == pytest.approx(row["total_ms"], abs=1.01e-6 * len(mine))
        assert sum(event["args"]["wait_ms"] for event in mine) == pytest.approx(row["wait_ms"])
    assert sum(row["count"] for row in nodes) == len(drawn)


def test_a_file_that_is_cut_is_a_remark(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = (files / "run.jsonl").read_bytes()
    (files / "run.jsonl").write_bytes(whole[:-20])
    status, out, err = weave(capsys, "summary", "run.jsonl")
    assert status == 0
    assert "1 ok, 1 unfinished" in out
    assert err == (
        "weave trace: run.jsonl ends in the middle of a line: the program was killed; what was written before is shown\n"
    )
    assert json.loads(weave(capsys, "summary", "run.jsonl", "--json")[1])["cut"] == ["run.jsonl"]


def test_a_trace_without_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [path] = write(Trace([header()], []), tmp_path)
    status, out, _ = weave(capsys, "summary", str(path))
    assert (status, out.splitlines()[0]) == (0, f"{path}: 0 runs")


def test_a_run_in_which_nothing_began(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [path] = write(Trace([header()], [RunTrace("aaa111", None, GRAPH, "tasks", 0)]), tmp_path)
    status, out, _ = weave(capsys, "summary", str(path))
    assert status == 0
    assert "  no node began" in out


@pytest.mark.parametrize("command", ["summary", "convert", "html"])
def test_what_is_no_trace_is_said_in_a_sentence_and_2(
    command: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "other.jsonl").write_text("epoch,loss\n1,2\n")
    (files / "empty").mkdir()
    assert "there is no file gone.jsonl; WEAVE_TRACE=gone.jsonl" in refused(capsys, command, "gone.jsonl")
    assert "there is no file gone*" in refused(capsys, command, "gone*")
    assert "there is no trace in the directory empty" in refused(capsys, command, "empty")
    assert "other.jsonl, line 1, is not of a weave trace" in refused(capsys, command, "other.jsonl")
    assert sorted(path.name for path in files.iterdir()) == ["empty", "other.jsonl", "run.jsonl"]


def test_a_directory_is_its_traces_and_nothing_is_read_twice(files: Path) -> None:
    (files / "other.jsonl").write_text("{}\n")
    (files / "broken.jsonl").symlink_to("nowhere")
    assert files_of(["."]) == [Path("run.jsonl")]
    assert files_of(["run.jsonl", str(files), "run.*"]) == [Path("run.jsonl")]
    (files / "a.jsonl").write_bytes((files / "run.jsonl").read_bytes())
    assert files_of(["run.jsonl", ".", "a.jsonl"]) == [Path("run.jsonl"), Path("a.jsonl")]


def test_where_it_can_not_be_written(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "run.jsonl is the trace itself" in refused(capsys, "convert", "run.jsonl", "-o", "run.jsonl")
    for command in ("convert", "html"):
        assert "gone/x can't be written: No such file" in refused(capsys, command, "run.jsonl", "-o", "gone/x")


@pytest.mark.parametrize("words", [[], ["summary"], ["look", "run.jsonl"]])
def test_wrong_words(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["trace", *words])
    assert stopped.value.code == 2


@pytest.mark.parametrize("command", ["summary", "convert", "html"])
def test_it_needs_no_torch(command: str, files: Path) -> None:
    program = "import sys; from weave.cli import main; print(main(sys.argv[1:]), 'torch' in sys.modules)"
    words = [sys.executable, "-c", program, "trace", command, "run.jsonl"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "0 False", done.stderr
