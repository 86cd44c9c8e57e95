"""Who hears an endpoint in a test, and ranks that a test plays itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import zmq

from tests.remote.meetings import DictMeeting
from weave.remote.options import LinkOptions
from weave.remote.zmq_security import Card, Lane, Token, card_key, read, write
from weave.remote.zmq_transport import ZmqEndpoint, connect

PATIENCE = 60.0


class Hearer:
    """Keeps what comes."""

    def __init__(self) -> None:
        self.came_frames: list[tuple[int, list[memoryview]]] = []
        self.losses: list[tuple[int, str]] = []
        self._changed = threading.Condition()

    def came(self, peer: int, frames: Sequence[Any]) -> None:
        with self._changed:
            self.came_frames.append((peer, [memoryview(frame) for frame in frames]))
            self._changed.notify_all()

    def lost(self, peer: int, why: str) -> None:
        with self._changed:
            self.losses.append((peer, why))
            self._changed.notify_all()

    @property
    def messages(self) -> list[tuple[int, list[bytes]]]:
        return [(peer, [bytes(frame) for frame in frames]) for peer, frames in self.came_frames]

    def wait(self, count: int = 1, losses: int = 0) -> list[tuple[int, list[bytes]]]:
        with self._changed:
            there = self._changed.wait_for(
                lambda: len(self.came_frames) >= count and len(self.losses) >= losses, PATIENCE
            )
            assert there, (len(self.came_frames), self.losses)
            return self.messages if count else []

    def wait_lost(self) -> tuple[int, str]:
        self.wait(0, 1)
        assert len(self.losses) == 1
        return self.losses[0]


class Calls:
    """Counts calls."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = threading.Condition()

    def __call__(self) -> None:
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait(self, count: int = 1) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.count >= count, PATIENCE)


@contextmanager
def world(size: int, *options: LinkOptions) -> Iterator[tuple[list[ZmqEndpoint], list[Hearer], list[DictMeeting]]]:
    """Endpoints of one process, started; closed at the end."""
    meetings = DictMeeting.world(size, *(options or (LinkOptions(timeout=PATIENCE),)))
    ends = [connect(meeting) for meeting in meetings]
    hearers = [Hearer() for _ in ends]
    try:
        for end, hearer in zip(ends, hearers, strict=True):
            end.start(hearer)
        yield ends, hearers, meetings
    finally:
        for end in ends:
            end.close(0.0)


def card_of(meeting: DictMeeting, rank: int, security: str = "token") -> Card:
    card = read(meeting.known[card_key(rank)], rank, security)
    assert isinstance(card, Card), card
    return card


class PlayedRank:
    """A rank whose sockets a test holds: it lets everybody in, and takes what it is sent when the test says so."""

    def __init__(self, meeting: DictMeeting, room: int = 0) -> None:
        self.security = Token(meeting.rank)
        self._meeting = meeting
        self.context: zmq.Context[Any] = zmq.Context()
        self._gate = self.context.socket(zmq.REP)
        self._gate.linger = 0
        self._gate.bind("inproc://zeromq.zap.01")
        self._thread = threading.Thread(target=self._let_in)
        self._thread.start()
        self.control = self._listen()
        self.data = self._listen(room)
        card = Card(
            protocol=1,
            rank=meeting.rank,
            life=self.security.life,
            security="token",
            key=self.security.key,
            control=self.control.get_string(zmq.LAST_ENDPOINT),
            data=self.data.get_string(zmq.LAST_ENDPOINT),
            max_message_bytes=1 << 30,
            max_frames=100,
            host="here",
        )
        meeting.share(card_key(meeting.rank), write(card))

    def _listen(self, room: int = 0) -> Any:
        listener = self.context.socket(zmq.PULL)
        listener.plain_server = True
        listener.rcvtimeo = round(1000 * PATIENCE)
        if room:
            listener.rcvhwm, listener.rcvbuf = 2, room  # with 1, libzmq 4.3.5 gives nothing at all behind a gate
        listener.bind("tcp://127.0.0.1:*")
        return listener

    def _let_in(self) -> None:
        while True:
            request = self._gate.recv_multipart()
            if request == [b"end"]:
                return
            self._gate.send_multipart([request[0], request[1], b"200", b"", b"0", b""])

    def call(self, rank: int, lane: Lane = "data") -> Any:
        """A socket that is connected to a rank as this one."""
        caller = self.context.socket(zmq.PUSH)
        caller.linger = 0
        card = card_of(self._meeting, rank)
        self.security.call(caller, card)
        caller.connect(card.data if lane == "data" else card.control)
        return caller

    def close(self) -> None:
        end = self.context.socket(zmq.REQ)
        end.connect("inproc://zeromq.zap.01")
        end.send(b"end")
        self._thread.join()
        self.context.destroy(0)
