"""What is still going on after a run: tasks of the loop, threads. Nothing, if a plugin keeps the rules."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio
import anyio.lowlevel

from weave.testing.suites.base import expect

# Threads that pools keep for the next call, and that weave keeps for synchronous calls inside a loop.
_KEPT = ("AnyIO worker thread", "Trio thread", "weave-portal")


@asynccontextmanager
async def no_task_left(what: str) -> AsyncIterator[None]:
    """Fail if a task of this loop that was not there before is still there afterwards."""
    before = {task.id for task in anyio.get_running_tasks()}
    yield
    left: list[str] = []
    for _ in range(50):  # a task that has been told to stop needs some turns of the loop
        left = [task.name or "?" for task in anyio.get_running_tasks() if task.id not in before]
        if not left:
            return
        await anyio.lowlevel.checkpoint()
    expect(False, f"{what} left tasks behind: {', '.join(left)}. Start them in a task group of the firing's own")


@contextmanager
def no_thread_left(what: str, limit: float) -> Iterator[None]:
    """Fail if a thread that was not there before is still there, `limit` seconds afterwards."""
    before = set(threading.enumerate())
    yield
    left = []
    for thread in set(threading.enumerate()) - before:
        if type(thread).__module__.partition(".")[0] != "anyio" and not thread.name.startswith(_KEPT):
            thread.join(limit)  # it may be on its way out
            if thread.is_alive():
                left.append(thread.name)
    expect(not left, f"{what} left threads behind: {', '.join(left)}. Join them before the firing ends")
