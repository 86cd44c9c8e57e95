"""What a killed job goes on from: one safetensors file with the students, their optimisers and the losses so far.

It is written beside its final name and then moved over it, so that a kill at any moment leaves the old file or the
new one. safetensors rather than ``torch.save``: reading it runs no code. What is no tensor travels as JSON in its
metadata.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from weave.demo.graphs import BlockTrainer
from weave.demo.install import DemoException
from weave.demo.scores import Scores

_FORMAT = "weave-demo/1"
# What Adam keeps for a parameter; its own count of steps is among them.
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class Checkpoint:
    """A job's state after ``step`` steps: ``settings`` it was started with, ``before`` the scores at step 0.

    ``losses`` has one row a step and one column a block. ``tensors`` is what :func:`restore` needs.
    """

    step: int
    settings: dict[str, Any]
    before: Scores
    losses: tuple[tuple[float, ...], ...]
    tensors: dict[str, Tensor]


def save(
    path: Path,
    trainers: Sequence[BlockTrainer],
    *,
    settings: dict[str, Any],
    before: Scores,
    losses: Sequence[Sequence[float]],
) -> None:
    """Write the state of ``trainers`` to ``path``, whole or not at all. ``settings`` must be plain data."""
    from safetensors.torch import save as to_bytes

    tensors: dict[str, Tensor] = {}
    for i, trainer in enumerate(trainers):
        for name, parameter in trainer.student.named_parameters():
            tensors[f"student.{i}.{name}"] = parameter.detach()
            kept = trainer.optimiser.state.get(parameter, {})
            for moment in _MOMENTS:
                if moment in kept:
                    tensors[f"optimiser.{i}.{name}.{moment}"] = kept[moment]
    state = {
        "format": _FORMAT,
        "step": len(losses),
        "settings": settings,
        "before": before.as_dict(),
        # A float's shortest representation reads back as the same float, so JSON keeps them exactly.
        "losses": [list(row) for row in losses],
    }
    content = to_bytes(tensors, metadata={"weave-demo": json.dumps(state)})
    beside = path.with_name(path.name + ".part")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def load(path: Path) -> Checkpoint:
    """Read a checkpoint. Raises :class:`DemoException` where the file is none of this demo's, or damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            state = json.loads((file.metadata() or {})["weave-demo"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a mapping
        if state["format"] != _FORMAT:
            raise DemoException(f"{path} has the format {state['format']!r}, this demo reads {_FORMAT!r}")
        return Checkpoint(
            step=state["step"],
            settings=state["settings"],
            before=Scores.from_dict(state["before"]),
            losses=tuple(tuple(row) for row in state["losses"]),
            tensors=tensors,
        )
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DemoException(
            f"{path} is no checkpoint of this demo, or damaged ({error!r}): start again without --resume"
        ) from error


@torch.no_grad()
def restore(checkpoint: Checkpoint, trainers: Sequence[BlockTrainer]) -> None:
    """Put students and optimisers of ``trainers`` into the checkpoint's state, in place.

    Raises :class:`DemoException` where a tensor is missing or has another shape.
    """
    for i, trainer in enumerate(trainers):
        for name, parameter in trainer.student.named_parameters():
            parameter.copy_(_tensor(checkpoint, f"student.{i}.{name}", parameter))
            if checkpoint.step:
                kept = {
                    moment: _tensor(checkpoint, f"optimiser.{i}.{name}.{moment}", parameter).clone()
                    for moment in _MOMENTS
                }
                trainer.optimiser.state[parameter] = kept
        trainer.steps = checkpoint.step


def _tensor(checkpoint: Checkpoint, name: str, parameter: nn.Parameter) -> Tensor:
    found = checkpoint.tensors.get(name)
    wanted = torch.Size() if name.endswith(".step") else parameter.shape
    if found is None or found.shape != wanted:
        what = "is missing" if found is None else f"has the shape {tuple(found.shape)}, not {tuple(wanted)}"
        raise DemoException(f"the checkpoint's tensor {name} {what}: start again without --resume")
    return found
