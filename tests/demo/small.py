"""What the tests of the demo run on: an encoder small enough to be instant, and a job cut to a few seconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from weave.demo.encoder import EncoderSizes, SentenceEncoder
from weave.demo.job import Settings
from weave.demo.scores import Scores
from weave.demo.text import Batch, padded

TINY = EncoderSizes(layers=3, hidden=16, heads=2, ffn=32, vocabulary=50, positions=32)


def tiny_encoder(seed: int = 0) -> SentenceEncoder:
    torch.manual_seed(seed)
    return SentenceEncoder(TINY).eval().requires_grad_(False)


def tiny_rows(number: int, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, 12, (number,), generator=generator).tolist()
    return [torch.randint(1, TINY.vocabulary, (length,), generator=generator).tolist() for length in lengths]


def tiny_batch(number: int = 4, seed: int = 0) -> Batch:
    return padded(tiny_rows(number, seed))


def short_job(steps: int, *, seed: int = 0) -> Settings:
    """The real encoder and the real text, but a few short texts of it."""
    return Settings(seed=seed, steps=steps, batch_size=4, held_out=8, max_tokens=12)


class Recorder:
    """A progress that keeps what it is told, as (event, detail) pairs."""

    def __init__(self) -> None:
        self.events: list[tuple[str, object]] = []

    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    def started(self, *, blocks: Sequence[str], steps: int, training_texts: int, held_out_texts: int) -> None:
        self.events.append(("started", (tuple(blocks), steps, training_texts, held_out_texts)))

    def note(self, message: str) -> None:
        self.events.append(("note", message))

    def scoring(self, when: str, done: int, texts: int) -> None:
        self.events.append(("scoring", (when, done, texts)))

    def scored(self, when: str, scores: Scores) -> None:
        self.events.append(("scored", when))

    def resumed(self, losses: Sequence[Sequence[float]]) -> None:
        self.events.append(("resumed", len(losses)))

    def step(self, step: int, losses: Sequence[Sequence[float]]) -> None:
        self.events.append(("step", step))

    def checkpoint(self, step: int, file: Path) -> None:
        self.events.append(("checkpoint", step))
