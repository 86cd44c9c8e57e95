"""Ranks as threads of one process, with a network that is made up: latency, bandwidth, reordering.

For examples, tests and figures: a sleep costs no CPU, so transfers overlap with compute on any machine as they would
over a wire. `reorder` gives messages of a pair any order, which a transport may.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any

from weave.errors import RemoteException
from weave.remote.options import LinkOptions
from weave.remote.world import World, here
from weave.spi.records import TransportType
from weave.spi.transport import Buffer, Hears, Meeting


class Wires:
    """The network between the threads of one `run_local`: one thread that delivers."""

    def __init__(self, latency_s: float = 0.0, bytes_per_s: float | None = None, reorder: int | None = None) -> None:
        self._latency = latency_s
        self._rate = bytes_per_s
        self._random = random.Random(reorder) if reorder is not None else None
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._free: dict[tuple[int, int], float] = {}  # by pair: when its wire is free again
        self._held: list[tuple[float, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._ends: dict[int, LocalEndpoint] = {}
        self._busy = False

    def connect(self, meeting: Meeting) -> LocalEndpoint:
        """A rank's end."""
        with self._changed:
            end = self._ends[meeting.rank] = LocalEndpoint(self, meeting.rank, meeting.options)
            self._changed.notify_all()
            return end

    def post(
        self, source: int, peer: int, frames: Sequence[Buffer], urgent: bool, gone: Callable[[], None] | None
    ) -> None:
        """Put a message on the wire."""
        data = [bytes(frame) for frame in frames]
        size = sum(map(len, data))
        now = time.monotonic()
        with self._changed:
            begins = now if urgent else max(now, self._free.get((source, peer), 0.0))
            sent = begins + (size / self._rate if self._rate and not urgent else 0.0)
            if not urgent:
                self._free[source, peer] = sent
            if gone is not None:
                self._at(sent, gone)
            arrives = sent + self._latency
            if self._random is not None:
                arrives += self._random.choice((0.0, 0.0, 0.0005, 0.002))
            self._at(arrives, lambda: self._arrive(source, peer, data))
            self._changed.notify_all()

    def _at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._due, (when, next(self._numbers), what))
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="weave local wires", daemon=True)
            self._thread.start()

    def _arrive(self, source: int, peer: int, data: list[bytes]) -> None:
        with self._changed:
            # A rank that has not connected yet is still getting up: its messages wait for it.
            end = self._ends.get(peer)
            if end is None or end.hears is None:
                self._at(time.monotonic() + 0.005, lambda: self._arrive(source, peer, data))
                return
        if not end.closed:
            end.hears.came(source, data)

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._due:
                    if not self._ends or all(end.closed for end in self._ends.values()):
                        self._thread = None
                        return
                    self._changed.wait()
                    continue
                wait = self._due[0][0] - time.monotonic()
                if wait > 0:
                    self._changed.wait(wait)
                    continue
                ready = [heapq.heappop(self._due)]
                while self._due and self._due[0][0] <= time.monotonic():
                    ready.append(heapq.heappop(self._due))
                if self._random is not None:
                    self._random.shuffle(ready)
                self._busy = True
            for _, _, what in ready:
                what()
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def drain(self, linger: float) -> None:
        """Wait until what is on the wires has come, at most so long."""
        end = time.monotonic() + linger
        with self._changed:
            while (
                (self._due or self._busy) and time.monotonic() < end and threading.current_thread() is not self._thread
            ):
                self._changed.wait(max(0.0, end - time.monotonic()))

    def cut(self, rank: int, why: str) -> None:
        """A rank is gone without a word: the others hear that it is lost."""
        with self._changed:
            ends = [end for end in self._ends.values() if end.rank != rank and not end.closed and end.hears is not None]
            if rank in self._ends:
                self._ends[rank].closed = True
        for end in ends:
            end.hears.lost(rank, why)

    def closed(self, end: LocalEndpoint) -> None:
        """A rank has closed its end."""
        with self._changed:
            end.closed = True
            self._changed.notify_all()
            thread = self._thread if all(known.closed for known in self._ends.values()) else None
        if thread is not None and thread is not threading.current_thread():
            thread.join(1.0)


class LocalEndpoint:
    """One thread's end of the wires."""

    def __init__(self, wires: Wires, rank: int, options: LinkOptions) -> None:
        self.rank = rank
        self.closed = False
        self.hears: Any = None
        self._wires = wires
        self._options = options

    def start(self, hears: Hears) -> None:
        """Begin to tell what comes."""
        self.hears = hears

    def send(
        self, peer: int, frames: Sequence[Buffer], *, urgent: bool = False, gone: Callable[[], None] | None = None
    ) -> None:
        """Send a message."""
        largest = max(map(len, frames))
        if largest > self._options.max_message_bytes:
            raise RemoteException(
                f"a message of {largest} bytes for rank {peer}, and the link takes {self._options.max_message_bytes}: "
                "raise LinkOptions.max_message_bytes (WEAVE_LINK_MAX_MESSAGE_BYTES) on every rank",
                rank=peer,
            )
        if self.closed:
            if gone is not None:
                gone()
            return
        self._wires.post(self.rank, peer, frames, urgent, gone)

    def close(self, linger: float) -> None:
        """Leave."""
        if not self.closed:
            self._wires.drain(linger)
            self._wires.closed(self)


class LocalMeeting:
    """How the threads of one `run_local` find each other."""

    def __init__(self, rank: int, world_size: int, options: LinkOptions, wires: Wires, board: _Board) -> None:
        self.rank = rank
        self.world_size = world_size
        self.options = options
        self.wires = wires
        self._board = board

    def share(self, key: str, value: bytes) -> None:
        """Let every rank know."""
        self._board.put(key, value)

    def ask(self, key: str) -> bytes:
        """Wait for what a rank shares."""
        value = self._board.get(key, self.options.timeout)
        if value is None:
            raise RemoteException(
                f"rank {self.rank} waited {self.options.timeout:g} s for {key!r}, which no other shares", rank=self.rank
            )
        return value


class _Board:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._known: dict[str, bytes] = {}

    def put(self, key: str, value: bytes) -> None:
        with self._changed:
            self._known[key] = value
            self._changed.notify_all()

    def get(self, key: str, timeout: float) -> bytes | None:
        with self._changed:
            self._changed.wait_for(lambda: key in self._known, timeout)
            return self._known.get(key)


def connect(meeting: Any) -> LocalEndpoint:
    """An end of the wires between the threads of one process."""
    if not isinstance(meeting, LocalMeeting):
        raise RemoteException(
            'the transport "local" joins threads of one process, started by weave.remote.run_local(...); between processes '
            'leave transport= out, or say "zmq"',
            rank=meeting.rank,
        )
    return meeting.wires.connect(meeting)


LOCAL = TransportType(scheme="local", connect=connect, capabilities=frozenset({"threads", "reorders"}))


def run_local(
    world_size: int,
    function: Callable[..., Any],
    *args: Any,
    latency_s: float = 0.0,
    bytes_per_s: float | None = None,
    reorder: int | None = None,
    options: LinkOptions = LinkOptions(),
    transport: str = "local",
) -> list[Any]:
    """Call `function(rank, *args)` in a thread for each rank of a world; returns what they return, by rank.

    Args:
        latency_s: seconds that a message is under way, besides its size.
        bytes_per_s: how fast a pair's wire is; `None`: at once.
        reorder: a seed; messages of a pair then overtake one another.
        transport: another one than the wires, to try it in one process.

    Raises what a rank raised: the first by rank, with the others' in its notes.
    """
    wires, board = Wires(latency_s, bytes_per_s, reorder), _Board()
    results: list[Any] = [None] * world_size
    errors: list[BaseException | None] = [None] * world_size

    def run(rank: int) -> None:
        world = World(LocalMeeting(rank, world_size, options, wires, board), transport, options)
        here.set(world)
        try:
            results[rank] = function(rank, *args)
        except BaseException as error:
            errors[rank] = error
        finally:
            world.close()

    threads = [
        threading.Thread(target=copy_context().run, args=(run, rank), name=f"rank {rank}", daemon=True)
        for rank in range(world_size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    raised = [(rank, error) for rank, error in enumerate(errors) if error is not None]
    if raised:
        # What a rank only heard of from another is that other's to say.
        own = [pair for pair in raised if not isinstance(pair[1], RemoteException)] or raised
        rank, first = own[0]
        for other, error in raised:
            if error is not first:
                first.add_note(f"weave: rank {other} raised {type(error).__name__}: {error}")
        first.add_note(f"weave: raised on rank {rank}")
        raise first
    return results
