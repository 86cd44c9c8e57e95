"""What a task waits on for a word from another thread."""

from __future__ import annotations

import anyio

from weave.engine.spawn import call_soon


class Waiter:
    """Made on a loop; woken once or more, from any thread, which waits for nothing."""

    __slots__ = ("_event", "_soon", "woken")

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._soon = call_soon()
        self.woken = False

    def wake(self) -> None:
        """Let it go on."""
        self.woken = True
        try:
            self._soon(self._event.set)
        except RuntimeError:  # its loop has gone, and with it whoever waited
            return

    async def wait(self) -> None:
        """Wait for it."""
        await self._event.wait()
