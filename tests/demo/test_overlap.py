"""What of the students' time the teacher's forward covered; and that there is something to cover."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from weave.demo.encoder import SentenceEncoder
from weave.demo.graphs import TrainingGraph
from weave.demo.overlap import Overlap, Span, Stopwatch, covered, length
from weave.demo.students import cut_all

from .small import TINY, tiny_batch

# No test waits for so long unless it fails.
LIMIT = 60


# --- the arithmetic ---

SPANS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda ends: (float(min(ends)), float(max(ends)))), max_size=6
)


def _has(span: Span, second: int) -> bool:
    return span[0] <= second < span[1]


@given(SPANS, SPANS)
def test_covered_is_what_counting_second_by_second_finds(spans: list[Span], by: list[Span]) -> None:
    naive = sum(
        _has(span, second) and any(_has(other, second) for other in by) for span in spans for second in range(20)
    )
    assert covered(spans, by) == naive
    assert length(spans) == sum(_has(span, second) for span in spans for second in range(20))


def test_two_students_in_the_same_second_count_twice_and_two_forwards_once() -> None:
    assert covered([(0, 2), (0, 2)], [(1, 5)]) == 2
    assert covered([(0, 2)], [(1, 5), (0, 5)]) == 2
    assert covered([(0, 1), (6, 9)], [(1, 6)]) == 0
    assert covered([(0, 10)], [(1, 2), (4, 6)]) == 3


def test_steps_add_up() -> None:
    total = Overlap().and_step([(0, 4)], [(1, 2), (3, 7)]).and_step([(10, 12)], [(12, 15)])
    assert total == Overlap(steps=2, teacher_seconds=6, student_seconds=8, covered_seconds=2)
    assert total.share == 0.25
    assert Overlap().share == 0


# --- the stopwatch ---


class Forward(nn.Module):
    def forward(self, x: int) -> int:
        if x < 0:
            raise ValueError("less than nothing")
        return x + 1


def test_what_is_timed_does_what_it_did() -> None:
    watch = Stopwatch()
    teacher, student = Forward(), Forward()
    loss = watch.student(max)
    with watch.step(teacher, [student]):
        assert student(teacher(1)) == 3
        assert loss(3, 4) == 4
    assert "forward" not in vars(teacher)
    assert "forward" not in vars(student)
    assert watch.total.steps == 1
    assert watch.total.teacher_seconds > 0
    assert watch.total.student_seconds > 0
    # One after the other, though in one thread.
    assert watch.total.covered_seconds == 0
    assert student(1) == 2
    assert watch.total.steps == 1


def test_a_step_that_fails_does_not_count_and_leaves_nothing_behind() -> None:
    watch = Stopwatch()
    teacher = Forward()
    own = teacher.forward = teacher.forward  # an instance's own, which must be there afterwards
    with pytest.raises(ValueError, match="less than nothing"), watch.step(teacher, []):
        teacher(-1)
    assert vars(teacher)["forward"] is own
    assert watch.total == Overlap()
    with watch.step(teacher, []):
        pass
    assert watch.total == Overlap(steps=1)


# --- the graph ---


def _graph(teacher: SentenceEncoder, max_workers: int | None = None) -> TrainingGraph:
    return TrainingGraph(teacher, cut_all(teacher, 8), learning_rate=1e-2, max_workers=max_workers)


def _after_the_first_student(teacher: SentenceEncoder, graph: TrainingGraph, limit: float) -> list[bool]:
    """Hold the teacher's forward at its last layer until student 0 has taken its step; whether it had, by call."""
    trained = threading.Event()
    waited: list[bool] = []
    graph.trainers[0].optimiser.register_step_post_hook(lambda *_: trained.set())
    teacher.layers[-1].register_forward_pre_hook(lambda *_: waited.append(trained.wait(limit)))
    return waited


@pytest.mark.anyio
async def test_students_train_before_the_teachers_forward_has_ended(tiny: SentenceEncoder) -> None:
    graph = _graph(tiny, max_workers=2)
    waited = _after_the_first_student(tiny, graph, LIMIT)
    await graph.run(tiny_batch())
    assert waited == [True]
    found = graph.watch.total
    assert found.steps == 1
    assert 0 < found.covered_seconds <= found.student_seconds
    assert found.covered_seconds <= found.teacher_seconds * TINY.layers


@pytest.mark.anyio
async def test_one_worker_trains_them_afterwards(tiny: SentenceEncoder) -> None:
    graph = _graph(tiny, max_workers=1)
    waited = _after_the_first_student(tiny, graph, 0)
    await graph.run(tiny_batch())
    assert waited == [False]
    assert graph.watch.total.covered_seconds == 0
    assert graph.watch.total.student_seconds > 0


def test_so_does_a_synchronous_step(tiny: SentenceEncoder) -> None:
    graph = _graph(tiny)
    waited = _after_the_first_student(tiny, graph, 0)
    graph.step(tiny_batch())
    assert waited == [False]
    assert graph.watch.total.covered_seconds == 0
    assert graph.watch.total.student_seconds > 0


def _inline(teacher: SentenceEncoder, steps: int) -> tuple[list[list[float]], list[torch.Tensor]]:
    graph = _graph(teacher)
    return [graph.step(tiny_batch(seed=step)) for step in range(steps)], _weights(graph)


def _weights(graph: TrainingGraph) -> list[torch.Tensor]:
    return [parameter for trainer in graph.trainers for parameter in trainer.student.parameters()]


@pytest.mark.anyio
@pytest.mark.parametrize("max_workers", [1, 2, 8, None])
async def test_students_learn_the_same_with_any_number_of_workers(
    tiny: SentenceEncoder, max_workers: int | None
) -> None:
    losses, weights = _inline(tiny, 4)
    graph = _graph(tiny, max_workers)
    assert [await graph.run(tiny_batch(seed=step)) for step in range(4)] == losses
    assert all(map(torch.equal, _weights(graph), weights))


@pytest.mark.anyio
async def test_students_learn_the_same_in_the_opposite_order(tiny: SentenceEncoder) -> None:
    """Each student's step waits for the next student's, and the teacher goes on meanwhile."""
    losses, weights = _inline(tiny, 1)
    graph = _graph(tiny, max_workers=TINY.layers + 1)
    done = [threading.Event() for _ in graph.trainers]
    done[-1].set()  # the last one waits for nobody
    order: list[int] = []

    def wait(i: int) -> Any:
        def before(*_: object) -> None:
            assert done[i].wait(LIMIT)
            order.append(i)

        return before

    for i, trainer in enumerate(graph.trainers):
        trainer.optimiser.register_step_pre_hook(wait(i))
        if i:
            trainer.optimiser.register_step_post_hook(lambda *_, i=i: done[i - 1].set())
    assert await graph.run(tiny_batch(seed=0)) == losses[0]
    assert order == list(reversed(range(TINY.layers)))
    assert all(map(torch.equal, _weights(graph), weights))


@pytest.mark.anyio
async def test_no_gradient_goes_back_into_the_teacher(tiny: SentenceEncoder) -> None:
    losses, _ = _inline(tiny, 2)
    tiny.requires_grad_(True)
    graph = _graph(tiny, max_workers=2)
    assert graph.step(tiny_batch(seed=0)) == losses[0]
    assert await graph.run(tiny_batch(seed=1)) == losses[1]
    assert all(parameter.grad is None for parameter in tiny.parameters())


@pytest.mark.anyio
async def test_the_modules_are_left_as_they_were(tiny: SentenceEncoder) -> None:
    graph = _graph(tiny, max_workers=2)
    modules = [module for root in (tiny, *(t.student for t in graph.trainers)) for module in root.modules()]
    before = [sorted(vars(module)) for module in modules]
    await graph.run(tiny_batch())
    assert [sorted(vars(module)) for module in modules] == before
    assert "function missed_share" in graph.stitched.plan.to_mermaid()
    assert "function BlockTrainer" in graph.stitched.plan.to_mermaid()
