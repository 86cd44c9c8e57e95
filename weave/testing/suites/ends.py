"""What the transport's suite hears, and the worlds that it makes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from weave.spi.transport import Buffer, Endpoint, Meeting
from weave.testing.suites.base import expect, within

Message = tuple[int, list[bytes]]


class Heard:
    """Keeps what an endpoint tells, as it was when it came and as it is now."""

    def __init__(self, name: str, limit: float) -> None:
        self.name = name
        self.messages: list[Message] = []
        self.kept: list[list[memoryview]] = []  # the frames themselves, which are ours
        self.lost_peers: list[int] = []
        self.after_loss: list[int] = []  # senders of what came after they were lost
        self.answer: Callable[[int, list[bytes]], None] | None = None
        self._limit = limit
        self._changed = threading.Condition()

    def came(self, peer: int, frames: Sequence[Buffer]) -> None:
        """A message."""
        views = [memoryview(frame) for frame in frames]
        copies = [bytes(view) for view in views]
        with self._changed:
            self.messages.append((peer, copies))
            self.kept.append(views)
            if peer in self.lost_peers:
                self.after_loss.append(peer)
            self._changed.notify_all()
        if self.answer is not None:
            self.answer(peer, copies)

    def lost(self, peer: int, why: str) -> None:
        """A peer is gone."""
        with self._changed:
            self.lost_peers.append(peer)
            self._changed.notify_all()
        expect(isinstance(why, str) and why, f"lost({peer}, {why!r}): say why, in words")

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait for something of it."""
        with self._changed:
            came = self._changed.wait_for(holds, self._limit)
        expect(came, f"{self.name}: within {self._limit:g} s it did not hear {what}; it heard {self.told}")

    def until_messages(self, count: int) -> list[Message]:
        """Wait for so many."""
        self.until(lambda: len(self.messages) >= count, f"{count} messages")
        return list(self.messages)

    def until_lost(self, peer: int) -> None:
        """Wait for a peer's loss."""
        self.until(lambda: peer in self.lost_peers, f"that rank {peer} is lost")

    @property
    def told(self) -> str:
        """In words, what it has heard."""
        return f"{len(self.messages)} messages" + "".join(f", the loss of rank {peer}" for peer in self.lost_peers)


class Goners:
    """Counts how often `gone` was said, for each message."""

    def __init__(self, limit: float) -> None:
        self.counts: list[int] = []
        self._limit = limit
        self._changed = threading.Condition()

    def one(self, then: Callable[[], None] = lambda: None) -> Callable[[], None]:
        """The `gone` of one message more."""
        with self._changed:
            place = len(self.counts)
            self.counts.append(0)

        def gone() -> None:
            with self._changed:
                self.counts[place] += 1
            then()  # before anybody who waits for it goes on
            with self._changed:
                self._changed.notify_all()

        return gone

    def until_all(self, when: str) -> None:
        """Wait until it was said for all; it must not have been said twice."""
        with self._changed:
            self._changed.wait_for(lambda: all(self.counts), self._limit)
        never, twice = self.counts.count(0), sum(count > 1 for count in self.counts)
        expect(not never, f"{when}, `gone` was not called for {never} of {len(self.counts)} messages")
        expect(not twice, f"{when}, `gone` was called more than once for {twice} of {len(self.counts)} messages")


class Rank:
    """An endpoint of a test, and what it hears."""

    def __init__(self, meeting: Meeting, connect: Callable[[Meeting], Endpoint], limit: float) -> None:
        self.rank = meeting.rank
        self.limit = limit
        self.heard = Heard(f"rank {meeting.rank}", limit)
        self.end = within(limit, f"connect(meeting) of rank {self.rank}", lambda: connect(meeting))

    def start(self) -> None:
        """Begin to hear."""
        within(self.limit, "endpoint.start(...)", lambda: self.end.start(self.heard))

    def send(self, peer: int, *frames: Buffer, urgent: bool = False, gone: Callable[[], None] | None = None) -> None:
        """Send, which waits for nobody."""
        within(self.limit, f"endpoint.send({peer}, ...)", lambda: self.end.send(peer, frames, urgent=urgent, gone=gone))

    def close(self, linger: float) -> None:
        """Close."""
        within(2 * self.limit, f"endpoint.close({linger:g})", lambda: self.end.close(linger))


@contextmanager
def ranks(
    meetings: Sequence[Meeting], connect: Callable[[Meeting], Endpoint], limit: float, *, start: bool = True
) -> Iterator[list[Rank]]:
    """Endpoints of all ranks, closed at the end."""
    made: list[Rank] = []
    try:
        for meeting in meetings:
            made.append(Rank(meeting, connect, limit))
            if start:
                made[-1].start()
        yield made
    finally:
        for rank in made:
            rank.close(0.0)


def descriptors() -> dict[str, str] | None:
    """This process's open file descriptors and what each is; `None` where the system doesn't say."""
    found = {}
    try:
        for number in os.listdir("/proc/self/fd"):
            try:
                found[number] = os.readlink(f"/proc/self/fd/{number}")
            except OSError:  # the one that listed them
                continue
    except OSError:
        return None
    return found
