"""Ranks of one process that meet in a dict."""

from __future__ import annotations

import threading
from typing import Any

from weave import RemoteException


class DictMeeting:
    def __init__(
        self, rank: int, world_size: int, options: Any, known: dict[str, bytes], changed: threading.Condition
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self.options = options
        self.known = known
        self._changed = changed

    @classmethod
    def world(cls, world_size: int, *options: Any) -> list[DictMeeting]:
        """One for each rank, with the same options or each its own."""
        known: dict[str, bytes] = {}
        changed = threading.Condition()
        return [cls(rank, world_size, options[rank % len(options)], known, changed) for rank in range(world_size)]

    def share(self, key: str, value: bytes) -> None:
        with self._changed:
            self.known[key] = value
            self._changed.notify_all()

    def look(self, key: str) -> bytes | None:
        with self._changed:
            return self.known.get(key)

    def ask(self, key: str) -> bytes:
        with self._changed:
            if not self._changed.wait_for(lambda: key in self.known, self.options.timeout):
                raise RemoteException(f"rank {self.rank} waited {self.options.timeout:g} s for {key!r}", rank=self.rank)
            return self.known[key]


class PlainMeeting:
    """With nothing but what the protocol names."""

    def __init__(self, meeting: DictMeeting) -> None:
        self.rank, self.world_size, self.options = meeting.rank, meeting.world_size, meeting.options
        self.share, self.ask = meeting.share, meeting.ask
