"""The frontier: a run's state where units fire in any order, from several threads.

Beside a run's slots it counts, by unit, the values still to come. Whoever delivers a value counts down and hears which
units became ready: an application's loop, a forward's thread, a transport's thread. Hence the rules: the lock is held
for a few instructions, no user code runs under it, and nothing here blocks.

Ready units wait in two lanes: those that compute in worker threads, and those for the loop (async functions and what is
declared cheap). How many threads compute is counted here too, under the same lock, so that a unit can't become ready
just as the last thread goes home.

The inline driver needs none of this: in one thread the plan's own order says what is ready.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Any

from weave.device.versions import Mark
from weave.engine.program import THREAD, Program
from weave.engine.run import Run


class Frontier(Run):
    """One run on a plan: slots, counters and the units that are ready. Starts with the units that wait for nothing."""

    __slots__ = ("_alone", "_consumers", "_left", "_lock", "_most", "_starting", "computing", "lanes", "queues")

    def __init__(self, program: Program, args: tuple[Any, ...], kwargs: dict[str, Any], most: int = 1) -> None:
        super().__init__(program, args, kwargs)
        self._consumers = program.plan.consumers
        self.lanes = program.ordered if most == 1 else program.lanes
        self._left = self.plan.in_degrees()
        self._lock = threading.Lock()
        self._alone = program.alone
        self.queues: tuple[list[int], list[int]] = ([], [])  # heaps; filled in ascending order, which is one
        for index, left in enumerate(self._left):
            if not left:
                self.queues[self.lanes[index]].append(index)
        self._most = most
        self.computing = 0  # threads that compute, or are about to
        self._starting = 0  # of these, the ones that have not taken a unit yet

    def count(self, slots: Sequence[int]) -> list[int]:
        """Count filled slots; returns the units that became ready.

        They are in nobody's queue yet: give them to `queue`, or fire them.
        """
        became = []
        with self._lock:
            for slot in slots:
                consumer = self._consumers[slot]
                if consumer >= 0:
                    self._left[consumer] -= 1
                    if not self._left[consumer]:
                        became.append(consumer)
        return became

    def hand_on(self, outs: Sequence[tuple[int, int]], value: Any, lane: int) -> int | None:
        """`fill`, `count` and `queue` in one, for a value that holds no tensor and the slots of a `Step`.

        Returns one unit of that lane for the feeder's worker to go on with, the smallest that became ready.
        """
        with self._lock:
            return self.hand_on_alone(outs, value, lane)

    def hand_on_alone(self, outs: Sequence[tuple[int, int]], value: Any, lane: int) -> int | None:
        """`hand_on` where nobody else takes part in the run (`Program.alone`): the lock costs as much as all the rest."""
        values, left = self.values, self._left
        kept = None
        for slot, consumer in outs:
            values[slot] = value
            if consumer >= 0:
                rest = left[consumer] = left[consumer] - 1
                if not rest:
                    if self.lanes[consumer] != lane:
                        heappush(self.queues[1 - lane], consumer)
                    elif kept is None:
                        kept = consumer
                    else:
                        heappush(self.queues[lane], max(kept, consumer))
                        kept = min(kept, consumer)
        return kept

    def others_wait(self, marked: Mark) -> bool:
        """As in any run, counted under the lock."""
        with self._lock:
            return super().others_wait(marked)

    def to_report(self, marked: Mark) -> bool:
        """As in any run, under the lock."""
        with self._lock:
            return super().to_report(marked)

    def queue(self, units: Iterable[int]) -> None:
        """Let ready units wait for whoever comes."""
        with self._lock:
            for index in units:
                heappush(self.queues[self.lanes[index]], index)

    def next(self, lane: int) -> int | None:
        """Take the ready unit with the smallest topological index off a lane; `None` where none is ready."""
        ready = self.queues[lane]
        if self._alone:
            return heappop(ready) if ready else None
        with self._lock:
            return heappop(ready) if ready else None

    def next_or_leave(self, *, first: bool) -> int | None:
        """`next(THREAD)` for a computing thread, which is one less where there is none."""
        with self._lock:
            if first:
                self._starting -= 1
            if self.queues[THREAD]:
                return heappop(self.queues[THREAD])
            self.computing -= 1
            return None

    def leave(self) -> None:
        """A thread stops computing though units may be ready: the run is being stopped."""
        with self._lock:
            self.computing -= 1

    def wanted(self) -> int:
        """How many more threads should start, for units that none of those about to come will take."""
        with self._lock:
            more = min(len(self.queues[THREAD]) - self._starting, self._most - self.computing)
            if more > 0:
                self.computing += more
                self._starting += more
                return more
            return 0

    def ready(self, lane: int) -> int:
        """How many units wait in a lane."""
        return len(self.queues[lane])

    def waiting(self) -> list[int]:
        """Units that still wait for a value."""
        with self._lock:
            return [index for index, left in enumerate(self._left) if left] if any(self._left) else []
