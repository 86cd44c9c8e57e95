"""How much of the students' training fell into the teacher's forward: measured, not estimated.

The clock is read where a node's own work starts and where it ends, in whatever thread that is: a student's three nodes
(its forward, its loss, its training) on one side, the teacher's forward on the other. What lies in both is covered. The
engine's own work is in neither.

Students are counted each for itself: two that train through the same second took two. So the sum is what one thread
would have had to do, and can be compared between drivers. It is wall time: where there are more threads than cores, it
grows with what each of them waits.

A module is timed through a ``forward`` of the instance's own, put there for the time of a step. Hooks would not do: the
teacher's forward is left as soon as all was captured, and no hook hears of that.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import ParamSpec, TypeAlias, TypeVar

from torch import nn

P = ParamSpec("P")
R = TypeVar("R")
Span: TypeAlias = tuple[float, float]  # when it started and when it ended, in seconds


@dataclass(frozen=True)
class Overlap:
    """Over ``steps`` steps: how long the teacher's forwards and the students' nodes took, and how much lay in both."""

    steps: int = 0
    teacher_seconds: float = 0.0
    student_seconds: float = 0.0
    covered_seconds: float = 0.0

    @property
    def share(self) -> float:
        """The part of the students' time that the teacher's forward covered, from 0 to 1."""
        return self.covered_seconds / self.student_seconds if self.student_seconds else 0.0

    def and_step(self, teacher: Sequence[Span], students: Sequence[Span]) -> Overlap:
        """The same with one more step."""
        return Overlap(
            steps=self.steps + 1,
            teacher_seconds=self.teacher_seconds + length(teacher),
            student_seconds=self.student_seconds + length(students),
            covered_seconds=self.covered_seconds + covered(students, teacher),
        )


def length(spans: Iterable[Span]) -> float:
    """How long ``spans`` are together, each counted for itself."""
    return sum(end - start for start, end in spans)


def covered(spans: Iterable[Span], by: Iterable[Span]) -> float:
    """How much of ``spans``, each counted for itself, lies inside at least one of ``by``."""
    cover = _joined(by)
    return sum(max(0.0, min(end, last) - max(start, first)) for start, end in spans for first, last in cover)


def _joined(spans: Iterable[Span]) -> list[Span]:
    """The same stretch of time in spans that don't overlap, so that none of it is counted twice."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


class Stopwatch:
    """Times the nodes of one graph, step by step; ``total`` is what came out so far. One step at a time."""

    def __init__(self) -> None:
        self.total = Overlap()
        self._teacher: list[Span] = []
        self._students: list[Span] = []

    def student(self, function: Callable[P, R]) -> Callable[P, R]:
        """``function`` as a node of a student, timed at each call."""
        return _timed(function, self._students)

    @contextmanager
    def step(self, teacher: nn.Module, students: Iterable[nn.Module]) -> Iterator[None]:
        """Time one step, in which these modules' forwards are called. A step that fails does not count."""
        self._teacher.clear()
        self._students.clear()
        with ExitStack() as stack:
            stack.enter_context(_timed_forward(teacher, self._teacher))
            for student in students:
                stack.enter_context(_timed_forward(student, self._students))
            yield
        self.total = self.total.and_step(self._teacher, self._students)


def _timed(function: Callable[P, R], spans: list[Span]) -> Callable[P, R]:
    @functools.wraps(function)
    def timed(*args: P.args, **kwargs: P.kwargs) -> R:
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spans.append((start, time.perf_counter()))

    # An object that can be called has no such name, and the graph's picture shall say what it is.
    timed.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)
    return timed


@contextmanager
def _timed_forward(module: nn.Module, spans: list[Span]) -> Iterator[None]:
    own = vars(module).get("forward")
    module.forward = _timed(module.forward, spans)
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own
