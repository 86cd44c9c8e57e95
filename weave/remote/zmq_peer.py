"""A link's side towards one peer: two sockets that connect to it, and what waits for them to be up."""

from __future__ import annotations

import contextlib
from collections import deque
from enum import Enum
from typing import Any

import zmq

from weave.remote.zmq_monitor import Monitor
from weave.remote.zmq_parcel import Parcel
from weave.remote.zmq_security import LANES, Card, Curve, Lane, Token

# libzmq takes a part's size with what encryption adds, and refuses what is larger before it makes room for it.
SLACK = 4 << 10


def limit(socket: zmq.Socket[Any], lane: Lane, options: Any) -> None:
    """What both ends of a connection have in common."""
    socket.linger = 0
    # No high-water mark: what is under way is bounded by the link's credits, and a full queue would block or drop.
    socket.sndhwm = socket.rcvhwm = 0
    socket.handshake_ivl = round(1000 * min(30.0, options.timeout))
    # Each lane has an I/O thread, so that encrypting a gigabyte keeps no word waiting, and no answer to a heartbeat.
    socket.affinity = 1 << LANES.index(lane)


class State(Enum):
    """How far the way to a peer is."""

    IDLE = "nobody has wanted to talk yet"
    SEEKING = "looking for its card"
    CONNECTING = "knocking"
    UP = "both lanes are up"
    CUT = "no more"


class Peer:
    """One peer. Used by the link's thread only."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.state = State.IDLE
        self.waiting: deque[Parcel] = deque()
        self.card: Card | None = None
        self.lanes: dict[Lane, zmq.Socket[Any]] = {}
        self.monitors: dict[Lane, Monitor] = {}
        self.up: set[Lane] = set()
        self.life = ""  # once one has been let in here, or is up: no other life is talked to
        self.let_in = False
        self.lost = False  # the hearer has been told; from then on nothing it sends counts
        self.last_word: tuple[bytes, ...] = ()  # what a lost one is still to be told, once it is up
        self.byes: set[Lane] = set()  # on which lanes it has said goodbye
        self.heard = False  # it has heard ours
        self.seeks_until = 0.0
        self.pause = 0.0
        self.absences = 0

    def knock(self, context: zmq.Context[Any], card: Card, security: Token | Curve, options: Any) -> None:
        """Connect both lanes, once each: a link that broke may have lost messages, so it is never mended in silence."""
        self.card = card
        self.state = State.CONNECTING
        beat = max(1, round(500 * options.heartbeat))
        for lane in LANES:
            socket = self.lanes[lane] = context.socket(zmq.PUSH)
            limit(socket, lane, options)
            socket.reconnect_ivl = -1
            socket.connect_timeout = round(1000 * min(30.0, options.timeout))
            if lane == "control":
                # Heartbeats only here: on the data lane they would queue behind the gigabyte. No time-to-live for the
                # other side either: it would count while a large part is still coming in.
                socket.heartbeat_ivl, socket.heartbeat_timeout = beat, 2 * beat
            address = card.control if lane == "control" else card.data
            socket.ipv6 = "[" in address
            security.call(socket, card)
            self.monitors[lane] = Monitor(socket)
            socket.connect(address)

    def say(self, lane: Lane, *parts: bytes) -> None:
        """A word of the transport's own. Where the connection has just ended, nobody hears it."""
        with contextlib.suppress(zmq.Again, KeyError):
            self.lanes[lane].send_multipart(parts, zmq.NOBLOCK)

    def post(self, parcel: Parcel) -> None:
        """Send a message; the lanes are up."""
        parts = [zmq.Frame(b"m"), *parcel.parts()]
        lane: Lane = "control" if parcel.urgent else "data"
        try:
            self.lanes[lane].send_multipart(parts, zmq.NOBLOCK, copy=False)
        except zmq.Again:
            pass  # the connection has just ended, of which the monitor tells
        finally:
            del parts
            parcel.sent()

    def hang_up(self, linger: float = 0.0, lane: Lane | None = None) -> None:
        """Close the lanes, all but at once; one may have so many seconds for its last words."""
        for monitor in self.monitors.values():
            monitor.close()
        for known, socket in self.lanes.items():
            socket.close(round(1000 * linger) if known == lane else 0)
        self.monitors, self.lanes, self.up = {}, {}, set()

    def drop_waiting(self) -> None:
        """What has not been sent never will be."""
        while self.waiting:
            self.waiting.popleft().drop()

    @property
    def settled(self) -> bool:
        """While this side closes: nothing more is owed to it."""
        if self.state in (State.IDLE, State.CUT) or self.heard:
            return True
        return self.state is State.SEEKING and not self.waiting and not self.let_in
