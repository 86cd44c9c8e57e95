from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from weave.demo.install import DemoException
from weave.demo.text import Batches, Reader, in_order, is_prose, padded, paragraphs, split

from .small import tiny_rows


def test_there_is_a_thousand_paragraphs_of_english_each_once() -> None:
    found = paragraphs()
    assert len(found) > 1000
    assert len(set(found)) == len(found)
    assert all("\n" not in text and "::=" not in text for text in found)


def test_a_python_without_documentation_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(DemoException, match=r"no pydoc_data\.topics"):
        paragraphs()


@pytest.mark.parametrize(
    ("text", "prose"),
    [
        ("The value of a name is looked up in the enclosing scopes first.", True),
        ('assignment ::= (target_list "=")+ (starred_expression | yield_expression)', False),
        (">>> print(this, that) and here some words in a session follow", False),
        ("str.rstrip([chars])", False),
        ("The global statement *************************************************", False),
    ],
)
def test_prose_is_told_from_code(text: str, prose: bool) -> None:
    assert is_prose(text) is prose


def test_the_held_out_part_is_fixed_and_disjoint() -> None:
    texts = paragraphs()
    training, held_out = split(texts, 50)
    assert len(held_out) == 50
    assert sorted(training + held_out) == sorted(texts)
    assert not set(training) & set(held_out)
    # Neither the order nor further texts move a text from one side to the other, but at the border.
    again = split(list(reversed(texts)), 50)[1]
    assert set(again) == set(held_out)
    more = set(split([*texts, "One more paragraph, of some other release."], 50)[1])
    assert len(more & set(held_out)) >= 49


@pytest.mark.parametrize("number", [0, -1, 3, 4])
def test_a_split_that_leaves_a_side_empty_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="choose 1 to 2"):
        split(["a", "b", "c"], number)


def test_texts_become_ids_with_special_tokens_and_are_cut() -> None:
    short, long = Reader(max_tokens=6).ids(["hello", "hello " * 50])
    assert short == [101, 7592, 102]
    assert long == [101, 7592, 7592, 7592, 7592, 102]


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(DemoException, match=r"tokenizer\.json"):
        Reader(tmp_path)


def test_a_batch_is_padded_to_its_longest() -> None:
    batch = padded([[5, 6, 7], [8]])
    assert batch.ids.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch.mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch.tokens == 4


def _ids(batches: Batches, steps: range) -> list[list[list[int]]]:
    return [batches.at(step).ids.tolist() for step in steps]


def test_batches_follow_from_seed_and_step_alone() -> None:
    rows = tiny_rows(70)
    in_turn = _ids(Batches(rows, size=4, seed=3), range(40))
    torch.manual_seed(1234)
    fresh = [Batches(rows, size=4, seed=3).at(step).ids.tolist() for step in range(40)]
    assert in_turn == fresh
    backwards = Batches(rows, size=4, seed=3)
    assert [backwards.at(step).ids.tolist() for step in reversed(range(40))] == in_turn[::-1]
    assert _ids(Batches(rows, size=4, seed=4), range(40)) != in_turn


@pytest.mark.parametrize(("texts", "size"), [(70, 4), (64, 8), (9, 9), (65, 8), (200, 3)])
def test_an_epoch_has_each_text_at_most_once(texts: int, size: int) -> None:
    rows = [[index + 1] * (1 + index % 7) for index in range(texts)]
    batches = Batches(rows, size=size, seed=0)
    assert batches.per_epoch == texts // size
    for epoch in range(2):
        steps = range(epoch * batches.per_epoch, (epoch + 1) * batches.per_epoch)
        seen = [row[0] for step in steps for row in batches.at(step).ids.tolist()]
        assert len(seen) == len(set(seen)) == batches.per_epoch * size


def test_too_few_texts_for_a_batch_are_refused() -> None:
    with pytest.raises(ValueError, match="3 texts don't fill a batch of 4"):
        Batches(tiny_rows(3), size=4, seed=0)


def test_scoring_order_has_every_text_once_and_shortest_first() -> None:
    rows = tiny_rows(11)
    places: list[int] = []
    widths: list[int] = []
    for piece, batch in in_order(rows, size=4):
        places += piece
        widths.append(batch.ids.shape[1])
        for place, ids, mask in zip(piece, batch.ids.tolist(), batch.mask.tolist(), strict=True):
            assert ids[: sum(mask)] == rows[place]
    assert sorted(places) == list(range(11))
    assert widths == sorted(widths)
