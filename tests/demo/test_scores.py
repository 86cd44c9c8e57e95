from __future__ import annotations

import json

import pytest
import torch
from torch.nn.functional import normalize

from weave.demo import scores as scores_module
from weave.demo.encoder import SentenceEncoder
from weave.demo.graphs import ScoringGraph
from weave.demo.scores import Score, Scores, compare, nearest_other, score
from weave.demo.students import cut_all

from .small import TINY, tiny_rows


def _unit(*rows: list[float]) -> torch.Tensor:
    return normalize(torch.tensor(rows), dim=1)


def test_the_nearest_other_is_never_the_text_itself() -> None:
    embeddings = _unit([1, 0], [1, 0.1], [0, 1])
    assert nearest_other(embeddings).tolist() == [1, 0, 1]


def test_a_perfect_copy_scores_one() -> None:
    embeddings = normalize(torch.randn(10, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    found = compare(embeddings, embeddings)
    assert found.cosine == pytest.approx(1)
    assert found.top1 == 1


def test_top1_is_the_share_of_texts_with_the_same_neighbour() -> None:
    teacher = _unit([1, 0], [1, 0.1], [0, 1], [0.1, 1])
    other = _unit([1, 0], [1, 0.1], [-1, 0.1], [-1, -0.1])
    assert compare(other, teacher).top1 == 1
    swapped = teacher[[0, 2, 1, 3]]
    assert compare(swapped, teacher).top1 == 0
    assert compare(swapped, teacher).cosine < 0.7


def test_units_that_are_all_kept_score_one(tiny: SentenceEncoder) -> None:
    graph = ScoringGraph(tiny, cut_all(tiny, TINY.ffn))
    found = score(graph, tiny_rows(9))
    assert len(found.alone) == TINY.layers
    for one in (*found.alone, found.together):
        assert one.cosine == pytest.approx(1, abs=1e-6)
        assert one.top1 == 1


def test_the_score_does_not_depend_on_how_the_texts_are_batched(
    tiny: SentenceEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = ScoringGraph(tiny, cut_all(tiny, 4))
    rows = tiny_rows(9)
    calls: list[tuple[int, int]] = []
    whole = score(graph, rows)
    monkeypatch.setattr(scores_module, "BATCH_SIZE", 4)
    parts = score(graph, rows, on_batch=lambda done, texts: calls.append((done, texts)))
    assert calls == [(4, 9), (8, 9), (9, 9)]
    assert whole.together.cosine < 1
    assert parts.together.cosine == pytest.approx(whole.together.cosine, abs=1e-6)
    assert parts.together.top1 == whole.together.top1


def test_scores_survive_json() -> None:
    found = Scores((Score(0.1, 1 / 3), Score(0.2, 0.5)), Score(0.30000000000000004, 0.7))
    assert Scores.from_dict(json.loads(json.dumps(found.as_dict()))) == found
