"""The same table whichever driver ran the training, with however many workers, and whatever interrupted it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from weave.demo import CHECKPOINT_NAME, checkpoint, graphs, job, report
from weave.demo.job import Driver

from .small import Recorder, short_job

STEPS = 4
SYNC, TWO = Driver(sync=True), Driver(max_workers=2)

# The command as a user runs it, on a few short texts. Student 0 presses Ctrl-C in its third step: in the main thread
# with --sync, else in a worker thread while the loop waits in the main one.
INTERRUPTED = """
import os, signal, sys
from functools import partial
from weave.cli import main
from weave.demo import graphs, job

job.Settings = partial(job.Settings, batch_size=4, held_out=8, max_tokens=12)
job.CHECKPOINT_EVERY = 2
train, pressed = graphs.BlockTrainer.__call__, []

def pressing(trainer, loss):
    if trainer.steps == 2 and not pressed:
        pressed.append(True)
        os.kill(os.getpid(), signal.SIGINT)
    return train(trainer, loss)

graphs.BlockTrainer.__call__ = pressing
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def inline(tmp_path_factory: pytest.TempPathFactory) -> tuple[job.Result, Path]:
    """A job that ran through in one thread, with its report."""
    folder = tmp_path_factory.mktemp("inline")
    result = job.run(short_job(STEPS), folder, Recorder(), driver=SYNC)
    report.write(result, folder)
    return result, folder


def _assert_same(result: job.Result, folder: Path, inline: tuple[job.Result, Path]) -> None:
    wanted, wanted_folder = inline
    assert result == wanted
    assert report.table_text(result).encode() == (wanted_folder / "table.txt").read_bytes()
    tensors, wanted_tensors = (checkpoint.load(where / CHECKPOINT_NAME).tensors for where in (folder, wanted_folder))
    assert tensors.keys() == wanted_tensors.keys()
    assert all(torch.equal(tensors[name], value) for name, value in wanted_tensors.items())


@pytest.mark.parametrize("driver", [Driver(max_workers=1), TWO, Driver(max_workers=7)], ids=repr)
def test_the_table_is_the_same_to_the_last_byte(
    tmp_path: Path, inline: tuple[job.Result, Path], driver: Driver
) -> None:
    recorder = Recorder()
    result = job.run(short_job(STEPS), tmp_path, recorder, driver=driver)
    _assert_same(result, tmp_path, inline)
    assert [detail for name, detail in recorder.events if name == "step"] == [1, 2, 3, 4]
    assert result.driver == driver
    assert result.overlap.steps == STEPS
    if driver.max_workers == 1:
        assert result.overlap.covered_seconds == 0


def test_the_driver_that_was_asked_for_runs_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    for name in ("step", "run"):
        monkeypatch.setattr(job.TrainingGraph, name, _calling(name, called, getattr(job.TrainingGraph, name)))
    job.run(short_job(1), tmp_path, Recorder(), driver=SYNC)
    assert called == ["step"]
    job.run(short_job(1), tmp_path, Recorder())
    assert called == ["step", "run"]


def _calling(name: str, called: list[str], method: object) -> object:
    def call(*args: object) -> object:
        called.append(name)
        return method(*args)  # type: ignore[operator]

    return call


@pytest.mark.parametrize(("first", "then"), [(SYNC, TWO), (TWO, SYNC)], ids=["to tasks", "to sync"])
def test_a_job_goes_on_under_the_other_driver(
    tmp_path: Path, inline: tuple[job.Result, Path], first: Driver, then: Driver
) -> None:
    job.run(short_job(2), tmp_path, Recorder(), driver=first)
    result = job.run(short_job(STEPS), tmp_path, Recorder(), resume=True, driver=then)
    _assert_same(result, tmp_path, inline)
    assert (result.driver, result.overlap.steps) == (then, 2)


def test_what_a_node_raises_ends_the_job_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> float:
        raise ZeroDivisionError("in a student's training")

    monkeypatch.setattr(graphs.BlockTrainer, "__call__", fails)
    with pytest.raises(ZeroDivisionError, match="in a student's training") as raised:
        job.run(short_job(1), tmp_path, Recorder(), driver=Driver(max_workers=1))
    assert any("train.0" in note for note in raised.value.__notes__)
    assert checkpoint.load(tmp_path / CHECKPOINT_NAME).step == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is no signal there")
@pytest.mark.parametrize("words", [["--sync"], ["--max-workers", "2"]], ids=["sync", "two workers"])
def test_ctrl_c_leaves_one_line_and_a_checkpoint_to_go_on_from(
    tmp_path: Path, inline: tuple[job.Result, Path], words: list[str]
) -> None:
    command = ["demo", "--steps", str(STEPS), "--out", str(tmp_path), *words]
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, *command], capture_output=True, text=True)
    again = " ".join(["weave", *command, "--resume"])
    assert done.stderr == f"weave demo: interrupted; go on with: {again}\n"
    assert done.returncode == 130
    assert "step   1/4" in done.stdout
    assert checkpoint.load(tmp_path / CHECKPOINT_NAME).step == 2
    result = job.run(short_job(STEPS), tmp_path, Recorder(), resume=True, driver=TWO)
    _assert_same(result, tmp_path, inline)


def test_the_report_says_who_ran_it_and_what_was_covered(inline: tuple[job.Result, Path]) -> None:
    result, folder = inline
    found = json.loads((folder / "report.json").read_text())["overlap"]
    assert found == {
        "sync": True,
        "max_workers": None,
        "steps": STEPS,
        "teacher_seconds": result.overlap.teacher_seconds,
        "student_seconds": result.overlap.student_seconds,
        "covered_seconds": 0,
        "covered_share": 0,
    }
    assert found["teacher_seconds"] > 0
    assert found["student_seconds"] > 0
