"""How near a compressed encoder is to its teacher, from the embeddings of the held-out texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from weave.demo.graphs import ScoringGraph
from weave.demo.text import in_order

BATCH_SIZE = 16


@dataclass(frozen=True)
class Score:
    """One encoder against the teacher.

    ``cosine`` is the mean over the texts of the cosine between its embedding and the teacher's. ``top1`` is the share
    of texts for which the nearest other text is the same one: what a search over these texts would notice.
    """

    cosine: float
    top1: float


@dataclass(frozen=True)
class Scores:
    """``alone[i]``: only block ``i`` is replaced, the replace-one score. ``together``: all of them are."""

    alone: tuple[Score, ...]
    together: Score

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Scores:
        """The opposite of :meth:`as_dict`."""
        return cls(tuple(Score(**score) for score in data["alone"]), Score(**data["together"]))


def nearest_other(embeddings: Tensor) -> Tensor:
    """For each of ``[N, hidden]`` embeddings of length one the index of the nearest other one: ``[N]``."""
    similarity = embeddings @ embeddings.T
    similarity.fill_diagonal_(-2.0)
    return similarity.argmax(dim=1)


def compare(embeddings: Tensor, teacher: Tensor) -> Score:
    """The score of ``embeddings`` against the ``teacher``'s, both ``[N, hidden]``, rows of length one, ``N`` >= 2."""
    cosine = (embeddings * teacher).sum(dim=1).mean().item()
    same = nearest_other(embeddings) == nearest_other(teacher)
    return Score(cosine=cosine, top1=same.to(torch.float64).mean().item())


def score(
    graph: ScoringGraph, rows: Sequence[Sequence[int]], *, on_batch: Callable[[int, int], None] | None = None
) -> Scores:
    """Score the students of ``graph`` on the texts ``rows`` (token ids), of which there must be two or more.

    ``on_batch(texts_done, texts)`` is called after each batch.
    """
    by_name: dict[str, Tensor] = {}
    done = 0
    for places, batch in in_order(rows, size=BATCH_SIZE):
        for name, part in graph.embeddings(batch).items():
            whole = by_name.setdefault(name, part.new_zeros(len(rows), part.shape[1]))
            whole[places] = part
        done += len(places)
        if on_batch is not None:
            on_batch(done, len(rows))
    teacher = by_name["teacher"]
    return Scores(
        alone=tuple(compare(by_name[f"only.{i}"], teacher) for i in range(graph.blocks)),
        together=compare(by_name["all"], teacher),
    )
