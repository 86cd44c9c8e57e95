"""The values between this rank and one peer in one graph, and who may send when.

A channel is an edge's place in the sorted list of the pair's edges, so neither side depends on the order in which the
other fires. On each the receiver grants `credits` values in advance, of any runs; what it has taken it grants anew. So a
fast sender waits, and no round trip is added.

Runs may overlap, and their values come in any order. If the credits are all spent on runs that the receiver has not come
to yet, while it waits for a value of another, it asks for that one by name (`Want`), and the sender sends it beside the
credits. So whatever the order in which the two sides get to things, a value that somebody waits for always gets through,
and what lies here untaken is at most the credits and what was asked for.

Everything here is called under the link's lock, and returns what is to be done without it: messages, and waiters to wake.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from weave.remote.waiter import Waiter
from weave.remote.wire import RunKey, Taken, Value, Want

Slot = tuple[int, RunKey]  # a channel, and the run that a value on it belongs to


@dataclass
class Steps:
    """What is to be done once the lock is let go."""

    messages: list[Any] = field(default_factory=list)
    wake: list[Waiter] = field(default_factory=list)


class Arrived:
    """A value that has come: the head that describes it, and its frames."""

    __slots__ = ("frames", "head")

    def __init__(self, head: bytes, frames: Sequence[Any]) -> None:
        self.head = head
        self.frames = frames


class Overrun(Exception):
    """A peer sent more than it was granted."""


class Sending:
    """This rank's side of the channels on which it sends to a peer."""

    def __init__(self, credits: int) -> None:
        self._credits = credits
        self._left: dict[int, int] = {}
        self._spent: set[Slot] = set()
        self._wanted: set[Slot] = set()
        self._blocked: dict[int, deque[tuple[RunKey, Waiter]]] = {}

    def try_send(self, slot: Slot) -> bool:
        """Whether a value may go now; then it counts as sent."""
        if slot in self._wanted:
            self._wanted.discard(slot)
            return True
        left = self._left.get(slot[0], self._credits)
        if left:
            self._left[slot[0]] = left - 1
            self._spent.add(slot)
            return True
        return False

    def block(self, slot: Slot, waiter: Waiter) -> None:
        """A sender waits, woken when it is worth trying again."""
        self._blocked.setdefault(slot[0], deque()).append((slot[1], waiter))

    def unblock(self, slot: Slot, waiter: Waiter) -> None:
        """A sender waits no more; one that was just woken and goes away passes that on."""
        queue = self._blocked.get(slot[0], deque())
        if (slot[1], waiter) in queue:
            queue.remove((slot[1], waiter))

    def want(self, slot: Slot, steps: Steps) -> None:
        """The peer waits for this very value."""
        if slot in self._spent:
            return  # it is on its way
        self._wanted.add(slot)
        steps.wake += [waiter for run, waiter in self._blocked.get(slot[0], ()) if run == slot[1]]

    def taken(self, slot: Slot, steps: Steps) -> None:
        """The peer has taken, or thrown away, a value."""
        self._wanted.discard(slot)
        if slot in self._spent:
            self._spent.discard(slot)
            self._left[slot[0]] = self._left.get(slot[0], self._credits) + 1
            steps.wake += [waiter for _, waiter in list(self._blocked.get(slot[0], ()))[:1]]

    def again(self, channel: int) -> list[Waiter]:
        """Who should try now, after one that was woken has gone away."""
        if self._left.get(channel, self._credits):
            return [waiter for _, waiter in list(self._blocked.get(channel, ()))[:1]]
        return []

    def forget(self, run: RunKey) -> None:
        """A run is over here: nothing of it will be sent any more."""
        self._wanted = {slot for slot in self._wanted if slot[1] != run}


class Receiving:
    """This rank's side of the channels on which a peer sends to it. `name`: the graph's, as the peer knows it."""

    def __init__(self, credits: int, name: str) -> None:
        self._credits = credits
        self._name = name
        self._here: dict[Slot, Arrived] = {}
        self._counts: dict[int, int] = {}  # by channel: values that lie here
        self._waiting: dict[Slot, Waiter] = {}
        self._asked: set[Slot] = set()

    def came(self, value: Value, frames: Sequence[Any], *, over: bool, steps: Steps) -> None:
        """A value has come. `over`: its run has ended here, so that nobody will take it."""
        slot = (value.channel, value.run)
        if over:
            self._asked.discard(slot)
            steps.messages.append(Taken(self._name, *slot))
            return
        count = self._counts.get(slot[0], 0) + 1
        asked = sum(known[0] == slot[0] for known in self._asked)
        if slot in self._here or count > self._credits + asked:
            raise Overrun(f"channel {slot[0]}: {count} values where {self._credits} are granted")
        self._here[slot] = Arrived(value.head, frames)
        self._counts[slot[0]] = count
        waiter = self._waiting.get(slot)
        if waiter is not None:
            steps.wake.append(waiter)
        self._ask(slot[0], steps)

    def take(self, slot: Slot, steps: Steps) -> Arrived | None:
        """Take a value, if it is here."""
        arrived = self._here.pop(slot, None)
        if arrived is not None:
            self._counts[slot[0]] -= 1
            self._asked.discard(slot)
            steps.messages.append(Taken(self._name, *slot))
        return arrived

    def wait(self, slot: Slot, waiter: Waiter, steps: Steps) -> None:
        """Somebody waits for a value."""
        self._waiting[slot] = waiter
        self._ask(slot[0], steps)

    def unwait(self, slot: Slot) -> None:
        """Nobody waits for it any more."""
        self._waiting.pop(slot, None)

    def _ask(self, channel: int, steps: Steps) -> None:
        """Where the credits are all spent on other runs, ask by name for what is waited for."""
        if self._counts.get(channel, 0) < self._credits:
            return
        for slot in self._waiting:
            if slot[0] == channel and slot not in self._here and slot not in self._asked:
                self._asked.add(slot)
                steps.messages.append(Want(self._name, *slot))

    def forget(self, run: RunKey, steps: Steps) -> None:
        """A run is over here: throw away what has come for it."""
        for slot in [slot for slot in self._here if slot[1] == run]:
            self.take(slot, steps)
        self._asked = {slot for slot in self._asked if slot[1] != run}

    @property
    def lying(self) -> int:
        """How many values lie here untaken."""
        return len(self._here)
