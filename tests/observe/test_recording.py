"""What a run's recording says: complete, by the table, the same under both drivers, and in nobody's way."""

from __future__ import annotations

import copy
import gc
import json
import logging
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import weakref
from pathlib import Path
from typing import Any

import anyio
import pytest
import torch
from torch import nn

from tests.plugins.hearing import DRIVERS, drive
from weave import ExternalTarget, FunctionTarget, ModuleTarget, Needle, RunOptions
from weave.observe import Listener, Recorder, flush, read_trace
from weave.observe.events import problems
from weave.plugins import Observer
from weave.stitched import StitchedModule


class Heard(Listener):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.closed = False

    def heard(self, run: Any, lines: Any) -> None:
        self.lines += lines

    def close(self) -> None:
        self.closed = True

    def names(self) -> list[str]:
        return [" ".join(filter(None, (line["event"], line.get("node")))) for line in self.lines]

    def of(self, event: str, node: str | None = None) -> dict[str, Any]:
        found = [line for line in self.lines if line["event"] == event and line.get("node") == node]
        assert len(found) == 1, self.names()
        return found[0]


def add_one(x: Any) -> Any:
    return x + 1


async def later(x: Any) -> Any:
    await anyio.lowlevel.checkpoint()
    return x + 1


def small(function: Any = add_one) -> StitchedModule:
    """first -> model; model's layer 0 -> early; both -> last."""
    caller = ExternalTarget()
    model = ModuleTarget("model", nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))
    first, early = FunctionTarget("first", add_one), FunctionTarget("early", function)
    last = FunctionTarget("last", lambda a, b: (a.sum(), b.sum()))
    return (
        Needle()
        .stitch(caller.input("x"), first.input())
        .stitch(first.output(), model.input(""))
        .stitch(model.output("0"), early.input())
        .stitch(early.output(), last.input())
        .stitch(model.output(""), last.input())
        .stitch(last.output(), caller.output("y"))
        .knot()
    )


X = torch.ones(3, 4)
NODES = {"first", "model", "early", "last"}


def check(heard: Heard) -> None:
    """Everything that the run of `small` must have said."""
    flush()
    assert not [wrong for line in heard.lines for wrong in problems(line)]
    assert heard.lines[0]["event"] == "run.started"
    assert heard.lines[-1]["event"] == "run.finished"
    for node in NODES:
        ready, started, finished = (heard.of(f"node.{what}", node) for what in ("ready", "started", "finished"))
        assert ready["time_ns"] <= started["time_ns"] <= finished["time_ns"]
        assert started["thread"] == finished["thread"]
    assert [heard.of("node.ready", n).get("by", "") for n in ("first", "model", "early")] == ["", "first", "model"]
    assert heard.of("node.ready", "last")["by"] in ("early", "model")
    outputs = heard.of("node.finished", "model")["outputs"]
    assert [(out["port"], out["value"], out["bytes"]) for out in outputs] == [
        ("output('0')", "float32[3, 4]", 48),
        ("output()", "float32[3, 2]", 24),
    ]
    assert heard.of("node.finished", "last")["outputs"][0]["value"] == "(float32[], float32[])"
    end = heard.of("run.finished")
    assert end["status"] == "ok"
    assert end["nodes"] == 4
    assert end["bytes"] == 48 + 48 + 24 + 48 + 8
    assert 0 < end["critical_path_ms"] <= end["duration_ms"]


def test_a_synchronous_run_says_all() -> None:
    with Heard() as heard:
        small()({"x": X}, {})
    check(heard)
    assert heard.closed
    assert heard.lines[0]["driver"] == "inline"
    assert {line["thread"] for line in heard.lines if "thread" in line} == {threading.current_thread().name}


@pytest.mark.anyio
@pytest.mark.parametrize("function", [add_one, later])
async def test_a_run_on_a_loop_says_all(function: Any) -> None:
    with Heard() as heard:
        await small(function).run({"x": X}, {})
    check(heard)
    assert heard.lines[0]["driver"] == "tasks"
    assert heard.of("node.finished", "early").get("awaited", False) is (function is later)


@pytest.mark.anyio
async def test_observers_and_listeners_side_by_side() -> None:
    """Both are told, of the same; the observer in line."""

    class Nodes(Observer):
        def __init__(self) -> None:
            self.told: list[str] = []

        def node_ready(self, event: Any) -> None:
            self.told.append(f"node.ready {event.node}")

        def node_started(self, event: Any) -> None:
            self.told.append(f"node.started {event.node}")

        def node_finished(self, event: Any) -> None:
            self.told.append(f"node.finished {event.node}")

    for driver in ("inline", "tasks"):
        nodes = Nodes()
        stitched = small().with_options(observers=(nodes,), max_workers=1)
        with Heard() as heard:
            if driver == "inline":
                stitched({"x": X}, {})
            else:
                await stitched.run({"x": X}, {})
        check(heard)
        said = [name for name in heard.names() if name.startswith("node.")]
        assert sorted(said) == sorted(nodes.told)
        for node in NODES:
            mine = [name.split()[0] for name in nodes.told if name.endswith(f" {node}")]
            assert mine == ["node.ready", "node.started", "node.finished"]


def test_a_listener_of_one_graph_hears_nothing_of_another() -> None:
    heard = Heard()
    stitched = small().with_options(observers=(heard,))
    small()({"x": X}, {})
    stitched({"x": X}, {})
    check(heard)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_failure_is_told(driver: str) -> None:
    def fail(x: Any) -> Any:
        raise ValueError("no\nmore")

    stitched = small(fail)
    with Heard() as heard, pytest.raises(ValueError, match="no"):
        drive(driver, stitched, x=X)
    failed, end = heard.of("node.failed", "early"), heard.of("run.finished")
    for line in (failed, end):
        assert (line["error_type"], line["error"]) == ("ValueError", "no\nmore")
    assert end["status"] == "failed"
    assert not [name for name in heard.names() if name == "node.started last"]
    assert not [wrong for line in heard.lines for wrong in problems(line)]


@pytest.mark.anyio
async def test_a_cancelled_run_is_told(anyio_backend_name: str) -> None:
    begun = anyio.Event()

    async def forever(x: Any) -> Any:
        begun.set()
        await anyio.sleep_forever()

    stitched = small(forever)
    with Heard() as heard:
        async with anyio.create_task_group() as group:
            group.start_soon(stitched.run, {"x": X}, {})
            await begun.wait()
            group.cancel_scope.cancel()
    assert heard.of("node.cancelled", "early")["awaited"]
    assert heard.of("run.finished")["status"] == "cancelled"
    assert "error" not in heard.of("run.finished")


def test_an_error_that_can_not_be_printed() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def fail(x: Any) -> Any:
        raise Mute

    with Heard() as heard, pytest.raises(Mute):
        small(fail)({"x": X}, {})
    assert heard.of("node.failed", "early")["error_type"].endswith("Mute")


def test_an_error_before_the_first_node_belongs_to_the_run() -> None:
    def adapter(x: Any) -> Any:
        raise KeyError("k")

    caller, f = ExternalTarget(), FunctionTarget("f", add_one)
    stitched = (
        Needle().stitch(caller.input("x", adapter=adapter), f.input()).stitch(f.output(), caller.output("y")).knot()
    )
    with Heard() as heard, pytest.raises(KeyError):
        stitched({"x": X}, {})
    assert heard.names() == ["run.started", "node.ready f", "run.finished"]
    assert heard.of("run.finished")["status"] == "failed"


def test_an_error_after_the_last_node_belongs_to_the_run() -> None:
    def adapter(x: Any) -> Any:
        raise KeyError("k")

    caller, f = ExternalTarget(), FunctionTarget("f", add_one)
    stitched = (
        Needle().stitch(caller.input("x"), f.input()).stitch(f.output(), caller.output("y", adapter=adapter)).knot()
    )
    with Heard() as heard, pytest.raises(KeyError):
        stitched({"x": X}, {})
    heard.of("node.finished", "f")
    assert heard.of("run.finished")["status"] == "failed"


def test_nothing_of_a_value_is_held() -> None:
    """Neither a tensor nor an exception outlives the run by being recorded."""

    class Bad(Exception):
        pass

    def fail(x: Any) -> Any:
        raise Bad

    class Deaf(Heard):
        pass

    stitched = small(fail)
    x = torch.ones(3, 4)
    alive = [weakref.ref(x)]
    with Deaf():
        try:
            stitched({"x": x}, {})
        except Bad as error:
            alive.append(weakref.ref(error))
        del x
        gc.collect()
        assert [ref() for ref in alive] == [None, None]


def test_a_listener_that_raises_is_named_once_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Heard):
        def heard(self, run: Any, lines: Any) -> None:
            super().heard(run, lines)
            raise OSError(28, "No space left on device")

    stitched = small()
    with caplog.at_level(logging.WARNING, "weave"), Heard() as other, Broken() as broken:
        for _ in range(3):
            assert stitched({"x": X}, {})["y"][1].shape == ()
            flush()
    assert len(broken.lines) < len(other.lines)
    assert len([line for line in other.lines if line["event"] == "run.finished"]) == 3
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text
    assert "Broken" in caplog.text


def test_a_listener_may_flush_and_run_graphs_of_its_own() -> None:
    stitched = small()

    class Busy(Heard):
        def heard(self, run: Any, lines: Any) -> None:
            first = not self.lines
            super().heard(run, lines)
            flush()
            if first:
                stitched({"x": X}, {})

    with Busy() as busy:
        stitched({"x": X}, {})
        flush()
    assert len([line for line in busy.lines if line["event"] == "run.finished"]) == 2


def test_who_listens_to_a_graph_listens_to_its_copies(tmp_path: Path) -> None:
    heard, recorder = Heard(), Recorder(tmp_path / "run.jsonl")
    stitched = small().with_options(observers=(heard, recorder))
    copied = copy.deepcopy(stitched)
    copied({"x": X}, {})
    check(heard)
    assert len(read_trace([recorder.path]).runs) == 1
    assert pickle.loads(pickle.dumps(recorder)).path == recorder.path


# --- files ---


def test_a_recorder_writes_what_read_trace_reads(tmp_path: Path) -> None:
    stitched = small()
    with Recorder(tmp_path / "deep" / "run.jsonl") as recorder:
        stitched({"x": X}, {})
        anyio.run(stitched.run, {"x": X}, {})
    lines = [json.loads(line) for line in recorder.path.read_text().splitlines()]
    assert [line["event"] for line in lines].count("graph") == 1
    trace = read_trace([recorder.path])
    assert [run.driver for run in trace.runs] == ["inline", "tasks"]
    for run in trace.runs:
        assert run.status == "ok"
        assert {node.node for node in run.nodes.values()} == NODES
        found = run.figures()
        assert run.finished["critical_path_ms"] == found.critical_path_ns / 1e6
        assert run.finished["bytes"] == found.bytes
        assert run.started_ns >= 0


def test_a_file_that_can_not_be_written_fails_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING, "weave"), Recorder(tmp_path / "file" / "run.jsonl"):
        assert small()({"x": X}, {})["y"] is not None
    assert len(caplog.records) == 1
    assert "run.jsonl" in caplog.text


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, which this system has not")
def test_a_full_disk_fails_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    link = tmp_path / "run.jsonl"
    link.symlink_to("/dev/full")
    with caplog.at_level(logging.WARNING, "weave"), Recorder(link):
        assert small()({"x": X}, {})["y"] is not None
    assert len(caplog.records) == 1


def test_a_closed_file_fails_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stitched = small()
    with caplog.at_level(logging.WARNING, "weave"), Recorder(tmp_path / "run.jsonl") as recorder:
        stitched({"x": X}, {})
        flush()
        assert recorder._file is not None
        recorder._file.close()
        assert stitched({"x": X}, {})["y"] is not None
    assert len(caplog.records) == 1


def program(path: Path, body: str) -> Path:
    script = path / "program.py"
    script.write_text(
        textwrap.dedent("""
            from weave import ExternalTarget, FunctionTarget, Needle
            import os, signal, sys, threading

            def one(x):
                return x + 1

            def knot(function=one):
                caller, f = ExternalTarget(), FunctionTarget("f", function)
                return Needle().stitch(caller.input("x"), f.input()).stitch(f.output(), caller.output("y")).knot()
            """)
        + textwrap.dedent(body)
    )
    return script


def run_script(script: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        env={**os.environ, **environment},
        cwd=script.parent,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_weave_trace_records_a_program_as_it_is(tmp_path: Path) -> None:
    script = program(tmp_path, "print(knot()({'x': 1}, {})['y'])")
    done = run_script(script, WEAVE_TRACE="run.jsonl")
    assert (done.stdout, done.stderr) == ("2\n", "")
    trace = read_trace([tmp_path / "run.jsonl"])
    assert [run.status for run in trace.runs] == ["ok"]
    assert trace.headers[0]["program"] == script.name


def test_ranks_have_files_of_their_own(tmp_path: Path) -> None:
    script = program(tmp_path, "knot()({'x': 1}, {})")
    for rank in "01":
        done = run_script(script, WEAVE_TRACE="run.jsonl", RANK=rank, WORLD_SIZE="2")
        assert done.stderr == ""
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == ["run.rank0.jsonl", "run.rank1.jsonl"]
    assert read_trace(tmp_path.glob("*.jsonl")).ranks == [0, 1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_writes_a_file_of_its_own(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        knot()({'x': 1}, {})
        from weave.observe import flush
        flush()
        child = os.fork()
        knot()({'x': 1}, {})
        flush()
        if child:
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
    )
    done = run_script(script, WEAVE_TRACE="run.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    files = sorted(tmp_path.glob("*.jsonl"))
    assert len(files) == 2
    assert sorted(len(read_trace([path]).runs) for path in files) == [1, 2]


def test_what_a_killed_program_leaves_can_be_read(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        def stuck(x):
            from weave.observe import flush
            flush()
            os.kill(os.getpid(), signal.SIGKILL)

        knot()({'x': 1}, {})
        knot(stuck)({'x': 1}, {})
        """,
    )
    assert run_script(script, WEAVE_TRACE="run.jsonl").returncode == -9
    fine, killed = read_trace([tmp_path / "run.jsonl"]).runs
    assert (fine.status, killed.status) == ("ok", "unfinished")
    (node,) = killed.nodes.values()
    assert (node.node, node.status) == ("f", "unfinished")
    assert node.started_ns is not None
    with open(tmp_path / "run.jsonl", "ab") as file:  # and where the last line is cut
        file.write(b'{"event":"node.fini')
    assert len(read_trace([tmp_path / "run.jsonl"]).runs) == 2


def test_options_tell_listeners_from_observers() -> None:
    heard, observer = Heard(), Observer()
    options = RunOptions(observers=(heard, observer))
    assert (options.listeners, options.in_line) == ((heard,), (observer,))
    with pytest.raises(TypeError, match="Listener"):
        RunOptions(observers=(Heard,))  # type: ignore[arg-type]
