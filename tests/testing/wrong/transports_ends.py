"""Transports that are wrong in what they do when a rank leaves, or when somebody raises."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.testing.wrong.transports import End, Suite


class Fragile(End):
    """Doesn't outlive an exception of its hearer's."""

    def tell(self, method: Callable[..., Any], *args: Any) -> None:
        if not self.__dict__.get("broken"):
            try:
                method(*args)
            except Exception:
                self.__dict__["broken"] = True


class WrongHears(Suite):
    end = Fragile
    fails = {"test_hears_that_raise"}


class Hasty(End):
    """Never lingers."""

    def close(self, linger: float) -> None:
        super().close(0.0)

    def deliver(self, end: End, frames: list[Any]) -> None:
        if len(frames[-1]) == 1 << 20:
            time.sleep(0.005)
        super().deliver(end, frames)


class WrongLinger(Suite):
    end = Hasty
    fails = {"test_closing_delivers_what_was_sent"}
    most = True


class Torn(End):
    """When it is closed, half of a message may have gone."""

    def close(self, linger: float) -> None:
        with self.changed:
            half = [(end, item) for item in self.outbox if (end := self.ends.get(item[0])) is not None]
        for end, item in half[:1] if linger == 0 else []:
            end.receive(self.rank, item[1][:1])
        super().close(linger)

    def deliver(self, end: End, frames: list[Any]) -> None:
        if len(frames) == 2 and len(frames[1]) == 1 << 20:
            time.sleep(0.01)
        super().deliver(end, frames)


class WrongHalf(Suite):
    end = Torn
    fails = {"test_closing_at_once"}


class Keeps(End):
    """What it did not send is forgotten, `gone` too."""

    def close(self, linger: float) -> None:
        with self.changed:
            if linger == 0:
                self.outbox.clear()
        super().close(linger)


class WrongGoneNever(Suite):
    end = Keeps
    fails = {"test_closing_at_once"}
    may = {"test_sending_to_a_lost_peer"}


class Once(End):
    def close(self, linger: float) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        super().close(linger)


class WrongClosedTwice(Suite):
    end = Once
    fails = {"test_closing_again"}
    most = True


class Threads(End):
    """Leaves a thread."""

    def leave(self) -> None:
        super().leave()
        threading.Thread(target=time.sleep, args=(3,), name="forgotten", daemon=True).start()


class WrongThreadLeft(Suite):
    end = Threads
    fails = {"test_nothing_is_left"}


class Files(End):
    """Leaves a file descriptor."""

    left: list[int] = []

    def leave(self) -> None:
        super().leave()
        self.left.append(os.open(os.devnull, os.O_RDONLY))


class WrongFileLeft(Suite):
    end = Files
    fails = {"test_nothing_is_left"}

    def teardown_method(self) -> None:
        while Files.left:
            os.close(Files.left.pop())


class Talks(End):
    """Tells what comes after it was closed."""

    def leave(self) -> None:
        self.ends[self.rank] = self

    def receive(self, source: int, frames: list[Any]) -> None:
        self.met.add(source)
        self.tell(self.hears.came, source, frames)


class WrongAfterwards(Suite):
    end = Talks
    fails = {"test_nothing_is_told_after_closing"}
    most = True


class Silent(End):
    """Nobody hears that it leaves."""

    def leave(self) -> None:
        pass


class WrongSilent(Suite):
    end = Silent
    fails = {"test_a_peer_that_closes_is_lost", "test_a_peer_that_vanishes_is_lost", "test_sending_to_a_lost_peer"}
    fails |= {"test_hears_that_raise"}
    most = True


class Again(End):
    """Loses a peer twice."""

    def loses(self, rank: int) -> None:
        super().loses(rank)
        self.tell(self.hears.lost, rank, "it has left")


class WrongLostTwice(Suite):
    end = Again
    fails = {"test_a_peer_that_closes_is_lost", "test_a_peer_that_vanishes_is_lost", "test_sending_to_a_lost_peer"}
    most = True


class Last(End):
    """Says that it leaves before it has got out what it had sent."""

    def close(self, linger: float) -> None:
        if not self.closed and linger:
            self.leave()
        super().close(linger)

    def deliver(self, end: End, frames: list[Any]) -> None:
        if len(frames[-1]) == 200_000:
            time.sleep(0.005)
        super().deliver(end, frames)


class WrongOrder(Suite):
    end = Last
    fails = {"test_a_peer_that_closes_is_lost"}
    most = True


class Strict(End):
    """Sending to a peer that is lost is an error."""

    def send(self, peer: int, frames: Sequence[Any], *, urgent: bool = False, gone: Any = None) -> None:
        if peer in self.lost:
            raise ConnectionError(f"rank {peer} is lost")
        super().send(peer, frames, urgent=urgent, gone=gone)


class WrongToTheLost(Suite):
    end = Strict
    fails = {"test_sending_to_a_lost_peer"}
    may = {
        "test_nothing_is_told_after_closing",
        "test_graphs_of_two_ranks",
        "test_graphs_of_three_ranks",
        "test_a_run_that_fails",
    }


class Unnoticed(End):
    """That it was killed, nobody sees."""

    def vanish(self) -> None:
        self.closed = self.stopped = True
        with self.changed:
            self.changed.notify_all()


class WrongVanished(Suite):
    end = Unnoticed
    fails = {"test_a_peer_that_vanishes_is_lost"}
