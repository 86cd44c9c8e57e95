"""`Sequencer`: named steps happen in one order, whoever takes them."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from weave.graph.ports import nearest
from weave.testing.condition import Condition


class Sequencer:
    """Steps in the order in which they are named here; whoever comes early waits.

    `order("b")` is a step to be taken with `with` (a thread waits) or `async with` (a task waits): it is entered when all
    steps before it have been left. `order.reach("b")` and `await order.areach("b")` enter and leave it at once.

        order = Sequencer("student started", "teacher's last layer")
        teacher.layers[3].register_forward_pre_hook(lambda *_: order.reach("teacher's last layer"))

    Args:
        steps: their names, each once.
        limit: seconds after which a waiting step gives up.

    Raises:
        AssertionError: a step waited longer than `limit`, was taken twice, or one before it raised.
    """

    def __init__(self, *steps: str, limit: float = 10.0) -> None:
        if len(set(steps)) != len(steps):
            raise ValueError(f"a step is named twice in {steps}")
        self.steps = steps
        self.limit = limit
        self._condition = Condition()
        self._entered: set[str] = set()
        self._left = 0  # how many steps are over
        self._broken: str | None = None

    def __call__(self, step: str) -> Step:
        """A step, for `with` or `async with`."""
        if step not in self.steps:
            near = nearest(step, list(self.steps))
            raise ValueError(
                f"no step {step!r} in {list(self.steps)}" + (f"; did you mean {near[0]!r}?" if near else "")
            )
        return Step(self, step)

    def reach(self, step: str) -> None:
        """Take a step that takes no time; this thread waits for its turn."""
        with self(step):
            pass

    async def areach(self, step: str) -> None:
        """Take a step that takes no time; this task waits for its turn."""
        async with self(step):
            pass

    @property
    def reached(self) -> tuple[str, ...]:
        """The steps that are over."""
        with self._condition.lock:
            return self.steps[: self._left]

    def _due(self, step: str) -> Callable[[], bool]:
        place = self.steps.index(step)
        return lambda: self._left >= place or self._broken is not None

    def _enter(self, step: str, came: bool) -> None:
        with self._condition.lock:
            if self._broken is not None:
                raise AssertionError(f"step {step!r} can't come: step {self._broken!r} raised")
            if not came:
                over = list(self.steps[: self._left])
                raise AssertionError(
                    f"step {step!r} waited {self.limit:g} s for {self.steps[self._left]!r}; over: {over}"
                )
            if step in self._entered:
                raise AssertionError(f"step {step!r} was taken twice")
            self._entered.add(step)

    def _leave(self, step: str, raised: bool) -> None:
        with self._condition.lock:
            if raised:
                self._broken = step
            else:
                self._left += 1
            self._condition.changed()


class Step:
    """One step of a `Sequencer`."""

    def __init__(self, sequencer: Sequencer, step: str) -> None:
        self._order = sequencer
        self._step = step

    def __enter__(self) -> None:
        order = self._order
        order._enter(self._step, order._condition.wait(order._due(self._step), order.limit))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._order._leave(self._step, error is not None)

    async def __aenter__(self) -> None:
        order = self._order
        order._enter(self._step, await order._condition.until(order._due(self._step), order.limit))

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._order._leave(self._step, error is not None)
