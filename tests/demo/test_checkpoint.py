from __future__ import annotations

import copy
import os
from pathlib import Path

import pytest
import torch

from weave.demo import checkpoint
from weave.demo.encoder import SentenceEncoder
from weave.demo.graphs import TrainingGraph
from weave.demo.install import DemoException
from weave.demo.scores import Score, Scores
from weave.demo.students import cut_all

from .small import TINY, tiny_batch, tiny_encoder

BEFORE = Scores((Score(0.1, 0.2),) * TINY.layers, Score(1 / 3, 0.4))
SETTINGS = {"seed": 7}


def _graph(teacher: SentenceEncoder, units: int = 8) -> TrainingGraph:
    return TrainingGraph(teacher, cut_all(teacher, units), learning_rate=1e-2)


def _trained(steps: int) -> tuple[TrainingGraph, list[list[float]]]:
    graph = _graph(tiny_encoder())
    return graph, [graph.step(tiny_batch(seed=step)) for step in range(steps)]


def _save(path: Path, graph: TrainingGraph, losses: list[list[float]]) -> None:
    checkpoint.save(path, graph.trainers, settings=SETTINGS, before=BEFORE, losses=losses)


@pytest.mark.parametrize("steps", [0, 3])
def test_what_is_loaded_goes_on_as_if_never_stopped(tmp_path: Path, steps: int) -> None:
    graph, losses = _trained(steps)
    _save(tmp_path / "c.safetensors", graph, losses)

    kept = checkpoint.load(tmp_path / "c.safetensors")
    assert (kept.step, kept.settings, kept.before) == (steps, SETTINGS, BEFORE)
    assert [list(row) for row in kept.losses] == losses
    other = _graph(tiny_encoder())
    checkpoint.restore(kept, other.trainers)
    for step in range(steps, steps + 3):
        assert other.step(tiny_batch(seed=step)) == graph.step(tiny_batch(seed=step))
    for ours, theirs in zip(graph.trainers, other.trainers, strict=True):
        for name, value in ours.student.state_dict().items():
            assert torch.equal(value, theirs.student.state_dict()[name])
        assert ours.steps == theirs.steps == steps + 3


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, losses = _trained(1)
    file = tmp_path / "c.safetensors"
    _save(file, graph, losses)
    content = file.read_bytes()

    def killed(*_: object) -> None:
        raise OSError("killed in between")

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(OSError, match="in between"):
        _save(file, graph, [*losses, losses[0]])
    assert file.read_bytes() == content
    monkeypatch.undo()
    _save(file, graph, [*losses, losses[0]])
    assert checkpoint.load(file).step == 2
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_restoring_changes_nothing_in_the_checkpoint(tmp_path: Path) -> None:
    graph, losses = _trained(2)
    _save(tmp_path / "c.safetensors", graph, losses)
    kept = checkpoint.load(tmp_path / "c.safetensors")
    before = copy.deepcopy(kept.tensors)
    other = _graph(tiny_encoder())
    checkpoint.restore(kept, other.trainers)
    other.step(tiny_batch())
    assert all(torch.equal(before[name], value) for name, value in kept.tensors.items())


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x02\x00\x00\x00\x00\x00\x00\x00{}"])
def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "c.safetensors"
    file.write_bytes(content)
    with pytest.raises(DemoException, match="start again without --resume"):
        checkpoint.load(file)


def test_a_truncated_checkpoint_is_refused(tmp_path: Path) -> None:
    graph, losses = _trained(1)
    file = tmp_path / "c.safetensors"
    _save(file, graph, losses)
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DemoException, match="or damaged"):
        checkpoint.load(file)


def test_another_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, losses = _trained(1)
    file = tmp_path / "c.safetensors"
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_FORMAT", "weave-demo/0")
        _save(file, graph, losses)
    with pytest.raises(DemoException, match="'weave-demo/0', this demo reads 'weave-demo/1'"):
        checkpoint.load(file)


def test_students_of_another_size_are_refused(tmp_path: Path) -> None:
    graph, losses = _trained(1)
    file = tmp_path / "c.safetensors"
    _save(file, graph, losses)
    with pytest.raises(DemoException, match=r"student\.0\.up\.weight has the shape \(8, 16\), not \(4, 16\)"):
        checkpoint.restore(checkpoint.load(file), _graph(tiny_encoder(), units=4).trainers)
