"""The job: score the students, train them, score them again. Everything that must not depend on where it was cut.

The result is the same to the last bit whether the job ran through or was killed and resumed, whichever driver ran the
training and with however many workers: batches follow from seed and step, the learning rate from the step, students
share nothing that changes, the number of torch's threads is fixed (a sum's rounding depends on how it is split), and the
scores before training are kept in the checkpoint rather than computed again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import torch

from weave.demo import CHECKPOINT_NAME, TRACE_NAME, checkpoint
from weave.demo.encoder import WEIGHTS_SHA256, SentenceEncoder, block_name, load_teacher
from weave.demo.graphs import ScoringGraph, TrainingGraph
from weave.demo.install import DemoException
from weave.demo.overlap import Overlap
from weave.demo.progress import Progress
from weave.demo.scores import Scores, score
from weave.demo.students import UNITS, cut_all, parameters
from weave.demo.text import MAX_TOKENS, TOKENIZER_SHA256, Batches, Reader, paragraphs, split
from weave.observe import Recorder

# One, though there may be more cores: with two, every matrix product waits for the slower half, and on a busy machine
# that made a step six times as slow (tried); with one it was twice as slow at worst. The other cores are for the
# workers: two of them with one thread each were about as quick as one with two, and lost little on a busy machine.
THREADS = 1
CHECKPOINT_EVERY = 5
# So many steps of a go are recorded: ten kilobytes each, and what comes later looks the same.
TRACED = 100


@dataclass(frozen=True)
class Settings:
    """What is done. The defaults take well under a minute and a half on two cores.

    ``units``: hidden units a student keeps. ``batch_size``, ``held_out``: in texts. ``max_tokens``: a text's length.
    """

    seed: int = 0
    steps: int = 60
    units: int = UNITS
    batch_size: int = 8
    learning_rate: float = 4e-3
    held_out: int = 96
    max_tokens: int = MAX_TOKENS


@dataclass(frozen=True)
class Driver:
    """What runs the training graph. The result is the same with each; the time it takes is not.

    ``sync``: this thread alone, in which students train when the teacher's forward is over. Otherwise up to
    ``max_workers`` threads (None: one for each core), in which they train while it goes on.
    """

    sync: bool = False
    max_workers: int | None = None


@dataclass(frozen=True)
class Parameters:
    """How many parameters there are. ``block_before`` and ``block_after``: one each for every block."""

    block_before: tuple[int, ...]
    block_after: tuple[int, ...]
    encoder_before: int

    @property
    def encoder_after(self) -> int:
        """The encoder's, with all students in place."""
        return self.encoder_before - sum(self.block_before) + sum(self.block_after)


@dataclass(frozen=True)
class Result:
    """What came out. ``blocks`` are the paths of the replaced blocks; ``losses`` has a row a step, a column a block.

    ``driver``, ``overlap`` and ``trace`` (the file in which steps were recorded, if any were) are about the steps done
    now, not about those before a resume, and no part of what makes two results equal.
    """

    settings: Settings
    blocks: tuple[str, ...]
    parameters: Parameters
    before: Scores
    after: Scores
    losses: tuple[tuple[float, ...], ...]
    training_graph: str = field(repr=False)
    scoring_graph: str = field(repr=False)
    driver: Driver = field(default=Driver(), compare=False)
    overlap: Overlap = field(default=Overlap(), compare=False)
    trace: Path | None = field(default=None, compare=False)

    @property
    def improved(self) -> bool:
        """Whether training brought the encoder with all students in place nearer to the teacher."""
        return self.after.together.cosine > self.before.together.cosine


@dataclass(frozen=True)
class _Texts:
    digest: str
    training: list[list[int]]
    held_out: list[list[int]]


def run(
    settings: Settings, folder: Path, progress: Progress, *, resume: bool = False, driver: Driver = Driver()
) -> Result:
    """Do the job, keeping checkpoints in ``folder``, which is made where it is missing.

    With ``resume`` it goes on from the checkpoint that lies there, if one does; without, that one is removed. Unless
    ``driver`` is synchronous, it runs an event loop, so there must be none in this thread.

    Raises :class:`DemoException` where something is not installed, and where the checkpoint belongs to other settings.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _threads(THREADS):
        return _run(settings, folder / CHECKPOINT_NAME, progress, driver, resume=resume)


def _run(settings: Settings, file: Path, progress: Progress, driver: Driver, *, resume: bool) -> Result:
    teacher = load_teacher()
    texts = _read(settings)
    fixed = _fixed(settings, texts.digest)
    kept = _kept(file, fixed, settings.steps, progress, resume=resume)
    students = cut_all(teacher, settings.units)
    training = TrainingGraph(teacher, students, learning_rate=settings.learning_rate, max_workers=driver.max_workers)
    scoring = ScoringGraph(teacher, students)
    blocks = tuple(block_name(i) for i in range(len(students)))
    progress.started(
        blocks=blocks,
        steps=settings.steps,
        training_texts=len(texts.training),
        held_out_texts=len(texts.held_out),
    )

    if kept is None:
        before = _score(scoring, texts.held_out, progress, "before")
        losses: list[tuple[float, ...]] = []
        checkpoint.save(file, training.trainers, settings=fixed, before=before, losses=losses)
    else:
        checkpoint.restore(kept, training.trainers)
        before, losses = kept.before, list(kept.losses)
        progress.scored("before", before)
        progress.resumed(losses)

    def keep(row: list[float]) -> None:
        losses.append(tuple(row))
        progress.step(len(losses), losses)
        if len(losses) % CHECKPOINT_EVERY == 0 or len(losses) == settings.steps:
            checkpoint.save(file, training.trainers, settings=fixed, before=before, losses=losses)
            progress.checkpoint(len(losses), file)

    batches = Batches(texts.training, size=settings.batch_size, seed=settings.seed)
    steps = range(len(losses), settings.steps)
    with Recorder(file.parent / TRACE_NAME) as recorder:
        _train(training, batches, steps[:TRACED], driver, keep)
    _train(training, batches, steps[TRACED:], driver, keep)

    after = _score(scoring, texts.held_out, progress, "after")
    return Result(
        settings=settings,
        blocks=blocks,
        parameters=_count(teacher, training),
        before=before,
        after=after,
        losses=tuple(losses),
        training_graph=training.stitched.plan.to_mermaid(),
        scoring_graph=scoring.stitched.plan.to_mermaid(),
        driver=driver,
        overlap=training.watch.total,
        trace=recorder.path if steps and recorder.path.exists() else None,
    )


def _train(
    training: TrainingGraph, batches: Batches, steps: range, driver: Driver, keep: Callable[[list[float]], None]
) -> None:
    """Take the ``steps``, one after the other; ``keep`` gets the losses of each before the next one begins."""
    if driver.sync or not steps:
        for step in steps:
            keep(training.step(batches.at(step)))
        return

    # Not `stitched.stream(batches, in_flight=1)`: it may start on the next input as soon as a result was taken, and the
    # students must stand still until `keep` has saved them. Nor is there anything to gain by making the next batch
    # meanwhile: the texts are numbers already, and to pad eight of them takes a thousandth of a step.
    async def take_them() -> None:
        for step in steps:
            keep(await training.run(batches.at(step)))

    anyio.run(take_them)


def _score(graph: ScoringGraph, rows: list[list[int]], progress: Progress, when: str) -> Scores:
    found = score(graph, rows, on_batch=lambda done, texts: progress.scoring(when, done, texts))
    progress.scored(when, found)
    return found


def _read(settings: Settings) -> _Texts:
    every = paragraphs()
    try:
        training, held_out = split(every, settings.held_out)
    except ValueError as error:
        raise DemoException(
            f"this Python's documentation has too little text ({error}): use a Python with the whole of pydoc_data.topics"
        ) from error
    reader = Reader(max_tokens=settings.max_tokens)
    digest = hashlib.sha256("\n".join(every).encode()).hexdigest()
    return _Texts(digest, reader.ids(training), reader.ids(held_out))


def _fixed(settings: Settings, text_digest: str) -> dict[str, Any]:
    """What a checkpoint must agree on. Not the number of steps: a job may be prolonged."""
    return {
        "seed": settings.seed,
        "units": settings.units,
        "batch_size": settings.batch_size,
        "learning_rate": settings.learning_rate,
        "held_out": settings.held_out,
        "max_tokens": settings.max_tokens,
        "threads": THREADS,
        "text": text_digest,
        "weights": WEIGHTS_SHA256,
        "tokenizer": TOKENIZER_SHA256,
        # Another release may round otherwise, and then the table would not be the uninterrupted job's.
        "torch": torch.__version__,
    }


def _kept(
    file: Path, fixed: dict[str, Any], steps: int, progress: Progress, *, resume: bool
) -> checkpoint.Checkpoint | None:
    """The checkpoint to go on from, checked, or None; without ``resume`` one that lies there is removed."""
    if not resume:
        if file.exists():
            progress.note(f"starting again: {file} is removed (weave demo --resume would have gone on from it)")
            file.unlink()
        return None
    if not file.exists():
        progress.note(f"nothing to resume in {file.parent}: starting from the beginning")
        return None
    kept = checkpoint.load(file)
    differing = [
        f"{name} was {kept.settings.get(name)!r}, now {value!r}"
        for name, value in fixed.items()
        if kept.settings.get(name) != value
    ]
    if differing:
        raise DemoException(
            f"{file} belongs to another job ({'; '.join(differing)}): "
            "resume with what it was started with, or start again without --resume"
        )
    if kept.step > steps:
        raise DemoException(
            f"{file} has {kept.step} steps done already, more than the {steps} asked for: "
            f"resume with --steps {kept.step} or more, or start again without --resume"
        )
    return kept


def _count(teacher: SentenceEncoder, training: TrainingGraph) -> Parameters:
    return Parameters(
        block_before=tuple(parameters(teacher.block(i)) for i in range(len(training.trainers))),
        block_after=tuple(parameters(trainer.student) for trainer in training.trainers),
        encoder_before=parameters(teacher),
    )


@contextmanager
def _threads(number: int) -> Iterator[None]:
    found = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(found)
