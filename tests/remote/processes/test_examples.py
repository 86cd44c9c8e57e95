"""The examples over ranks do what they say, and what they did is recorded on all ranks as one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.remote.processes.crew import PATIENCE, ROOT, Crew
from weave.cli import main

EXAMPLES = ROOT / "examples"


def of_rank(rank: int, said: str) -> list[str]:
    """What a rank printed; not torch's own words (gloo's, say, or transformers')."""
    return [line.removeprefix(f"[{rank}] ") for line in said.splitlines() if line.startswith(f"[{rank}] ")]


def test_a_model_split_over_four_ranks(tmp_path: Path) -> None:
    with Crew(4, EXAMPLES / "split_model.py", folder=tmp_path, warm=True) as crew:
        crew.ends()
        line = crew.output(0).splitlines()[-1]
        assert line == "4 ranks, 8 micro-batches, mean loss 4.8512; as in one process: True"


def test_students_on_other_ranks_learn_what_they_learn_on_one(tmp_path: Path) -> None:
    lines = []
    for world in (1, 3):
        folder = tmp_path / str(world)
        folder.mkdir()
        with Crew(world, EXAMPLES / "distil_over_ranks.py", folder=folder, warm=True) as crew:
            crew.ends()
            lines.append(crew.output(0).splitlines())
    assert lines[0] == lines[1]
    losses = [[float(word) for word in line.split()[3::2]] for line in lines[0]]
    assert len(losses) == 2
    assert all(last < 0.6 * first for first, last in losses), lines


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what two ranks recorded of the split model, by the command as a user gives it."""
    folder = tmp_path_factory.mktemp("recorded")
    done = subprocess.run(
        [sys.executable, "-m", "weave", "run-ranks", "2", str(EXAMPLES / "split_model.py")],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "WEAVE_TRACE": "run.jsonl", "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    line = of_rank(0, done.stdout)[-1]
    assert line == "2 ranks, 8 micro-batches, mean loss 4.8512; as in one process: True"
    assert sorted(file.name for file in folder.iterdir()) == ["run.rank0.jsonl", "run.rank1.jsonl"]
    return folder


def test_two_ranks_recordings_are_one_summary(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(recorded)
    assert main(["trace", "summary", "run.jsonl", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["ranks"] == [0, 1]
    assert sorted(run["rank"] for run in said["runs"]) == [0] * 8 + [1] * 8
    assert {run["status"] for run in said["runs"]} == {"ok"}
    assert main(["trace", "summary", "run.jsonl"]) == 0
    assert "2 ranks" in capsys.readouterr().out


def test_arrows_lead_from_a_send_to_its_receive(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(recorded)
    assert main(["trace", "convert", "run.jsonl"]) == 0
    got = capsys.readouterr()
    assert "left out" not in got.err, "one machine has one clock"
    events = json.loads((recorded / "run.perfetto.json").read_text())["traceEvents"]
    ranks = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    begins = {(e["cat"], e["id"]): e for e in events if e["ph"] == "s"}
    ends = {(e["cat"], e["id"]): e for e in events if e["ph"] == "f"}
    assert begins.keys() == ends.keys()
    between = [(begins[key], ends[key]) for key in begins if begins[key]["pid"] != ends[key]["pid"]]
    # By batch: the hidden states and the labels there, the loss back.
    assert len(between) == 3 * 8
    there = [begin for begin, _ in between if ranks[begin["pid"]].startswith("rank 0")]
    assert len(there) == 2 * 8
    assert all(begin["ts"] <= end["ts"] for begin, end in between)


def test_two_ranks_recordings_are_one_page(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(recorded)
    assert main(["trace", "html", "run.jsonl"]) == 0
    assert "16 runs" in capsys.readouterr().out
    page = (recorded / "run.html").read_text()
    found = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    assert sorted(run["rank"] for run in json.loads(found[1])["runs"]) == [0] * 8 + [1] * 8
