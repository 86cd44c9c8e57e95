"""A message on its way out, and when its memory is no longer needed."""

from __future__ import annotations

import itertools
import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from weave.spi.transport import Buffer

log = logging.getLogger("weave")

# Smaller frames are copied: libzmq's word that it needs memory no more costs two threads' turns (measured: as long as
# copying some 500 KB), and a copy of these is not worth one.
COPIED = 64 << 10


class Flight:
    """What is on its way."""

    def __init__(self) -> None:
        self._parcels: set[Parcel] = set()
        self._waited = False
        self._empty = threading.Event()

    def add(self, parcel: Parcel) -> None:
        """One more."""
        self._parcels.add(parcel)

    def landed(self, parcel: Parcel) -> None:
        """One less."""
        self._parcels.discard(parcel)
        if self._waited and not self._parcels:
            self._empty.set()

    def wait(self, limit: float) -> None:
        """Wait until nothing is; nothing may be added any more."""
        self._waited = True
        if self._parcels:
            self._empty.wait(limit)


class Parcel:
    """A message to a peer. `gone` is called once, when the last of its memory is free again.

    Larger frames are sent from where they are. pyzmq then holds a memoryview, made here and known to nobody else, until
    libzmq has let go of the memory; so a weak reference to that view tells when, without polling. (A `MessageTracker`
    has no callback: somebody would have to wait for it.)
    """

    __slots__ = ("_count", "_flight", "_of", "_views", "frames", "gone", "peer", "urgent")

    def __init__(
        self,
        peer: int,
        frames: Sequence[Buffer],
        urgent: bool,
        gone: Callable[[], None] | None,
        flight: Flight,
    ) -> None:
        self.peer = peer
        self.frames = frames
        self.urgent = urgent
        self.gone = gone
        self._flight = flight
        # Frames are let go by different threads. `next` of a count is atomic, so exactly one of them is the last.
        self._count = itertools.count(1)
        self._of = 1
        self._views: list[weakref.ref[memoryview]] = []
        flight.add(self)

    def parts(self) -> list[zmq.Frame]:
        """The frames as ZeroMQ's. Called once; `sent` or `drop` comes after."""
        parts = []
        views = []
        for frame in self.frames:
            view = memoryview(frame)
            if view.nbytes >= COPIED:
                views.append(weakref.ref(view, self._freed))
                parts.append(zmq.Frame(view, copy=False))
            else:
                parts.append(zmq.Frame(view, copy=True))
            del view
        self._views = views
        self._of = 1 + len(views)
        self.frames = ()
        return parts

    def sent(self) -> None:
        """ZeroMQ has it (or has refused it)."""
        self._freed()

    def drop(self) -> None:
        """It is not sent. Not to be called after `parts`."""
        self.frames = ()
        self._freed()

    def _freed(self, _: Any = None) -> None:
        if next(self._count) != self._of:
            return
        self._flight.landed(self)
        gone, self.gone = self.gone, None
        if gone is not None:
            try:
                gone()
            except Exception as error:
                log.error("weave: what was to happen once a message had gone failed: %r", error, exc_info=error)
