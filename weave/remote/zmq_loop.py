"""The link's thread: it alone touches the sockets, and never waits for anything but what they and other threads bring.

Each rank listens with two PULL sockets, for data and for control, so that a word isn't stuck behind a gigabyte; to each
peer that it talks to, or hears from, it connects two PUSH sockets. (Not ROUTER and DEALER: what is sent one way needs no
routing identity, which a peer could choose as it likes. Whom a message is from is what the gate said of its connection.)

Both ranks of a pair so have a connection that they watch. It is made once, and never again: what breaks may have lost
messages. Until it is up for the first time it is tried anew, since the other may only be about to come.

Goodbye: who closes says `bye` on both lanes, behind all that it has sent; the other, having read both, says `heard`.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import zmq

from weave.remote.options import PROTOCOL
from weave.remote.zmq_directory import Directory
from weave.remote.zmq_monitor import Change
from weave.remote.zmq_parcel import Parcel
from weave.remote.zmq_peer import SLACK, Peer, State, limit
from weave.remote.zmq_security import LANES, Card, Gate, Lane, card_key, life_key, read, security_of, write
from weave.spi.transport import Hears

log = logging.getLogger("weave")

_AT_ONCE = 64  # messages of a lane that are read before the other sockets have their turn
_LAST_WORD = 1.0  # seconds that a peer that was given up has to take the word
_SOCKETS_A_PEER = 8  # two, their monitors' ends, and some to spare for those that are being closed


class Wake:
    """Makes a poller return. Set from any thread, without waiting."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._set = False

    def fileno(self) -> int:
        """What to poll."""
        return self._read.fileno()

    def set(self) -> None:
        """Wake the thread. Whatever was queued before this is seen by it."""
        if not self._set:
            self._set = True
            try:
                self._write.send(b"w")
            except OSError:  # full: it will wake; closed: there is nobody to wake
                return

    def clear(self) -> None:
        """Awake. What is queued is to be looked at after this, or a word that comes in between would be lost."""
        try:
            while len(self._read.recv(256)) == 256:
                continue
        except BlockingIOError:
            pass
        self._set = False

    def close(self) -> None:
        """Give both ends back."""
        self._read.close()
        self._write.close()


class Loop:
    """The thread's work. `jobs` and `parcels` are filled by other threads, who then `wake.set()`."""

    def __init__(self, meeting: Any, interface: str) -> None:
        self.rank: int = meeting.rank
        self.world_size: int = meeting.world_size
        self.options = meeting.options
        self.wake = Wake()
        self.jobs: deque[Callable[[], None]] = deque()
        self.parcels: deque[Parcel] = deque()
        self.ended = False
        self.peers: dict[int, Peer] = {}
        self._meeting = meeting
        self._hears: Hears | None = None
        self._early: list[tuple[int, str]] = []  # losses before anybody hears
        self._closing: float | None = None  # until when
        self._senders: dict[str, Peer] = {}
        self._security = security_of(self.options.security, self.rank)
        self._directory = Directory(meeting)
        self._context: zmq.Context[Any] = zmq.Context(io_threads=2)
        self._context.max_sockets = min(self._context.get(zmq.SOCKET_LIMIT), 64 + _SOCKETS_A_PEER * self.world_size)
        try:
            self._gate = Gate(self._context, self._security, self._decide, self._look_up)
            self._listeners = {lane: self._listen(lane, interface) for lane in LANES}
        except BaseException:
            self.wake.close()
            self._context.destroy(0)
            raise
        self._on: dict[Any, Callable[[], object]] = {
            self.wake.fileno(): self.wake.clear,
            self._gate.socket: self._gate.serve,
        }
        self._fallen: list[tuple[Peer, str, Lane]] = []
        self.card = Card(
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

    def _listen(self, lane: Lane, interface: str) -> zmq.Socket[Any]:
        listener: zmq.Socket[Any] = self._context.socket(zmq.PULL)
        limit(listener, lane, self.options)
        listener.maxmsgsize = self.options.max_message_bytes + SLACK
        listener.ipv6 = ":" in interface
        listener.zap_domain = lane.encode()
        self._security.listen(listener)
        listener.bind(f"tcp://[{interface}]:*" if ":" in interface else f"tcp://{interface}:*")
        return listener

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
            log.error("weave: the link of rank %s failed: %r", self.rank, error, exc_info=error)
            self._lose_all(f"rank {self.rank}'s own link failed: {error!r}")
        finally:
            self._tear_down()

    def _patience(self) -> int | None:
        return None if self._closing is None else max(0, round(1000 * (self._closing - time.monotonic()))) + 1

    def _finished(self) -> bool:
        if self._closing is None:
            return False
        over = time.monotonic() >= self._closing
        return over or (not self.jobs and not self.parcels and all(peer.settled for peer in self.peers.values()))

    def _turn(self, ready: list[Any]) -> None:
        for source in ready:
            if (handle := self._on.get(source)) is not None:
                handle()
        while self._fallen and (self._hears is not None or self._closing is not None):
            # What came before the connection ended is still told.
            for lane in LANES:
                while self._read(lane):
                    continue
            fallen, self._fallen = self._fallen, []
            for peer, why, lane in fallen:
                if peer.state is State.UP:
                    self._lose(peer, why, *([b"cut", why.encode()] if lane == "data" else []))
        while self.jobs:
            self.jobs.popleft()()
        while self.parcels:
            self._send(self.parcels.popleft())

    # --- what other threads want ---

    def start(self, hears: Hears) -> None:
        """A job: tell what comes."""
        self._hears = hears
        for lane, listener in self._listeners.items():
            self._on[listener] = partial(self._read, lane)
        for peer, why in self._early:
            hears.lost(peer, why)

    def close(self, until: float, withdraw: bool) -> None:
        """A job: say goodbye, and end when everybody has heard it, or the time is over."""
        if self._closing is not None:
            return
        self._closing = until
        self._hears = None
        if withdraw:
            try:
                self._meeting.share(card_key(self.rank), b"")
            except Exception as error:  # the store's process has ended: there is nobody to tell
                log.debug("weave: rank %s could not say in the store that its link is closed: %r", self.rank, error)
        for lane, listener in self._listeners.items():
            self._on[listener] = partial(self._read, lane)
        for peer in self.peers.values():
            if peer.state is State.UP:
                self._say_bye(peer)

    def _send(self, parcel: Parcel) -> None:
        peer = self._peer(parcel.peer)
        if peer.lost or peer.state is State.CUT:
            parcel.drop()
        elif peer.state is State.UP:
            peer.post(parcel)
        else:
            peer.waiting.append(parcel)
            if peer.state is State.IDLE:
                self._seek(peer)

    # --- finding a peer ---

    def _peer(self, rank: int) -> Peer:
        peer = self.peers.get(rank)
        if peer is None:
            peer = self.peers[rank] = Peer(rank)
        return peer

    def _seek(self, peer: Peer) -> None:
        if peer.state is State.IDLE:
            peer.seeks_until = time.monotonic() + self.options.timeout
        peer.state = State.SEEKING

        def tell(value: bytes | None, why: str) -> None:
            self.jobs.append(partial(self._found, peer, value, why))
            self.wake.set()

        self._directory.seek(card_key(peer.rank), bool, peer.seeks_until, peer.pause, tell)

    def _found(self, peer: Peer, value: bytes | None, why: str) -> None:
        if peer.state is not State.SEEKING:
            return
        if value is None:
            why = f"rank {peer.rank} was waited for {self.options.timeout:g} s, but {why}"
            return self._lose(peer, f"{why}. Is it running, and does it run a graph with edges to rank {self.rank}?")
        card = read(value, peer.rank, self.options.security)
        if isinstance(card, str):
            return self._lose(peer, card)
        if peer.life not in ("", card.life):  # an old card, or a new life while this one goes on
            return self._again(peer)
        if peer.card is not None and peer.card.life != card.life:
            peer.absences = 0
        peer.knock(self._context, card, self._security, self.options)
        for lane, monitor in peer.monitors.items():
            self._on[monitor.socket] = partial(self._changed, peer, lane)
        return None

    def _again(self, peer: Peer) -> None:
        self._hang_up(peer)
        peer.pause = min(0.5, max(0.05, 2 * peer.pause))
        if peer.over_time():
            self._lose(peer, f"rank {peer.rank} was there, but could not be talked to for {self.options.timeout:g} s")
        else:
            self._seek(peer)

    def _changed(self, peer: Peer, lane: Lane) -> None:
        for change in peer.monitors[lane].changes():
            if peer.state is State.UP:
                if change == "down":
                    self._fallen.append((peer, _BROKE, lane))
            elif peer.state is State.CONNECTING:
                self._connecting(peer, lane, change)
            if lane not in peer.monitors:
                return

    def _connecting(self, peer: Peer, lane: Lane, change: Change) -> None:
        if change == "up":
            peer.up.add(lane)
            if len(peer.up) == len(LANES):
                self._is_up(peer)
        elif change == "refused":
            self._lose(peer, f"rank {peer.rank} refused this rank: they don't have the same secret, so not the same rendezvous store")
        elif change == "absent":
            # A rank that has closed its link says so in the store: this one was killed, can't be reached, or is just
            # about to put a new card there.
            peer.absences += 1
            if peer.absences < 6:
                self._again(peer)
            else:
                self._lose(peer, self._absent(peer))
        else:
            self._again(peer)

    def _absent(self, peer: Peer) -> str:
        assert peer.card is not None
        why = f"nobody listens where rank {peer.rank} said it does ({peer.card.data}): it has ended, or can't be reached from here"
        if peer.card.host != socket.gethostname() and "//127." in peer.card.data:
            why += f"; that address leads nowhere from another machine: set WEAVE_LINK_INTERFACE on {peer.card.host!r}"
        return why

    def _is_up(self, peer: Peer) -> None:
        assert peer.card is not None
        peer.state = State.UP
        peer.life = peer.card.life
        if peer.lost:  # while this rank was on its way
            return self._cut(peer, *peer.last_word)
        while peer.waiting:
            peer.post(peer.waiting.popleft())
        if self._closing is not None:
            self._say_bye(peer)
        return None

    # --- who comes ---

    def _decide(self, rank: int, life: str) -> Literal["in", "later", "out"]:
        if not 0 <= rank < self.world_size or rank == self.rank:
            return "out"
        peer = self._peer(rank)
        if peer.lost or peer.life not in ("", life) or (self._closing is not None and peer.state is State.IDLE):
            return "later"
        peer.life = life
        peer.let_in = True
        self._senders[f"{rank}:{life}"] = peer
        if peer.state is State.IDLE:
            self._seek(peer)  # watched from both sides
        return "in"

    def _look_up(self, life: str) -> bool:
        # Who asks knows this rank's key, so has read the store; the limit is for one that goes mad.
        if self._directory.busy > 4 * self.world_size + 16:
            return False

        def tell(value: bytes | None, why: str) -> None:
            rank = int(value) if value is not None and value.isdigit() else None
            self.jobs.append(partial(self._gate.known, life, rank))
            self.wake.set()

        until = time.monotonic() + min(30.0, self.options.timeout)
        self._directory.seek(life_key(life), bool, until, 0.0, tell)
        return True

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
            while more:
                part = listener.recv(zmq.NOBLOCK, copy=False)
                count, more = count + 1, part.more
                size = max(size, len(part))
                if count <= most:
                    parts.append(part)
                else:
                    parts.clear()
            peer = self._senders.get(str(first.get("User-Id")))
            if peer is None or peer.lost:
                continue
            if count > most:
                self._refuse(peer, f"a message of {count} frames, of which {most} are allowed (WEAVE_LINK_MAX_FRAMES)")
            elif size > self.options.max_message_bytes:
                most = self.options.max_message_bytes
                self._refuse(peer, f"a frame of {size} bytes, of which {most} are allowed (WEAVE_LINK_MAX_MESSAGE_BYTES)")
            else:
                self._came(peer, lane, first.bytes, parts)
        return True

    def _came(self, peer: Peer, lane: Lane, kind: bytes, parts: list[zmq.Frame]) -> None:
        if kind == b"m" and parts:
            if self._hears is not None:
                self._hears.came(peer.rank, [part.buffer for part in parts])
        elif kind == b"bye":
            peer.byes.add(lane)
            if len(peer.byes) == len(LANES):
                self._left(peer)
        elif kind == b"heard":
            peer.heard = True
        elif kind == b"cut" and parts:
            why = parts[0].bytes[:1000].decode("utf-8", "replace")
            self._lose(peer, f"rank {peer.rank} has given this rank up: {why}")
        else:
            self._refuse(peer, "what is no message of this transport")

    # --- ends ---

    def _say_bye(self, peer: Peer) -> None:
        for lane in LANES:
            peer.say(lane, b"bye")

    def _left(self, peer: Peer) -> None:
        """It has closed its link, and all it sent has been read."""
        self._lose(peer, f"rank {peer.rank} has closed its link", b"heard")

    def _refuse(self, peer: Peer, what: str) -> None:
        self._lose(peer, f"rank {peer.rank} sent {what}", b"cut", f"it sent {what}".encode())

    def _lose(self, peer: Peer, why: str, *last_word: bytes) -> None:
        """Give a peer up, with a last word to it where it may still hear it."""
        self._tell_lost(peer, why)
        if last_word and peer.state is not State.UP:
            peer.last_word = last_word  # when it is up
            peer.drop_waiting()
        else:
            self._cut(peer, *last_word)

    def _cut(self, peer: Peer, *last_word: bytes) -> None:
        if last_word:
            peer.say("control", *last_word)
        self._hang_up(peer, _LAST_WORD if last_word else 0.0)
        peer.state = State.CUT
        peer.drop_waiting()

    def _hang_up(self, peer: Peer, linger: float = 0.0) -> None:
        for monitor in peer.monitors.values():
            self._on.pop(monitor.socket, None)
        peer.hang_up(linger, "control")

    def _tell_lost(self, peer: Peer, why: str) -> None:
        if peer.lost:
            return
        peer.lost = True
        if self._hears is not None:
            self._hears.lost(peer.rank, why)
        elif self._closing is None:
            self._early.append((peer.rank, why))

    def _lose_all(self, why: str) -> None:
        for rank in range(self.world_size):
            if rank != self.rank:
                try:
                    self._tell_lost(self._peer(rank), why)
                except Exception as error:
                    log.error("weave: nobody heard that rank %s is lost: %r", rank, error, exc_info=error)

    def _tear_down(self) -> None:
        left = 0.0 if self._closing is None else max(0.0, self._closing - time.monotonic())
        for peer in self.peers.values():
            peer.hang_up(left, "control")
            peer.drop_waiting()
        for source in (self._gate.socket, *self._listeners.values()):
            source.close(0)
        self._directory.close(time.monotonic() + left + 0.2)
        self._context.term()  # waits for last words, at most as long as they linger
        # In this order: who queues a parcel looks at `ended` after that, so one of the two sees it.
        self.ended = True
        while self.parcels:
            try:
                self.parcels.popleft().drop()
            except IndexError:  # its sender was quicker
                break
        self.wake.close()


_BROKE = "the connection to it broke, or it doesn't answer: it has been killed, is frozen, or was cut off"
