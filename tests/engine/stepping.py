"""Something done at the n-th step of a run: a task's step on the loop, or a point that code in a worker thread names.

Cancelling at every step in turn, rather than now and then after a sleep, is how a state that lasts for one step is found.
On asyncio a step is a callback of the loop, on trio what an instrument sees. In a thread `Steps.point()` is one; there
the thread goes on a few turns of the loop after what was to be done, so that a cancel finds it computing.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import trio

Act = Callable[[], Any]

# A thread goes on so many turns of the loop after the act, so that whoever it concerns has noticed.
_TURNS = 8


class Steps(trio.abc.Instrument):
    """Counts from `arm` on, and acts once, when `at` steps have been made."""

    def __init__(self) -> None:
        self._soon: Callable[[Act], Any]
        self.armed = False
        self.acted = False
        self._act: Act = lambda: None
        self._count = itertools.count()  # next() on it is atomic
        self.at = 0
        self.after = 0  # steps on the loop since the act
        self._held = threading.Event()  # what a thread in `point` waits for

    def arm(self, at: int, act: Act) -> None:
        self._count, self.at, self._act = itertools.count(), at, act
        self.armed, self.acted, self.after = True, False, 0

    def step(self) -> None:
        """On the loop."""
        if self.acted:
            self.after += 1
        if self.armed and next(self._count) == self.at:
            self._do()

    def _do(self) -> None:
        self.armed, self.acted = False, True
        self._act()

    def point(self) -> None:
        """In a worker thread."""
        if self.armed and next(self._count) == self.at:
            done = self._held = threading.Event()

            def turn(left: int) -> None:
                if left:
                    self._soon(lambda: turn(left - 1))
                else:
                    done.set()

            def do() -> None:
                self._do()
                turn(_TURNS)

            self._soon(do)
            assert done.wait(30)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.step()

    def run(self, backend: str, main: Callable[[], Awaitable[Any]]) -> None:
        """A loop of its own for `main`. What the loop would only have logged is a failure."""
        complaints: list[Any] = []

        async def within() -> None:
            if backend == "asyncio":
                loop = asyncio.get_running_loop()
                loop.set_exception_handler(lambda _, context: complaints.append(context))
                self._soon = loop.call_soon_threadsafe
            else:
                self._soon = trio.lowlevel.current_trio_token().run_sync_soon
            try:
                await main()
            finally:
                self._held.set()

        if backend == "asyncio":
            with asyncio.Runner(loop_factory=lambda: _Loop(self)) as runner:
                runner.run(within())
        else:
            trio.run(within, instruments=[self])
        assert not complaints


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        super().__init__()

    def _counted(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any) -> None:
            self._steps.step()
            callback(*args)

        return step

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        return super().call_soon(self._counted(callback), *args, context=context)

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
        return super().call_soon_threadsafe(self._counted(callback), *args, context=context)


class Census:
    """How many of a graph's functions are running, and how many ever began."""

    def __init__(self) -> None:
        self.began = 0
        self.ended = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        self.began += 1
        try:
            yield
        finally:
            self.ended += 1

    @property
    def alive(self) -> int:
        return self.began - self.ended


def tasks() -> set[Any]:
    """The tasks of the running loop, this one too."""
    try:
        root: Any = trio.lowlevel.current_root_task()
    except RuntimeError:
        return set(asyncio.all_tasks())
    found, left = set(), [root]
    while left:
        task = left.pop()
        found.add(task)
        left += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return found


def computing() -> list[str]:
    """Threads that are in one of the engine's functions just now, this one and the portal's apart."""
    found = []
    for ident, frame in sys._current_frames().items():
        at: Any = frame
        while at is not None and ident != threading.get_ident():
            if at.f_code.co_name in ("_drain", "under") and "engine" in at.f_code.co_filename:
                found.append(f"{at.f_code.co_name} in {ident}")
            at = at.f_back
    return found


@contextmanager
def nothing_said_later() -> Iterator[None]:
    """Nothing is reported behind the test's back: coroutines never awaited, exceptions in `__del__`, in threads."""
    said: list[Any] = []
    before = sys.unraisablehook, threading.excepthook
    sys.unraisablehook = lambda u: said.append((u.exc_value, repr(u.object)))
    threading.excepthook = lambda args: said.append(args.exc_value)
    try:
        yield
        gc.collect()
    finally:
        sys.unraisablehook, threading.excepthook = before
    assert not said
