"""Looking things up in the store, for the link's thread, which itself never waits for anybody."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from weave.errors import RemoteException

_MOST_PAUSE = 0.05


class Directory:
    """Looks, in a short-lived thread each, until something is there.

    A meeting that has `look(key) -> bytes | None` (`StoreMeeting`) is looked at again and again, so that closing need not
    wait for what never comes. With one that can only `ask`, a thread that waits for a rank that never comes stays until
    the meeting's time-out.
    """

    def __init__(self, meeting: Any) -> None:
        self._look: Callable[[str], bytes | None] = getattr(meeting, "look", meeting.ask)
        self._stop = threading.Event()
        self._threads: set[threading.Thread] = set()

    def seek(
        self,
        key: str,
        wanted: Callable[[bytes], bool],
        until: float,
        pause: float,
        tell: Callable[[bytes | None, str], None],
    ) -> None:
        """Call `tell(value, "")` when what is wanted is there, or `tell(None, why)`; from a thread of its own."""
        thread = threading.Thread(
            target=self._seek, args=(key, wanted, until, pause, tell), name=f"weave link looks for {key}", daemon=True
        )
        self._threads.add(thread)
        thread.start()

    @property
    def busy(self) -> int:
        """How many things are being looked for."""
        return len(self._threads)

    def _seek(
        self,
        key: str,
        wanted: Callable[[bytes], bool],
        until: float,
        pause: float,
        tell: Callable[[bytes | None, str], None],
    ) -> None:
        value, why = None, ""
        try:
            self._stop.wait(pause)
            pause = 0.001
            while not self._stop.is_set():
                value = self._look(key)
                if value is not None and wanted(value):
                    break
                value = None
                if time.monotonic() > until:
                    why = "it did not come in time"
                    break
                self._stop.wait(pause)
                pause = min(2 * pause, _MOST_PAUSE)
        except RemoteException as error:
            why = str(error)
        except Exception as error:
            why = f"it could not be looked for: {error!r}"
        finally:
            self._threads.discard(threading.current_thread())
            if not self._stop.is_set():
                tell(value, why)

    def close(self, until: float) -> None:
        """Stop looking."""
        self._stop.set()
        for thread in list(self._threads):
            thread.join(max(0.0, until - time.monotonic()))
