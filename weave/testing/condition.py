"""A condition on which threads and tasks of any loop wait alike."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio

from weave.engine.spawn import call_soon


class Condition:
    """State is read and changed under `lock`; whoever changed it calls `changed` while holding it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._threads = threading.Condition(self.lock)
        self._wakers: list[Callable[[], Any]] = []

    def changed(self) -> None:
        """Let everybody look again."""
        self._threads.notify_all()
        for wake in self._wakers:
            wake()

    def wait(self, holds: Callable[[], bool], limit: float) -> bool:
        """Block this thread until `holds()`; returns whether it does, `False` after `limit` seconds."""
        with self.lock:
            return self._threads.wait_for(holds, limit)

    async def until(self, holds: Callable[[], bool], limit: float) -> bool:
        """`wait` in a task. It can be cancelled."""
        soon = call_soon()
        with anyio.move_on_after(limit):
            while True:
                event = anyio.Event()

                def wake(event: anyio.Event = event) -> Any:
                    return soon(event.set)

                with self.lock:
                    if holds():
                        return True
                    self._wakers.append(wake)
                try:
                    await event.wait()
                finally:
                    with self.lock:
                        self._wakers.remove(wake)
        with self.lock:
            return holds()
