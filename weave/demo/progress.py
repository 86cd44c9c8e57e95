"""What is shown while the job runs: a live line on a terminal, plain lines in a pipe, JSON lines for a machine.

The three share one protocol, and the job knows only that. All of it goes to one stream. With ``--json`` each line is
one object whose ``event`` says which it is, and nothing else is written to standard output.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from weave.demo.scores import Scores

Losses = Sequence[Sequence[float]]

# A single batch's loss depends on its texts more than on the students; the mean over a few shows where it goes.
_SMOOTHED_OVER = 8
# In plain lines: a line every so many steps.
_LINE_EVERY = 5


class Progress(Protocol):
    """What the job tells while it runs. ``losses`` has a row for each step done so far, a column for each block."""

    def started(self, *, blocks: Sequence[str], steps: int, training_texts: int, held_out_texts: int) -> None:
        """Everything is loaded; the blocks with these paths are to be trained for so many steps."""

    def note(self, message: str) -> None:
        """A sentence for the user."""

    def scoring(self, when: str, done: int, texts: int) -> None:
        """``done`` of the held-out texts are through. ``when`` is "before" or "after" the training."""

    def scored(self, when: str, scores: Scores) -> None:
        """The scores are known."""

    def resumed(self, losses: Losses) -> None:
        """The job goes on from a checkpoint with these steps done."""

    def step(self, step: int, losses: Losses) -> None:
        """``step`` steps are done."""

    def checkpoint(self, step: int, file: Path) -> None:
        """The state after ``step`` steps is kept in ``file``."""


def smoothed(losses: Losses) -> list[float]:
    """The mean loss of each block over the last steps."""
    recent = losses[-_SMOOTHED_OVER:]
    return [sum(column) / len(recent) for column in zip(*recent, strict=True)]


def loss_line(losses: Losses) -> str:
    """The smoothed losses in a few characters, in the order of the blocks: ``0.318 0.412``."""
    return " ".join(f"{loss:.3f}" for loss in smoothed(losses))


class JsonProgress:
    """One JSON object a line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._blocks: Sequence[str] = ()
        self._steps = 0

    def emit(self, event: str, **fields: Any) -> None:
        """Write one line. Flushed at once, so that a reader sees it when it happens."""
        print(json.dumps({"event": event, **fields}), file=self._stream, flush=True)

    def started(self, *, blocks: Sequence[str], steps: int, training_texts: int, held_out_texts: int) -> None:
        """Write what there is to do."""
        self._blocks, self._steps = blocks, steps
        self.emit(
            "started",
            blocks=list(blocks),
            steps=steps,
            training_texts=training_texts,
            held_out_texts=held_out_texts,
        )

    def note(self, message: str) -> None:
        """Write the sentence."""
        self.emit("note", message=message)

    def scoring(self, when: str, done: int, texts: int) -> None:
        """Write how far the scoring is."""
        self.emit("scoring", when=when, done=done, texts=texts)

    def scored(self, when: str, scores: Scores) -> None:
        """Write the scores."""
        self.emit("scored", when=when, scores=scores.as_dict())

    def resumed(self, losses: Losses) -> None:
        """Write where it goes on."""
        self.emit("resumed", step=len(losses))

    def step(self, step: int, losses: Losses) -> None:
        """Write the step's losses."""
        self.emit("step", step=step, steps=self._steps, loss=dict(zip(self._blocks, losses[-1], strict=True)))

    def checkpoint(self, step: int, file: Path) -> None:
        """Write which file it is."""
        self.emit("checkpoint", step=step, file=str(file))


class PlainProgress:
    """Lines for a file or a pipe: one every few steps."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._steps = 0

    def _say(self, line: str) -> None:
        print(line, file=self._stream, flush=True)

    def started(self, *, blocks: Sequence[str], steps: int, training_texts: int, held_out_texts: int) -> None:
        """Say what there is to do."""
        self._steps = steps
        self._say(introduction(blocks, training_texts, held_out_texts))

    def note(self, message: str) -> None:
        """Say it."""
        self._say(message)

    def scoring(self, when: str, done: int, texts: int) -> None:
        """Say how far the scoring is."""
        self._say(f"scoring {when} training: {done}/{texts} held-out texts")

    def scored(self, when: str, scores: Scores) -> None:
        """Say the headline number."""
        self._say(verdict(when, scores))

    def resumed(self, losses: Losses) -> None:
        """Say where it goes on."""
        self._say(f"resumed after step {len(losses)}")

    def step(self, step: int, losses: Losses) -> None:
        """Say the smoothed losses, every few steps."""
        if step == 1 or step % _LINE_EVERY == 0 or step == self._steps:
            self._say(f"step {step:>3}/{self._steps}  loss by block  {loss_line(losses)}")

    def checkpoint(self, step: int, file: Path) -> None:
        """Nothing: a line every few steps would be noise."""


class LiveProgress:
    """A bar with the loss of each block, on a terminal. Used within :func:`live`."""

    def __init__(self, console: Console, bars: Bars) -> None:
        self._console = console
        self._bars = bars
        self._task: TaskID | None = None
        self._steps = 0

    def started(self, *, blocks: Sequence[str], steps: int, training_texts: int, held_out_texts: int) -> None:
        """Say what there is to do."""
        self._steps = steps
        self._console.print(introduction(blocks, training_texts, held_out_texts))

    def note(self, message: str) -> None:
        """Say it."""
        self._console.print(message, style="yellow")

    def scoring(self, when: str, done: int, texts: int) -> None:
        """Move the bar."""
        self._show(f"scoring {when}", done, texts, "held-out texts")

    def scored(self, when: str, scores: Scores) -> None:
        """Take the bar away and say the headline number."""
        self._hide()
        self._console.print(verdict(when, scores))

    def resumed(self, losses: Losses) -> None:
        """Say where it goes on."""
        self._console.print(f"resumed after step {len(losses)}")

    def step(self, step: int, losses: Losses) -> None:
        """Move the bar, and show the smoothed losses beside it."""
        self._show("training", step, self._steps, f"loss by block {loss_line(losses)}")
        if step == self._steps:
            self._hide()
            self._console.print(f"trained: {step} steps, loss by block {loss_line(losses)}")

    def checkpoint(self, step: int, file: Path) -> None:
        """Nothing: a line every few steps would be noise."""

    def _show(self, what: str, done: int, total: int, detail: str) -> None:
        if self._task is None:
            self._task = self._bars.add_task(what, total=total, detail=detail)
        self._bars.update(self._task, description=what, completed=done, total=total, detail=detail)

    def _hide(self) -> None:
        if self._task is not None:
            self._bars.remove_task(self._task)
            # Else the next line printed would be followed once more by the bar as it last stood.
            self._bars.refresh()
            self._task = None


@contextmanager
def live(console: Console) -> Iterator[LiveProgress]:
    """The live display, taken off the screen at the end whatever ends it. Under the bar: what computes just now."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bars

    from weave.observe import Progress as Runs

    runs = Runs(console, after=0, draws=False)

    class BarsAndRuns(Bars):
        def get_renderables(self) -> Iterator[RenderableType]:
            yield from super().get_renderables()
            yield runs.drawing(counts=False)

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}"),
    )
    with runs, BarsAndRuns(*columns, console=console, transient=True) as bars:
        yield LiveProgress(console, bars)


def introduction(blocks: Sequence[str], training_texts: int, held_out_texts: int) -> str:
    """What is about to happen, in two lines."""
    return (
        f"teacher: all-MiniLM-L6-v2, a student for each of its {len(blocks)} feed-forward blocks\n"
        f"text: the Python documentation, {training_texts} paragraphs to train on, {held_out_texts} held out"
    )


def verdict(when: str, scores: Scores) -> str:
    """The headline number in a line."""
    return f"{when} training: mean cosine to the teacher {scores.together.cosine:.3f} with all students in place"
