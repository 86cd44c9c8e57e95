"""Transports that are wrong."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from weave.plugins import TransportType, hookimpl
from weave.testing import TransportSuite


class End:
    """Right: a thread for each end, which hands messages to the others in turn."""

    def __init__(self, meeting: Any) -> None:
        self.rank = meeting.rank
        self.size = meeting.world_size
        self.ends: dict[int, End] = meeting.wires.__dict__.setdefault("ends", {})
        self.changed: threading.Condition = meeting.wires.__dict__.setdefault("changed", threading.Condition())
        self.hears: Any = None
        self.closed = False
        self.stopped = False
        self.busy = False
        self.met: set[int] = set()
        self.lost: set[int] = set()
        self.outbox: deque[Any] = deque()
        self.telling = threading.RLock()
        self.thread = threading.Thread(target=self.work, name="an end", daemon=True)
        self.thread.start()

    def start(self, hears: Any) -> None:
        with self.changed:
            self.hears = hears
            self.ends[self.rank] = self
            self.changed.notify_all()

    def send(self, peer: int, frames: Sequence[Any], *, urgent: bool = False, gone: Any = None) -> None:
        item = (peer, self.copied(frames), gone or str)
        with self.changed:
            if not self.closed:
                self.put(item, urgent)
                self.changed.notify_all()
                return
        item[2]()

    def copied(self, frames: Sequence[Any]) -> list[Any]:
        return [bytearray(bytes(frame)) for frame in frames]

    def put(self, item: Any, urgent: bool) -> None:
        if urgent:
            self.outbox.appendleft(item)
        else:
            self.outbox.append(item)

    def next(self) -> Any:
        return next((item for item in self.outbox if item[0] in self.ends or item[0] in self.lost), None)

    def work(self) -> None:
        while True:
            with self.changed:
                self.busy = False
                self.changed.notify_all()
                self.changed.wait_for(lambda: self.stopped or self.next() is not None)
                if self.stopped:
                    return
                item = self.next()
                self.outbox.remove(item)
                self.busy = True
                end = self.ends.get(item[0])
            if end is not None and item[0] not in self.lost:
                self.deliver(end, item[1])
            self.say_gone(item[2])

    def deliver(self, end: End, frames: list[Any]) -> None:
        self.met.add(end.rank)
        end.receive(self.rank, frames)

    def receive(self, source: int, frames: list[Any]) -> None:
        with self.telling:
            if not self.closed and source not in self.lost:
                self.met.add(source)
                self.tell(self.hears.came, source, frames)

    def tell(self, method: Callable[..., Any], *args: Any) -> None:
        try:
            method(*args)
        except Exception:
            return

    def say_gone(self, gone: Callable[[], Any]) -> None:
        self.tell(gone)

    def close(self, linger: float) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.closed or not (self.outbox or self.busy), linger)
            if self.closed:
                return
            self.closed = self.stopped = True
            left = list(self.outbox)
            self.outbox.clear()
            self.changed.notify_all()
        self.thread.join()
        with self.telling:  # nobody is telling it anything
            self.ends.pop(self.rank, None)
        for _, _, gone in left:
            self.say_gone(gone)
        self.leave()

    def leave(self) -> None:
        for end in list(self.ends.values()):
            if end is not self and (self.rank in end.met or end.rank in self.met):
                end.loses(self.rank)

    def loses(self, rank: int) -> None:
        with self.telling:
            if rank not in self.lost and not self.closed:
                self.lost.add(rank)
                self.tell(self.hears.lost, rank, "it has left")
        with self.changed:
            self.changed.notify_all()

    def vanish(self) -> None:
        self.close(0.0)


class Suite(TransportSuite):
    limit = 2.0
    backends = ()  # graphs are called only
    end: Any = End
    fails: set[str] = set()

    def connect(self, meeting: Any) -> Any:
        return self.end(meeting)

    def vanish(self, endpoint: Any) -> None:
        endpoint.vanish()


class RightByHand(Suite):
    limit = 30.0
    backends = ("asyncio", "trio")


class Plugin:
    @hookimpl
    def weave_transports(self) -> Any:
        return [TransportType(scheme="ends", connect=End)]


class RightHook(TransportSuite):
    plugin = Plugin()
    fails: set[str] = set()


class Misspelt:
    @hookimpl
    def weave_transport(self) -> Any:
        return [TransportType(scheme="ends", connect=End)]


class WrongHook(Suite):
    plugin = Misspelt()
    fails = {"test_the_plugin_loads"}


class Joins(End):
    """Empty frames are left out."""

    def copied(self, frames: Sequence[Any]) -> list[Any]:
        return super().copied([frame for frame in frames if len(frame)])


class WrongEmptyFrames(Suite):
    end = Joins
    fails = {"test_messages_come_whole"}
    most = True


class Counts(End):
    """Takes a view's length for its size."""

    def copied(self, frames: Sequence[Any]) -> list[Any]:
        return [bytes(frame)[: len(frame)] for frame in frames]


class WrongViews(Suite):
    end = Counts
    fails = {"test_frames_of_every_kind"}


class Twice(End):
    def deliver(self, end: End, frames: list[Any]) -> None:
        super().deliver(end, frames)
        if bytes(frames[-1]) == b"7":
            super().deliver(end, frames)


class WrongTwice(Suite):
    end = Twice
    fails = {"test_every_message_comes_once_to_its_peer"}
    most = True


class Anonymous(End):
    """Of three ranks it knows two."""

    def receive(self, source: int, frames: list[Any]) -> None:
        super().receive(1 if self.rank == 0 else 0, frames)


class WrongSender(Suite):
    end = Anonymous
    fails = {"test_every_message_comes_once_to_its_peer", "test_graphs_of_three_ranks", "test_a_run_that_fails"}
    most = True


class OneBuffer(End):
    """The memory of a message is used for the next."""

    def receive(self, source: int, frames: list[Any]) -> None:
        last = self.__dict__.setdefault("last", {})
        taken = [last.setdefault((place, len(frame)), frame) for place, frame in enumerate(frames)]
        for old, new in zip(taken, frames, strict=True):
            old[:] = new
        super().receive(source, taken)


class WrongMemory(Suite):
    end = OneBuffer
    fails = {"test_what_came_is_the_receivers"}
    may = {"test_graphs_of_two_ranks", "test_graphs_of_three_ranks", "test_a_run_that_fails"}


class Waits(End):
    """Waits for everybody when it connects."""

    def __init__(self, meeting: Any) -> None:
        super().__init__(meeting)
        meeting.share(f"here {self.rank}", b"")
        for rank in range(self.size):
            meeting.ask(f"here {rank}")


class WrongConnect(Suite):
    end = Waits
    fails = {"test_nobody_waits_for_a_rank_that_is_late"}
    most = True


class Forgets(End):
    """Who is not there gets nothing."""

    def put(self, item: Any, urgent: bool) -> None:
        if item[0] in self.ends:
            super().put(item, urgent)
        else:
            threading.Thread(target=self.say_gone, args=(item[2],)).start()


class WrongEarly(Suite):
    end = Forgets
    fails = {"test_nobody_waits_for_a_rank_that_is_late"}
    most = True


class Rude(End):
    """Takes nothing while it sends."""

    def deliver(self, end: End, frames: list[Any]) -> None:
        with self.telling:
            if len(frames) > 1 and len(frames[1]) == 3 << 20:
                time.sleep(0.05)
            if end.telling.acquire(timeout=30):
                try:
                    super().deliver(end, frames)
                finally:
                    end.telling.release()


class WrongBothWays(Suite):
    end = Rude
    fails = {"test_both_send_at_once"}
    most = True


class Mixes(End):
    """Puts a message's frames on the way one by one."""

    def send(self, peer: int, frames: Sequence[Any], *, urgent: bool = False, gone: Any = None) -> None:
        parts = self.__dict__.setdefault("parts", [])
        parts.clear()
        for frame in frames:
            parts.append(frame)
            time.sleep(0)
            if len(frames) == 3:
                time.sleep(0.001)
        super().send(peer, list(parts) or frames, urgent=urgent, gone=gone)


class WrongThreads(Suite):
    end = Mixes
    fails = {"test_threads_send_at_once"}
    most = True


class Locked(End):
    """Who hears may not send."""

    def tell(self, method: Callable[..., Any], *args: Any) -> None:
        with self.changed:
            self.__dict__["hearing"] = threading.get_ident()
            try:
                super().tell(method, *args)
            finally:
                self.__dict__["hearing"] = 0

    def send(self, peer: int, frames: Sequence[Any], *, urgent: bool = False, gone: Any = None) -> None:
        if self.__dict__.get("hearing") == threading.get_ident():
            raise RuntimeError("the lock is held")
        super().send(peer, frames, urgent=urgent, gone=gone)


class WrongAnswer(Suite):
    end = Locked
    fails = {"test_an_answer_from_where_it_came"}
    most = True


class Early(End):
    """Says `gone` when it has begun."""

    def send(self, peer: int, frames: Sequence[Any], *, urgent: bool = False, gone: Any = None) -> None:
        if gone is not None:
            self.say_gone(gone)
        super().send(peer, frames, urgent=urgent)


class WrongGoneEarly(Suite):
    end = Early
    fails = {"test_gone_is_said_once_and_the_memory_is_free"}


class GoneTwice(End):
    def say_gone(self, gone: Callable[[], Any]) -> None:
        super().say_gone(gone)
        super().say_gone(gone)


class WrongGoneTwice(Suite):
    end = GoneTwice
    fails = {
        "test_gone_is_said_once_and_the_memory_is_free",
        "test_nobody_waits_for_a_rank_that_is_late",
        "test_closing_delivers_what_was_sent",
        "test_closing_at_once",
        "test_sending_to_a_lost_peer",
        "test_nothing_is_told_after_closing",
    }


class NoWord(End):
    """Urgent messages get nowhere."""

    def put(self, item: Any, urgent: bool) -> None:
        if not urgent:
            super().put(item, urgent)


class WrongUrgent(Suite):
    end = NoWord
    fails = {"test_both_send_at_once"}
    most = True


class Reverses(End):
    """The last frame comes first."""

    def copied(self, frames: Sequence[Any]) -> list[Any]:
        return super().copied(frames)[::-1]


class WrongOrderOfFrames(Suite):
    end = Reverses
    fails = {"test_messages_come_whole", "test_frames_of_every_kind", "test_graphs_of_two_ranks"}
    most = True
