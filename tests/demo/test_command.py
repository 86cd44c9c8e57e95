from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from weave.demo import CHECKPOINT_NAME, command, graphs, install, job
from weave.demo.job import Driver, Settings
from weave.demo.text import Batch

from .small import short_job

STEPS = 3


def _parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(list(words))


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command as it is, on a few short texts."""
    small = short_job(0)
    monkeypatch.setattr(
        job,
        "Settings",
        partial(Settings, batch_size=small.batch_size, held_out=small.held_out, max_tokens=small.max_tokens),
    )


@pytest.mark.usefixtures("_short")
def test_plain_output_ends_with_the_table_and_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(_parse("--steps", str(STEPS), "--out", str(tmp_path / "out"))) == 0
    out, err = capsys.readouterr()
    assert not err
    assert "mean cosine (all together)" in out
    names = {"table.txt", "report.json", "graph.mmd", "scoring.mmd", "replace-one.png", "replace-one.svg"}
    names |= {"trace.jsonl", "trace.html"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names | {CHECKPOINT_NAME}
    for name in names:
        assert str(tmp_path / "out" / name) in out
    assert (tmp_path / "out" / "table.txt").read_text() in out
    covered = (
        r"^students trained \d+\.\d s, of which \d+\.\d s \(\d+%\) while the teacher's forward was still going on$"
    )
    assert re.search(covered, out, re.M)


@pytest.mark.usefixtures("_short")
def test_nothing_is_covered_with_sync(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(_parse("--steps", str(STEPS), "--out", str(tmp_path), "--sync")) == 0
    assert "of which 0.0 s (0%) while the teacher's forward was still going on" in capsys.readouterr().out


@pytest.mark.usefixtures("_short")
def test_json_output_is_json_lines_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(_parse("--steps", str(STEPS), "--out", str(tmp_path), "--json")) == 0
    out, err = capsys.readouterr()
    assert not err
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["step"] for line in lines if line["event"] == "step"] == list(range(1, STEPS + 1))
    last = lines[-1]
    assert last["event"] == "finished"
    assert last["improved"] is True
    assert last["mean_cosine"]["after"] > last["mean_cosine"]["before"]
    assert last["overlap"]["steps"] == STEPS
    assert last["overlap"] == json.loads((tmp_path / "report.json").read_text())["overlap"]
    assert all(Path(file).exists() for file in last["files"])


@pytest.mark.usefixtures("_short")
def test_status_one_where_nothing_improved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(_parse("--steps", "0", "--out", str(tmp_path))) == 1
    assert "The students did not improve." in capsys.readouterr().out


@pytest.mark.usefixtures("_short")
def test_status_one_where_the_students_got_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(graphs.BlockTrainer, "__call__", _spoil)
    assert command.main(_parse("--steps", "1", "--out", str(tmp_path), "--json")) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["improved"] is False


def _spoil(trainer: graphs.BlockTrainer, loss: object) -> float:
    for parameter in trainer.student.parameters():
        parameter.data.neg_()
    trainer.optimiser.zero_grad()
    return 1.0


@pytest.mark.usefixtures("_short")
def test_an_interrupt_keeps_the_checkpoint_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step = graphs.TrainingGraph.step

    def interrupted(graph: graphs.TrainingGraph, batch: Batch) -> list[float]:
        if graph.trainers[0].steps == 1:
            raise KeyboardInterrupt
        return step(graph, batch)

    monkeypatch.setattr(graphs.TrainingGraph, "step", interrupted)
    monkeypatch.setattr(job, "CHECKPOINT_EVERY", 1)
    folder = tmp_path / "with a blank"
    assert command.main(_parse("--steps", str(STEPS), "--seed", "2", "--out", str(folder), "--sync")) == 130
    assert capsys.readouterr().err == (
        f"weave demo: interrupted; go on with: weave demo --steps {STEPS} --seed 2 --out '{folder}' --sync --resume\n"
    )
    monkeypatch.setattr(graphs.TrainingGraph, "step", step)
    again = _parse("--steps", str(STEPS), "--seed", "2", "--out", str(folder), "--resume")
    assert command.main(again) == 0
    out = capsys.readouterr().out
    assert "resumed after step 1" in out
    assert re.search(
        r"^students trained .*teacher's forward was still going on \(in the 2 steps since the resume\)$", out, re.M
    )


@pytest.mark.usefixtures("_short")
def test_an_interrupt_before_the_first_checkpoint_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(job, "load_teacher", interrupted)
    assert command.main(_parse("--out", str(tmp_path))) == 130
    assert capsys.readouterr().err == "weave demo: interrupted before there was anything to keep\n"


def test_a_missing_extra_is_one_sentence_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install, "find_spec", lambda name: None if name in ("rich", "tokenizers") else find_spec(name))
    assert command.main(_parse("--out", str(tmp_path))) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err == 'weave demo: needs tokenizers, rich, not installed here: pip install "weave-dataflow[demo]"\n'


@pytest.mark.usefixtures("_short")
def test_a_reader_that_went_away_is_the_callers_to_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(job, "load_teacher", gone)
    with pytest.raises(BrokenPipeError):
        command.main(_parse("--out", str(tmp_path)))


def test_a_folder_that_can_not_be_made_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    assert command.main(_parse("--out", str(tmp_path / "file"))) == 2
    err = capsys.readouterr().err
    assert "File exists" in err
    assert str(tmp_path / "file") in err


@pytest.mark.parametrize("words", [("--steps", "-1"), ("--seed", "-3"), ("--steps", "many"), ("--max-workers", "0")])
def test_impossible_numbers_are_refused_by_the_parser(
    words: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        _parse(*words)
    assert words[0] in capsys.readouterr().err


def test_the_defaults_are_the_jobs() -> None:
    args = _parse()
    assert Settings(seed=args.seed, steps=args.steps) == Settings()
    assert Driver(sync=args.sync, max_workers=args.max_workers) == Driver()


@pytest.mark.parametrize(
    ("words", "driver"), [([], Driver()), (["--sync"], Driver(sync=True)), (["--max-workers", "3"], Driver(False, 3))]
)
def test_the_flags_pick_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], driver: Driver
) -> None:
    asked: list[Driver] = []

    def run(*_: object, driver: Driver, **__: object) -> None:
        asked.append(driver)
        raise install.DemoException("that will do")

    monkeypatch.setattr(job, "run", run)
    assert command.main(_parse("--out", str(tmp_path), *words)) == 2
    assert asked == [driver]


def test_both_drivers_at_once_are_refused_by_the_parser(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        _parse("--sync", "--max-workers", "2")
    assert "not allowed with" in capsys.readouterr().err


def test_an_interrupt_names_the_workers_too(tmp_path: Path) -> None:
    (tmp_path / CHECKPOINT_NAME).touch()
    said = command._after_interrupt(_parse("--max-workers", "2", "--out", str(tmp_path)))
    assert said == f"; go on with: weave demo --out {tmp_path} --max-workers 2 --resume"


def test_the_command_is_described_without_loading_anything_heavy() -> None:
    program = (
        "import argparse, sys; from weave.demo import command; parser = argparse.ArgumentParser(prog='weave demo'); "
        "command.add_arguments(parser); print(parser.format_help()); "
        "print([name for name in ('torch', 'numpy', 'matplotlib', 'rich', 'safetensors') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "exit status" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
