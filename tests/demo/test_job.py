"""The whole job on the real teacher and the real text, cut to a few short batches."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from weave.demo import CHECKPOINT_NAME, checkpoint, job, report
from weave.demo.install import DemoException
from weave.observe import read_trace

from .small import Recorder, short_job

STEPS = 4

# Killed in step 3, with a checkpoint after step 2: the third step's work is lost and done again.
KILLED = """
import json, os, signal, sys
from pathlib import Path
from weave.demo import job
from weave.demo.progress import PlainProgress

class Killed(PlainProgress):
    def step(self, step, losses):
        if step == 3:
            os.kill(os.getpid(), signal.SIGKILL)

job.CHECKPOINT_EVERY = 2
job.run(job.Settings(**json.loads(sys.argv[2])), Path(sys.argv[1]), Killed(sys.stdout))
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[job.Result, Path, Recorder]:
    """An uninterrupted job with its report."""
    folder = tmp_path_factory.mktemp("whole")
    recorder = Recorder()
    result = job.run(short_job(STEPS), folder, recorder)
    report.write(result, folder)
    return result, folder, recorder


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    return checkpoint.load(folder / CHECKPOINT_NAME).tensors


def _timeless(folder: Path) -> dict[str, Any]:
    """The report but for what the clock said."""
    report = json.loads((folder / "report.json").read_text())
    assert report.pop("overlap")["steps"] > 0
    return dict(report)


def _assert_same_outcome(result: job.Result, folder: Path, whole: tuple[job.Result, Path, Recorder]) -> None:
    report.write(result, folder)
    wanted, wanted_folder, _ = whole
    assert result == wanted
    for name in ("table.txt", "graph.mmd", "scoring.mmd", "replace-one.png", "replace-one.svg"):
        assert (folder / name).read_bytes() == (wanted_folder / name).read_bytes(), name
    assert _timeless(folder) == _timeless(wanted_folder)
    tensors, wanted_tensors = _tensors(folder), _tensors(wanted_folder)
    assert tensors.keys() == wanted_tensors.keys()
    assert all(torch.equal(tensors[name], value) for name, value in wanted_tensors.items())


def test_the_job_improves_the_students_and_tells_what_it_does(whole: tuple[job.Result, Path, Recorder]) -> None:
    result, _, recorder = whole
    assert result.improved
    assert len(result.losses) == STEPS
    assert len(result.before.alone) == len(result.after.alone) == len(result.blocks) == 6
    assert result.parameters.encoder_before - result.parameters.encoder_after == 6 * (1181568 - 295680)
    steps = [name for name in recorder.names() if name == "step"]
    assert len(steps) == STEPS
    scored = [detail for name, detail in recorder.events if name == "scored"]
    assert scored == ["before", "after"]
    assert recorder.names().index("started") < recorder.names().index("scoring")
    assert ("checkpoint", STEPS) in recorder.events


def test_the_training_is_recorded(whole: tuple[job.Result, Path, Recorder]) -> None:
    """Each step is a run of its own in the trace; scoring isn't in it. The page has the trace's nodes."""
    result, folder, _ = whole
    assert result.trace == folder / "trace.jsonl"
    runs = read_trace([result.trace]).runs
    assert [run.status for run in runs] == ["ok"] * STEPS
    roles = ("student", "loss", "train")
    nodes = {"teacher", *(f"{role}.{block}" for role in roles for block in range(6))}
    assert [{node.node for node in run.nodes.values()} for run in runs] == [nodes] * STEPS
    assert json.loads((folder / "report.json").read_text())["trace"] == ["trace.jsonl", "trace.html"]
    assert all(node in (folder / "trace.html").read_text() for node in nodes)


@pytest.mark.parametrize("driver", [job.Driver(sync=True), job.Driver(max_workers=2)])
def test_of_a_long_job_the_first_steps_are_recorded(
    driver: job.Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "TRACED", 2)
    result = job.run(short_job(3), tmp_path, Recorder(), driver=driver)
    assert result.trace is not None
    assert len(result.losses) == 3
    assert len(read_trace([result.trace]).runs) == 2


def test_where_no_step_is_taken_nothing_is_recorded(tmp_path: Path) -> None:
    result = job.run(short_job(0), tmp_path, Recorder())
    assert result.trace is None
    assert "trace.html" not in {file.name for file in report.write(result, tmp_path)}
    assert json.loads((tmp_path / "report.json").read_text())["trace"] == []


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_a_job_killed_half_way_ends_with_the_same_table(
    tmp_path: Path, whole: tuple[job.Result, Path, Recorder]
) -> None:
    settings = short_job(STEPS)
    command = [sys.executable, "-c", KILLED, str(tmp_path), json.dumps(asdict(settings))]
    killed = subprocess.run(command, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert checkpoint.load(tmp_path / CHECKPOINT_NAME).step == 2

    recorder = Recorder()
    result = job.run(settings, tmp_path, recorder, resume=True)
    assert ("resumed", 2) in recorder.events
    assert [detail for name, detail in recorder.events if name == "step"] == [3, 4]
    _assert_same_outcome(result, tmp_path, whole)


def test_a_shorter_job_can_be_prolonged_to_the_same_end(
    tmp_path: Path, whole: tuple[job.Result, Path, Recorder]
) -> None:
    job.run(short_job(1), tmp_path, Recorder())
    result = job.run(short_job(STEPS), tmp_path, Recorder(), resume=True)
    _assert_same_outcome(result, tmp_path, whole)


def _checkpoint_of_a_start(folder: Path) -> None:
    job.run(short_job(0), folder, Recorder())


def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path) -> None:
    _checkpoint_of_a_start(tmp_path)
    with pytest.raises(DemoException, match=r"seed was 0, now 1.*start again without --resume"):
        job.run(short_job(2, seed=1), tmp_path, Recorder(), resume=True)
    assert (tmp_path / CHECKPOINT_NAME).exists()


def test_fewer_steps_than_are_done_are_refused(whole: tuple[job.Result, Path, Recorder]) -> None:
    with pytest.raises(DemoException, match=r"4 steps done already, more than the 3.*--steps 4 or more"):
        job.run(short_job(3), whole[1], Recorder(), resume=True)


def test_without_resume_the_old_checkpoint_goes_and_it_is_said(tmp_path: Path) -> None:
    _checkpoint_of_a_start(tmp_path)
    recorder = Recorder()
    result = job.run(short_job(0, seed=1), tmp_path, recorder)
    assert any("starting again" in str(detail) for name, detail in recorder.events if name == "note")
    assert checkpoint.load(tmp_path / CHECKPOINT_NAME).settings["seed"] == 1
    assert not result.improved
    assert result.before == result.after


def test_nothing_to_resume_is_a_start_and_it_is_said(tmp_path: Path) -> None:
    recorder = Recorder()
    job.run(short_job(0), tmp_path / "new" / "folder", recorder, resume=True)
    assert any("nothing to resume" in str(detail) for name, detail in recorder.events if name == "note")


def test_the_callers_threads_are_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "THREADS", 2)
    inside: list[int] = []

    class Looking(Recorder):
        def note(self, message: str) -> None:
            inside.append(torch.get_num_threads())
            raise RuntimeError("left early")

    with pytest.raises(RuntimeError, match="left early"):
        job.run(short_job(0), tmp_path, Looking(), resume=True)
    assert inside == [2]
    assert torch.get_num_threads() == 1
