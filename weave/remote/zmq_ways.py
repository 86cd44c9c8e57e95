"""The ways to the peers: found, made, lost. Used by the link's thread only.

A way is made once, and never again: what breaks may have lost messages. Until it is up for the first time it is tried
anew, since the other may only be about to come, or still be closing an earlier endpoint.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import zmq

from weave.remote.zmq_directory import Directory
from weave.remote.zmq_monitor import Change
from weave.remote.zmq_parcel import Parcel
from weave.remote.zmq_peer import Peer, State
from weave.remote.zmq_security import LANES, Curve, Lane, Token, card_key, life_key, read

_LAST_WORD = 1.0  # seconds that a peer that was given up has to take the word
_ABSENCES = 6  # with a pause that doubles each time, so for more than a second
_LOOKED_UP = 30.0  # seconds, which is also how long libzmq gives a handshake
_BROKE = "the connection to it broke, or it doesn't answer: it has been killed, is frozen, or was cut off"


class Ways:
    """All peers of a rank.

    Args:
        meeting: where they are found.
        context: whose sockets are used.
        security: how this rank shows who it is.
        on: what is to be called when a socket is readable.
        later: has a job done in the link's thread; called from others.
        tell: is told of a lost peer, once each, and why.
    """

    def __init__(
        self,
        meeting: Any,
        context: zmq.Context[Any],
        security: Token | Curve,
        on: dict[Any, Callable[[], object]],
        later: Callable[[Callable[[], None]], None],
        tell: Callable[[int, str], None],
    ) -> None:
        self.rank: int = meeting.rank
        self.world_size: int = meeting.world_size
        self.peers: dict[int, Peer] = {}
        self.senders: dict[str, Peer] = {}  # by the user id that their messages bear
        self.fallen: list[tuple[Peer, Lane]] = []  # whose connections have ended, before that is told
        self.closing = False
        self._options = meeting.options
        self._context = context
        self._security = security
        self._directory = Directory(meeting)
        self._on = on
        self._later = later
        self._tell = tell

    def peer(self, rank: int) -> Peer:
        """A rank's, new where it was not heard of."""
        peer = self.peers.get(rank)
        if peer is None:
            peer = self.peers[rank] = Peer(rank)
        return peer

    def send(self, parcel: Parcel) -> None:
        """Send a message as soon as there is a way."""
        peer = self.peer(parcel.peer)
        if peer.lost or peer.state is State.CUT:
            parcel.drop()
        elif peer.state is State.UP:
            peer.post(parcel)
        else:
            peer.waiting.append(parcel)
            if peer.state is State.IDLE:
                self._seek(peer)

    # --- there ---

    def _seek(self, peer: Peer) -> None:
        if peer.state is State.IDLE:
            peer.seeks_until = time.monotonic() + self._options.timeout
        peer.state = State.SEEKING

        def tell(value: bytes | None, why: str) -> None:
            self._later(partial(self._found, peer, value, why))

        self._directory.seek(card_key(peer.rank), bool, peer.seeks_until, peer.pause, tell)

    def _found(self, peer: Peer, value: bytes | None, why: str) -> None:
        if peer.state is not State.SEEKING:
            return
        if value is None:
            why = f"rank {peer.rank} was waited for {self._options.timeout:g} s, but {why}"
            self.lose(peer, f"{why}. Is it running, and does it run a graph with edges to rank {self.rank}?")
            return
        card = read(value, peer.rank, self._options.security)
        if isinstance(card, str):
            self.lose(peer, card)
            return
        if peer.life not in ("", card.life):  # an old card, or a new life while this one goes on
            self._again(peer)
            return
        if peer.card is not None and peer.card.life != card.life:
            peer.absences = 0
        peer.knock(self._context, card, self._security, self._options)
        for lane, monitor in peer.monitors.items():
            self._on[monitor.socket] = partial(self._changed, peer, lane)

    def _again(self, peer: Peer) -> None:
        self._hang_up(peer)
        peer.pause = min(0.5, max(0.05, 2 * peer.pause))
        if time.monotonic() > peer.seeks_until:
            self.lose(peer, f"rank {peer.rank} was there, but could not be talked to for {self._options.timeout:g} s")
        else:
            self._seek(peer)

    def _changed(self, peer: Peer, lane: Lane) -> None:
        for change in peer.monitors[lane].changes():
            if peer.state is State.UP:
                if change == "down":
                    self.fallen.append((peer, lane))
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
            why = "they don't have the same secret, so not the same rendezvous store"
            self.lose(peer, f"rank {peer.rank} refused this rank: {why}")
        elif change == "absent":
            # A rank that has closed its link says so in the store: this one was killed, can't be reached, or is just
            # about to put a new card there.
            peer.absences += 1
            if peer.absences < _ABSENCES:
                self._again(peer)
            else:
                self.lose(peer, self._absent(peer))
        else:
            self._again(peer)

    def _absent(self, peer: Peer) -> str:
        assert peer.card is not None
        why = (
            f"nobody listens where rank {peer.rank} said it does ({peer.card.data}): it has ended, or can't be reached"
        )
        if peer.card.host != socket.gethostname() and "//127." in peer.card.data:
            why += f"; that address leads nowhere from another machine: set WEAVE_LINK_INTERFACE on {peer.card.host!r}"
        return why

    def _is_up(self, peer: Peer) -> None:
        assert peer.card is not None
        peer.state = State.UP
        peer.life = peer.card.life
        if peer.lost:  # while this rank was on its way
            self._cut(peer, *peer.last_word)
            return
        while peer.waiting:
            peer.post(peer.waiting.popleft())
        if self.closing:
            self._say_bye(peer)

    # --- back: what the gate asks ---

    def decide(self, rank: int, life: str) -> Literal["in", "later", "out"]:
        """Whether a rank's life, having shown that it is that, may connect."""
        if not 0 <= rank < self.world_size or rank == self.rank:
            return "out"
        peer = self.peer(rank)
        if peer.lost or peer.life not in ("", life) or (self.closing and peer.state is State.IDLE):
            return "later"
        peer.life = life
        peer.let_in = True
        self.senders[f"{rank}:{life}"] = peer
        if peer.state is State.IDLE:
            self._seek(peer)  # so that it is watched from here too
        return "in"

    def look_up(self, life: str, known: Callable[[str, int | None], None]) -> bool:
        """Whether it is looked up which rank's life it is; `known` is told."""
        # Who asks knows this rank's key, so has read the store; the limit is for one that goes mad.
        if self._directory.busy > 4 * self.world_size + 16:
            return False

        def tell(value: bytes | None, why: str) -> None:
            rank = int(value) if value is not None and value.isdigit() else None
            self._later(partial(known, life, rank))

        until = time.monotonic() + min(_LOOKED_UP, self._options.timeout)
        self._directory.seek(life_key(life), bool, until, 0.0, tell)
        return True

    # --- ends ---

    def tell_fallen(self) -> None:
        """The peers whose connections have ended are lost."""
        fallen, self.fallen = self.fallen, []
        for peer, lane in fallen:
            if peer.state is State.UP:
                self.lose(peer, _BROKE, *([b"cut", _BROKE.encode()] if lane == "data" else []))

    def left(self, peer: Peer) -> None:
        """It has closed its link, and all that it sent has been read."""
        self.lose(peer, f"rank {peer.rank} has closed its link", b"heard")

    def refuse(self, peer: Peer, what: str) -> None:
        """It has sent what it must not."""
        self.lose(peer, f"rank {peer.rank} sent {what}", b"cut", f"it sent {what}".encode())

    def lose(self, peer: Peer, why: str, *last_word: bytes) -> None:
        """Give a peer up, with a last word to it where it may still hear it."""
        if not peer.lost:
            peer.lost = True
            self._tell(peer.rank, why)
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

    def leave(self) -> None:
        """Say goodbye to all."""
        self.closing = True
        for peer in self.peers.values():
            if peer.state is State.UP:
                self._say_bye(peer)

    def _say_bye(self, peer: Peer) -> None:
        for lane in LANES:
            peer.say(lane, b"bye")

    @property
    def settled(self) -> bool:
        """Nothing more is owed to anybody."""
        return all(peer.settled for peer in self.peers.values())

    def close(self, linger: float) -> None:
        """Close what is left."""
        for peer in self.peers.values():
            self._hang_up(peer, linger)
            peer.drop_waiting()
        self._directory.close(time.monotonic() + linger + 0.2)
