"""The link's thread: it alone touches the sockets, and never waits for anything but what they and other threads bring.

Each rank listens with two PULL sockets, for data and for control, so that a word isn't stuck behind a gigabyte; to each
peer that it talks to, or hears from, it connects two PUSH sockets. (Not ROUTER and DEALER: what is sent one way needs no
routing identity, which a peer could choose as it likes. Whom a message is from is what the gate said of its connection.)
Both ranks of a pair so have connections that they watch.

A message's first part says what it is: `m`, a message of the link's; or a word of the transport's own.
`bye`: who closes says it on both lanes, behind all that it has sent. `heard`: the other has read both.
`cut`: the other has given this rank up, and why.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import zmq

from weave.remote.options import PROTOCOL
from weave.remote.zmq_parcel import Parcel
from weave.remote.zmq_peer import SLACK, Peer, limit
from weave.remote.zmq_security import LANES, Card, Gate, Lane, card_key, life_key, security_of, write
from weave.remote.zmq_wake import Wake
from weave.remote.zmq_ways import Ways
from weave.spi.transport import Hears

log = logging.getLogger("weave")

_AT_ONCE = 64  # messages of a lane that are read before the other sockets have their turn
_SOCKETS_A_PEER = 8  # two, their monitors' ends, and some to spare for those that are being closed


class Loop:
    """The thread's work. `jobs` and `parcels` are filled by other threads, who then `wake.set()`."""

    def __init__(self, meeting: Any, interface: str) -> None:
        self.rank: int = meeting.rank
        self.options = meeting.options
        self.wake = Wake()
        self.jobs: deque[Callable[[], None]] = deque()
        self.parcels: deque[Parcel] = deque()
        self.ended = False
        self._meeting = meeting
        self._hears: Hears | None = None
        self._early: list[tuple[int, str]] = []  # losses before anybody hears
        self._closing: float | None = None  # until when
        self._withdraws = True
        self._on: dict[Any, Callable[[], object]] = {}
        self._context: zmq.Context[Any] = zmq.Context(io_threads=2)
        try:
            most = self._context.get(zmq.SOCKET_LIMIT)
            assert isinstance(most, int)
            self._context.set(zmq.MAX_SOCKETS, min(most, 64 + _SOCKETS_A_PEER * meeting.world_size))
            self._security = security_of(self.options.security, self.rank)
            self.ways = Ways(meeting, self._context, self._security, self._on, self._later, self._lost)
            self._gate = Gate(self._context, self._security, self.ways.decide, self.ways.look_up)
            self._listeners = {lane: self._listen(lane, interface) for lane in LANES}
            self.card = self._card()
        except BaseException:
            self.wake.close()
            self._context.destroy(0)
            raise
        self._on[self.wake.fileno()] = self.wake.clear
        self._on[self._gate.socket] = self._gate.serve

    def _listen(self, lane: Lane, interface: str) -> Any:
        listener: Any = self._context.socket(zmq.PULL)
        limit(listener, lane, self.options)
        listener.maxmsgsize = self.options.max_message_bytes + SLACK
        listener.ipv6 = ":" in interface
        listener.zap_domain = lane.encode()
        self._security.listen(listener)
        listener.bind(f"tcp://[{interface}]:*" if ":" in interface else f"tcp://{interface}:*")
        return listener

    def _card(self) -> Card:
        return Card(
            protocol=PROTOCOL,
            rank=self.rank,
            life=self._security.life,
            security=self.options.security,
            key=self._security.key,
            control=self._listeners["control"].get_string(zmq.LAST_ENDPOINT),
            data=self._listeners["data"].get_string(zmq.LAST_ENDPOINT),
            max_message_bytes=self.options.max_message_bytes,
            max_frames=self.options.max_frames,
            host=socket.gethostname(),
        )

    def share(self) -> None:
        """Tell the others where this rank listens and what lets them in."""
        if self._security.looked_up:
            self._meeting.share(life_key(self.card.life), str(self.rank).encode())
        self._meeting.share(card_key(self.rank), write(self.card))

    # --- the thread ---

    def run(self) -> None:
        """Work until it is closed. An error of its own loses all peers, rather than leaving them to wait for ever."""
        try:
            poller = zmq.Poller()
            registered: set[Any] = set()
            while not self._finished():
                if registered != self._on.keys():
                    for gone in registered - self._on.keys():
                        poller.unregister(gone)
                    for new in self._on:  # in this order: control before data
                        if new not in registered:
                            poller.register(new, zmq.POLLIN)
                    registered = set(self._on)
                self._turn([ready for ready, _ in poller.poll(self._patience())])
        except BaseException as error:
            self._failed(error)
        finally:
            self._tear_down()

    def _patience(self) -> int | None:
        return None if self._closing is None else max(0, round(1000 * (self._closing - time.monotonic()))) + 1

    def _finished(self) -> bool:
        if self._closing is None:
            return False
        return time.monotonic() >= self._closing or (not self.jobs and not self.parcels and self.ways.settled)

    def _turn(self, ready: list[Any]) -> None:
        for source in ready:
            if (handle := self._on.get(source)) is not None:
                handle()
        if self.ways.fallen and (self._hears is not None or self._closing is not None):
            for lane in LANES:  # what came before the connection ended is told before that
                while self._read(lane):
                    continue
            self.ways.tell_fallen()
        while self.jobs:
            job = self.jobs.popleft()
            self._post()  # what was sent before it was closed, say
            job()
        self._post()

    def _post(self) -> None:
        while self.parcels:
            self.ways.send(self.parcels.popleft())

    def _later(self, job: Callable[[], None]) -> None:
        self.jobs.append(job)
        self.wake.set()

    # --- what other threads want ---

    def start(self, hears: Hears) -> None:
        """A job: tell what comes."""
        if self._closing is not None:
            return
        self._hears = hears
        self._listen_up()
        for peer, why in self._early:
            self._lost(peer, why)

    def close(self, until: float, withdraw: bool) -> None:
        """A job: say goodbye, and end when everybody has heard it, or the time is over."""
        self._closing = until
        self._hears = None
        self._withdraws = withdraw
        self._listen_up()
        self.ways.leave()

    def _listen_up(self) -> None:
        for lane in LANES:
            self._on[self._listeners[lane]] = partial(self._read, lane)

    # --- what comes ---

    def _read(self, lane: Lane) -> bool:
        """Some messages of a lane; whether there may be more."""
        listener = self._listeners[lane]
        most = self.options.max_frames
        for _ in range(_AT_ONCE):
            try:
                first = listener.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return False
            parts: list[zmq.Frame] = []
            count, size, more = 0, 0, first.more
            while more:  # a message is here whole, or not at all
                part = listener.recv(zmq.NOBLOCK, copy=False)
                count, more = count + 1, part.more
                size = max(size, len(part))
                if count <= most:
                    parts.append(part)
                else:
                    parts.clear()
            peer = self.ways.senders.get(str(first.get("User-Id")))
            if peer is None or peer.lost:
                continue
            if count > most:
                self.ways.refuse(
                    peer, f"a message of {count} frames, of which {most} are allowed (WEAVE_LINK_MAX_FRAMES)"
                )
            elif size > self.options.max_message_bytes:
                allowed = f"{self.options.max_message_bytes} are allowed (WEAVE_LINK_MAX_MESSAGE_BYTES)"
                self.ways.refuse(peer, f"a frame of {size} bytes, of which {allowed}")
            else:
                self._came(peer, lane, first.bytes, parts)
        return True

    def _came(self, peer: Peer, lane: Lane, kind: bytes, parts: list[zmq.Frame]) -> None:
        if kind == b"m" and parts:
            if self._hears is not None:
                try:
                    self._hears.came(peer.rank, [part.buffer for part in parts])
                except Exception as error:
                    log.error("weave: a message from rank %s was not taken: %r", peer.rank, error, exc_info=error)
        elif kind == b"bye":
            peer.byes.add(lane)
            if len(peer.byes) == len(LANES):
                self.ways.left(peer)
        elif kind == b"heard":
            peer.heard = True
        elif kind == b"cut" and parts:
            why = parts[0].bytes[:1000].decode("utf-8", "replace")
            self.ways.lose(peer, f"rank {peer.rank} has given this rank up: {why}")
        else:
            self.ways.refuse(peer, "what is no message of this transport")

    # --- ends ---

    def _lost(self, peer: int, why: str) -> None:
        if self._hears is not None:
            try:
                self._hears.lost(peer, why)
            except Exception as error:
                log.error("weave: nobody took it that rank %s is lost: %r", peer, error, exc_info=error)
        elif self._closing is None:
            self._early.append((peer, why))

    def _failed(self, error: BaseException) -> None:
        log.error("weave: the link of rank %s failed: %r", self.rank, error, exc_info=error)
        for rank in range(self.ways.world_size):
            if rank != self.rank:
                self.ways.lose(self.ways.peer(rank), f"rank {self.rank}'s own link failed: {error!r}")

    def _withdraw(self) -> None:
        """Say in the store that this link is closed. While it still listens: who finds nobody takes the rank for lost."""
        look = getattr(self._meeting, "look", None)
        try:
            if look is None or look(card_key(self.rank)) == write(self.card):  # else a newer endpoint's lies there
                self._meeting.share(card_key(self.rank), b"")
        except Exception as error:  # the store's process has ended: there is nobody to tell
            log.debug("weave: rank %s could not say in the store that its link is closed: %r", self.rank, error)

    def _tear_down(self) -> None:
        if self._withdraws:
            self._withdraw()
        left = 0.0 if self._closing is None else max(0.0, self._closing - time.monotonic())
        self.ways.close(left)
        for source in (self._gate.socket, *self._listeners.values()):
            source.close(0)
        self._context.term()  # waits for last words, at most as long as they linger
        # In this order: who queues a parcel looks at `ended` after that, so one of the two sees it.
        self.ended = True
        while self.parcels:
            try:
                self.parcels.popleft().drop()
            except IndexError:  # its sender was quicker
                break
        self.wake.close()
