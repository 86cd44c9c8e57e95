"""The transport between processes: ZeroMQ over TCP, one daemon thread an endpoint. How it works is in `zmq_loop`."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

import zmq

# pyzmq's thread that learns when memory is free stops at exit. Imported before our own word at exit, it stops after it.
import zmq.utils.garbage

from weave.errors import RemoteException
from weave.remote.zmq_loop import Loop
from weave.remote.zmq_parcel import Flight, Parcel
from weave.spi.records import TransportType
from weave.spi.transport import Buffer, Hears, Meeting

_GRACE = 5.0  # seconds beyond the linger after which a thread that does not end is left to the end of the process
_EVERYWHERE = ("*", "0.0.0.0", "::", "[::]")


class ZmqEndpoint:
    """One rank's end, by ZeroMQ. Made by `connect`."""

    def __init__(self, meeting: Meeting) -> None:
        options = meeting.options
        interface = options.interface or getattr(meeting, "interface", None) or "127.0.0.1"
        if interface in _EVERYWHERE:
            raise RemoteException(
                f"rank {meeting.rank} would listen on all its networks ({interface!r}): name the one address that the other "
                "ranks reach, by WEAVE_LINK_INTERFACE",
                rank=meeting.rank,
            )
        self.rank = meeting.rank
        self._world_size = meeting.world_size
        self._options = options
        self._process = os.getpid()
        self._flight = Flight()
        self._closed = False
        try:
            self._loop = Loop(meeting, interface)
        except (zmq.ZMQError, ValueError) as error:
            raise RemoteException(
                f"rank {meeting.rank} can't listen on {interface!r} ({error}): is that an address of this machine? Name another "
                "by WEAVE_LINK_INTERFACE",
                rank=meeting.rank,
                kind=type(error).__name__,
                cause_text=str(error),
            ) from error
        self._thread = threading.Thread(target=self._loop.run, name="weave link", daemon=True)
        self._thread.start()
        try:
            self._loop.share()
        except BaseException:
            self.close(0.0)
            raise
        _open.add(self)

    @property
    def addresses(self) -> tuple[str, str]:
        """Where this rank listens, for control and for data."""
        card = self._loop.card
        return card.control, card.data

    def start(self, hears: Hears) -> None:
        """Begin to tell what comes."""
        self._in_its_process()
        self._do(partial(self._loop.start, hears))

    def send(
        self, peer: int, frames: Sequence[Buffer], *, urgent: bool = False, gone: Callable[[], None] | None = None
    ) -> None:
        """Send a message.

        Raises:
            RemoteException: it is larger than the peer takes, or this is a forked child of the endpoint's process.
        """
        self._in_its_process()
        self._takes(peer, frames)
        loop = self._loop
        loop.parcels.append(Parcel(peer, frames, urgent, gone, self._flight))
        loop.wake.set()
        if loop.ended:
            try:
                while True:
                    loop.parcels.pop().drop()
            except IndexError:
                return

    def close(self, linger: float) -> None:
        """Give what was sent at most `linger` seconds to get out, then leave nothing behind. Idempotent.

        From the link's own thread (in `came`, say) it only begins to close. In a forked child it does nothing.
        """
        self._close(linger, withdraw=True)

    def _close(self, linger: float, *, withdraw: bool) -> None:
        if os.getpid() != self._process:
            return
        _open.discard(self)
        if not self._closed:
            self._closed = True
            self._do(partial(self._loop.close, time.monotonic() + linger, withdraw))
        if threading.current_thread() is self._thread:
            return
        self._thread.join(linger + _GRACE)
        self._flight.wait(_GRACE)  # all memory is free by now, and pyzmq's thread is about to say so

    def _do(self, job: Callable[[], None]) -> None:
        self._loop.jobs.append(job)
        self._loop.wake.set()

    def _in_its_process(self) -> None:
        if os.getpid() != self._process:
            raise RemoteException(
                f"links to other ranks don't survive a fork, and this is a forked child of rank {self.rank}: use the link in the "
                "parent, start the child as a process of its own (multiprocessing's spawn), or make links after the fork",
                rank=self.rank,
            )

    def _takes(self, peer: int, frames: Sequence[Buffer]) -> None:
        """Whether a message is one that the peer would take; else it would cut us off for it."""
        if not 0 <= peer < self._world_size or peer == self.rank or not frames:
            raise ValueError(
                f"a message of {len(frames)} frames from rank {self.rank} to rank {peer} of {self._world_size}"
            )
        known = self._loop.ways.peers.get(peer)
        card = None if known is None else known.card
        most_bytes, most_frames = self._options.max_message_bytes, self._options.max_frames
        if card is not None:
            most_bytes, most_frames = min(most_bytes, card.max_message_bytes), min(most_frames, card.max_frames)
        if len(frames) > most_frames:
            raise RemoteException(
                f"a message of {len(frames)} frames to rank {peer}, which takes {most_frames}: send less at once, or give all "
                "ranks a larger WEAVE_LINK_MAX_FRAMES",
                rank=peer,
            )
        size = max(map(_size, frames))
        if size > most_bytes:
            raise RemoteException(
                f"{size} bytes in one frame to rank {peer}, which takes {most_bytes}: send it in parts, or give all ranks "
                "a larger WEAVE_LINK_MAX_MESSAGE_BYTES",
                rank=peer,
            )


def _size(frame: Buffer) -> int:
    return frame.nbytes if isinstance(frame, memoryview) else len(frame)


_open: set[ZmqEndpoint] = set()


@atexit.register
def _close_all() -> None:
    """What a program left open gets its last words out, as long as the options say; nobody needs the card any more."""
    ends = list(_open)
    for end in ends:
        end._close(end._options.linger, withdraw=False)


def connect(meeting: Meeting) -> ZmqEndpoint:
    """Listen, on the interface that reaches the rendezvous, and let the other ranks know where."""
    return ZmqEndpoint(meeting)


ZMQ = TransportType(scheme="zmq", connect=connect, capabilities=frozenset({"processes"}))
