from __future__ import annotations

import pytest
import torch

from weave.demo.encoder import FeedForward, SentenceEncoder
from weave.demo.students import UNITS, cut, cut_all, neuron_norms, parameters


def _block(hidden: int = 8, units: int = 12) -> FeedForward:
    torch.manual_seed(0)
    return FeedForward(hidden, units)


def test_keeping_all_units_is_exact() -> None:
    block = _block()
    states = torch.randn(3, 5, 8)
    assert torch.equal(cut(block, 12)(states), block(states))


def test_the_units_with_the_largest_norms_stay_in_order() -> None:
    block = _block()
    with torch.no_grad():
        for unit, size in enumerate([1, 9, 2, 8, 3, 7, 4, 6, 5, 1, 1, 1]):
            block.up.weight[unit] = 0.1 * size
    norms = neuron_norms(block)
    kept = sorted(norms.topk(4).indices.tolist())
    student = cut(block, 4)
    assert torch.equal(student.up.weight, block.up.weight[kept])
    assert torch.equal(student.up.bias, block.up.bias[kept])
    assert torch.equal(student.down.weight, block.down.weight[:, kept])
    assert torch.equal(student.down.bias, block.down.bias)


def test_a_unit_that_can_say_nothing_goes_first() -> None:
    block = _block()
    with torch.no_grad():
        block.up.weight[3] *= 100
        block.down.weight[:, 3] = 0
    states = torch.randn(4, 8)
    torch.testing.assert_close(cut(block, 11)(states), block(states))


def test_a_student_is_trainable_and_shares_nothing() -> None:
    block = _block().requires_grad_(False)
    student = cut(block, 12)
    assert all(parameter.requires_grad for parameter in student.parameters())
    before = block.up.weight.clone()
    with torch.no_grad():
        student.up.weight.add_(1)
    assert torch.equal(block.up.weight, before)


@pytest.mark.parametrize("units", [0, 13, -1])
def test_impossible_numbers_of_units_are_refused(units: int) -> None:
    with pytest.raises(ValueError, match="choose 1 to 12"):
        cut(_block(), units)


def test_the_real_blocks_lose_three_quarters_of_their_units(teacher: SentenceEncoder) -> None:
    students = cut_all(teacher)
    assert len(students) == 6
    assert [student.units for student in students] == [UNITS] * 6
    assert parameters(teacher.block(0)) == 2 * 384 * 1536 + 1536 + 384
    assert parameters(students[0]) == 2 * 384 * 384 + 384 + 384
