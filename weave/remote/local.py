"""Ranks as threads of one process, with a network that is made up: latency, bandwidth, reordering.

For examples, tests and figures: a sleep costs no CPU, so transfers overlap with compute on any machine as they would
over a wire. `reorder` gives messages of a pair any order, which a transport may.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

from weave.errors import RemoteException
from weave.remote.options import LinkOptions
from weave.remote.world import World, here
from weave.spi.records import TransportType
from weave.spi.transport import Buffer, Hears, Meeting

log = logging.getLogger("weave")


class Wires:
    """The network between the threads of one `run_local`: one thread that delivers."""

    def __init__(self, latency_s: float = 0.0, bytes_per_s: float | None = None, reorder: int | None = None) -> None:
        self._latency = latency_s
        self._rate = bytes_per_s
        self._random = random.Random(reorder) if reorder is not None else None
        self._changed = threading.Condition()
        self._due: list[_Due] = []
        self._free: dict[tuple[int, int], float] = {}  # by pair: when its wire is free again
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._ends: dict[int, LocalEndpoint] = {}
        self._under_way: set[LocalEndpoint] = set()  # whose messages the thread has in hand

    def connect(self, meeting: Meeting) -> LocalEndpoint:
        """A rank's end."""
        with self._changed:
            end = self._ends[meeting.rank] = LocalEndpoint(self, meeting.rank, meeting.options)
            self._changed.notify_all()
            return end

    def post(
        self,
        source: LocalEndpoint,
        peer: int,
        frames: Sequence[Buffer],
        urgent: bool,
        gone: Callable[[], None] | None,
    ) -> None:
        """Put a message on the wire."""
        data = [bytes(frame) for frame in frames]
        size = sum(map(len, data))
        now = time.monotonic()
        with self._changed:
            if not source.closed:
                pair = (source.rank, peer)
                begins = now if urgent else max(now, self._free.get(pair, 0.0))
                sent = begins + (size / self._rate if self._rate and not urgent else 0.0)
                if not urgent:
                    self._free[pair] = sent
                if gone is not None:
                    self._at(sent, source, gone, owed=True)
                arrives = sent + self._latency
                if self._random is not None:
                    arrives += self._random.choice((0.0, 0.0, 0.0005, 0.002))
                self._at(arrives, source, lambda: self._arrive(source, peer, data))
                self._changed.notify_all()
                return
        if gone is not None:
            gone()

    def _at(self, when: float, source: LocalEndpoint, what: Callable[[], None], *, owed: bool = False) -> None:
        heapq.heappush(self._due, _Due(when, next(self._numbers), source, what, owed))
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="weave local wires", daemon=True)
            self._thread.start()

    def _arrive(self, source: LocalEndpoint, peer: int, data: list[bytes]) -> None:
        with self._changed:
            if source.closed:
                return
            end = source.met.get(peer)
            if end is None:
                end = self._ends.get(peer)
                if end is None or end.hears is None or end.closed or source.rank in end.lost:
                    # A rank that has not connected yet is still getting up: its messages wait for it.
                    self._at(time.monotonic() + 0.005, source, lambda: self._arrive(source, peer, data))
                    return
                source.met[peer] = end
                end.met.setdefault(source.rank, source)
            if end.closed or source.rank in end.lost:
                return
        end.hears.came(source.rank, data)

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._due:
                    if all(end.closed for end in self._ends.values()):
                        self._thread = None
                        return
                    self._changed.wait()
                    continue
                wait = self._due[0].when - time.monotonic()
                if wait > 0:
                    self._changed.wait(wait)
                    continue
                ready = [heapq.heappop(self._due)]
                while self._due and self._due[0].when <= time.monotonic():
                    ready.append(heapq.heappop(self._due))
                if self._random is not None:
                    self._random.shuffle(ready)
                self._under_way = {due.source for due in ready}
            for due in ready:
                _told(due.what)
            with self._changed:
                self._under_way = set()
                self._changed.notify_all()

    def close(self, source: LocalEndpoint, linger: float) -> None:
        """A rank leaves: what it has sent has so many seconds to come, then the others hear that it is lost."""
        end = time.monotonic() + linger
        with self._changed:
            here = threading.current_thread() is self._thread

            def left() -> bool:
                return source in self._under_way or any(due.source is source for due in self._due)

            while not here and left() and time.monotonic() < end and not source.closed:
                self._changed.wait(max(0.0, end - time.monotonic()))
            owed = self._leaves(source)
            # What is in the thread's hands is told before it ends; then nobody is told anything any more.
            self._changed.wait_for(lambda: here or not self._under_way)
            last = self._thread if all(known.closed for known in self._ends.values()) else None
            others = [known for known in source.met.values() if source.rank not in known.lost and not known.closed]
            for known in others:
                known.lost.add(source.rank)
            self._changed.notify_all()
        for due in owed:
            _told(due.what)
        for known in others:
            _told(functools.partial(known.hears.lost, source.rank, f"rank {source.rank} has closed its link"))
        if last is not None and not here:
            last.join()

    def _leaves(self, source: LocalEndpoint) -> list[_Due]:
        """Nothing more comes of a rank; what it is owed still is."""
        source.closed = True
        owed = [due for due in self._due if due.source is source and due.owed]
        self._due = [due for due in self._due if due.source is not source]
        heapq.heapify(self._due)
        return owed

    def cut(self, rank: int, why: str) -> None:
        """A rank is gone without a word: the others hear that it is lost."""
        with self._changed:
            gone = self._ends.get(rank)
            owed = [] if gone is None else self._leaves(gone)
            self._changed.wait_for(lambda: threading.current_thread() is self._thread or not self._under_way)
            ends = [
                end
                for end in self._ends.values()
                if end.rank != rank and not end.closed and end.hears is not None and rank not in end.lost
            ]
            for end in ends:
                end.lost.add(rank)
            self._changed.notify_all()
        for due in owed:
            _told(due.what)
        for end in ends:
            _told(functools.partial(end.hears.lost, rank, why))


@dataclass(order=True)
class _Due:
    """Something that is to happen. `owed`: also where its rank has left."""

    when: float
    number: int
    source: LocalEndpoint = field(compare=False)
    what: Callable[[], None] = field(compare=False)
    owed: bool = field(compare=False, default=False)


def _told(what: Callable[[], None]) -> None:
    """Call somebody who hears; what that raises is no affair of the wires."""
    try:
        what()
    except Exception as error:
        log.error("weave: a message could not be handed over: %r", error, exc_info=error)


class LocalEndpoint:
    """One thread's end of the wires."""

    def __init__(self, wires: Wires, rank: int, options: LinkOptions) -> None:
        self.rank = rank
        self.closed = False
        self.hears: Any = None
        # The ends of other ranks that it talks to, each for good: a rank that leaves and comes again is another.
        self.met: dict[int, LocalEndpoint] = {}
        self.lost: set[int] = set()
        self._wires = wires
        self._options = options

    def start(self, hears: Hears) -> None:
        """Begin to tell what comes."""
        self.hears = hears

    def send(
        self, peer: int, frames: Sequence[Buffer], *, urgent: bool = False, gone: Callable[[], None] | None = None
    ) -> None:
        """Send a message."""
        largest = max(memoryview(frame).nbytes for frame in frames)
        if largest > self._options.max_message_bytes:
            raise RemoteException(
                f"a message of {largest} bytes for rank {peer}, and the link takes {self._options.max_message_bytes}: "
                "raise LinkOptions.max_message_bytes (WEAVE_LINK_MAX_MESSAGE_BYTES) on every rank",
                rank=peer,
            )
        self._wires.post(self, peer, frames, urgent, gone)

    def close(self, linger: float) -> None:
        """Leave."""
        if not self.closed:
            self._wires.close(self, linger)


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

    def look(self, key: str) -> bytes | None:
        """What is shared under a key now."""
        return self._board.get(key, 0.0)


def meetings(world_size: int, options: LinkOptions, wires: Wires) -> list[LocalMeeting]:
    """One for each rank of a world."""
    board = _Board()
    return [LocalMeeting(rank, world_size, options, wires, board) for rank in range(world_size)]


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
    met = meetings(world_size, options, Wires(latency_s, bytes_per_s, reorder))
    results: list[Any] = [None] * world_size
    errors: list[BaseException | None] = [None] * world_size

    def run(rank: int) -> None:
        world = World(met[rank], transport, options)
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
