"""The demo's two stitched graphs. The teacher and the students are plain modules; all that joins them is stitches.

Training, once a batch (``i`` runs over the blocks)::

    external batch ─> teacher ─ input of block i ──> student.i ──> loss.i ──> train.i ──> external loss.i
                              └ output of block i ───────────────────┘
    external mask ───────────────────────────────────────────────────┘

The teacher runs once whatever the number of students, its last norm and the pooling never (nothing of them is
wanted), and the students learn inside the run: a ``train.i`` node steps an optimiser of its own.

Run by the tasks driver, student ``i`` starts as soon as its block's input was captured, in a worker thread, while the
teacher's forward goes on in another. Its three nodes follow one another, share nothing with another student's and draw
no random numbers: so what it learns does not depend on the driver, nor on how many threads there are.

Scoring. The students are stitched *into* the teacher: an override takes the place of a block's output, and the block
itself doesn't run. A target can't feed itself, since its forward would have to be over before it is through. So the
teacher's module takes part several times, under several names:

- ``teacher``: untouched. Its embedding is what the others are compared with.
- ``only.i``: block ``i`` is student ``i``'s answer to what the teacher's own block received. The layers in front of
  it are overridden with what the teacher computed, so that they aren't computed once more.
- ``all.0`` to ``all.n``: a chain, for all students together. Link ``k`` takes the layers in front of layer ``k`` from
  the links before it, puts the answer of student ``k`` in place of block ``k``, and is left where block ``k + 1`` would
  be called; what that one would have received goes to the next student. The last link gives the embedding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from weave import ExternalTarget, FunctionTarget, ModuleTarget, Needle, StitchedModule, StitchedModuleOutput
from weave.demo.encoder import SentenceEncoder, block_name
from weave.demo.overlap import Stopwatch
from weave.demo.text import Batch


def missed_share(student: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    """The share of the teacher block's output that the student's misses: squared error over squared length.

    ``student`` and ``teacher`` are ``[B, T, hidden]``, ``mask`` is ``[B, T]``; the result, a scalar, is the mean over
    the real tokens. Relative to each token, because a few tokens (the first and the last of a sentence) have outputs
    many times longer than the rest: a plain squared error would be about them alone.
    """
    real = mask.bool()
    wanted = teacher[real]
    error = (student[real] - wanted).square().sum(dim=-1)
    return (error / wanted.square().sum(dim=-1)).mean()


class BlockTrainer:
    """One student's training, called by its node once a run: a gradient, a step of Adam (Kingma and Ba, 2015).

    The learning rate rises over the first steps and then falls with the square root of their number. It depends on
    the number of steps done, not on the number to come, so that a job can be cut, resumed and prolonged anywhere.
    """

    _WARM_UP = 5
    _FALL = 20

    def __init__(self, student: nn.Module, learning_rate: float) -> None:
        self.student = student
        self.optimiser = torch.optim.Adam(student.parameters(), lr=learning_rate, betas=(0.9, 0.99))
        self.steps = 0
        self._peak = learning_rate

    def __call__(self, loss: Tensor) -> float:
        """Take one step down ``loss``, a scalar with a graph; what it was before the step."""
        rate = self._peak * min(1.0, (self.steps + 1) / self._WARM_UP) / (1.0 + self.steps / self._FALL) ** 0.5
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
        self.optimiser.step()
        self.optimiser.zero_grad()
        self.steps += 1
        return loss.item()


class TrainingGraph:
    """The students learn what the teacher's blocks do, one batch a run. See this module's head for the graph.

    Each run changes the students, so the next one may not begin before it has ended. ``watch`` times the nodes.
    """

    def __init__(
        self,
        teacher: SentenceEncoder,
        students: nn.ModuleList,
        *,
        learning_rate: float,
        max_workers: int | None = None,
    ) -> None:
        """``teacher`` should be frozen; ``students`` has one module for each of its blocks, and is changed in place.

        ``max_workers`` is about :meth:`run` alone: how many nodes compute at once, None for one on each core.
        """
        self.trainers = [BlockTrainer(student, learning_rate) for student in students]
        self.watch = Stopwatch()
        self._teacher, self._students = teacher, students
        external = ExternalTarget()
        whole = ModuleTarget("teacher", teacher)
        needle = Needle().stitch(external.input("batch"), whole.input(""))
        for i, (student, trainer) in enumerate(zip(students, self.trainers, strict=True)):
            block = block_name(i)
            pupil = ModuleTarget(f"student.{i}", student)
            loss = FunctionTarget(f"loss.{i}", self.watch.student(missed_share))
            train = FunctionTarget(f"train.{i}", self.watch.student(trainer))
            # Detached, so that no student's gradient goes back into a forward that may still be going on.
            needle.stitch(whole.input(block, adapter="detach"), pupil.input(""))
            # In the order of the loss's arguments.
            needle.stitch(pupil.output(""), loss.input())
            needle.stitch(whole.output(block, adapter="detach"), loss.input())
            needle.stitch(external.input("mask"), loss.input())
            needle.stitch(loss.output(), train.input())
            needle.stitch(train.output(), external.output(f"loss.{i}"))
        self.stitched: StitchedModule = needle.knot().with_options(max_workers=max_workers)

    def step(self, batch: Batch) -> list[float]:
        """One run in this thread: each student takes one step. The loss of each, as it was before."""
        with self.watch.step(self._teacher, self._students):
            return self._losses(self.stitched(_given(batch), {}))

    async def run(self, batch: Batch) -> list[float]:
        """The same in worker threads: students start while the teacher's forward still goes on."""
        with self.watch.step(self._teacher, self._students):
            return self._losses(await self.stitched.run(_given(batch), {}))

    def _losses(self, out: StitchedModuleOutput) -> list[float]:
        return [out.captured_outputs[f"loss.{i}"] for i in range(len(self.trainers))]


def _given(batch: Batch) -> dict[str, Any]:
    return {"batch": (batch.ids, batch.mask), "mask": batch.mask}


class ScoringGraph:
    """What the students are worth inside the teacher. See this module's head for the graph."""

    def __init__(self, teacher: SentenceEncoder, students: nn.ModuleList) -> None:
        """``students`` has one module for each of the teacher's blocks. Nothing is changed."""
        self.blocks = len(students)
        needle = Needle()
        external = ExternalTarget()
        whole = ModuleTarget("teacher", teacher)
        needle.stitch(whole.output(""), external.output("teacher"))
        answers = []
        for i, student in enumerate(students):
            pupil = ModuleTarget(f"student.{i}", student)
            needle.stitch(whole.input(block_name(i)), pupil.input(""))
            answers.append(pupil.output(""))

        for i in range(self.blocks):
            only = ModuleTarget(f"only.{i}", teacher)
            for front in range(i):
                needle.stitch(whole.output(f"layers.{front}"), only.output(f"layers.{front}"))
            needle.stitch(answers[i], only.output(block_name(i)))
            needle.stitch(only.output(""), external.output(f"only.{i}"))

        links = [ModuleTarget(f"all.{k}", teacher) for k in range(self.blocks)]
        # The first block receives the same as in the teacher, so its student need not answer twice.
        answer = answers[0]
        for k, link in enumerate(links):
            for front in range(k):
                needle.stitch(links[front].output(f"layers.{front}"), link.output(f"layers.{front}"))
            needle.stitch(answer, link.output(block_name(k)))
            if k + 1 < self.blocks:
                pupil = ModuleTarget(f"all.student.{k + 1}", students[k + 1])
                needle.stitch(link.input(block_name(k + 1)), pupil.input(""))
                answer = pupil.output("")
        needle.stitch(links[-1].output(""), external.output("all"))
        self.stitched: StitchedModule = needle.knot()

    @torch.no_grad()
    def embeddings(self, batch: Batch) -> dict[str, Tensor]:
        """One run: the embeddings ``[B, hidden]`` by the ``teacher``, with one student (``only.i``), with ``all``."""
        # Every module is called with these; for the students their stitched input takes the place.
        out = self.stitched({}, {}, batch.ids, batch.mask)
        return dict(out.captured_outputs)
