"""The frontier: a run's state where units fire in any order, from several threads.

Beside a run's slots it counts, by unit, the values still to come. Whoever delivers a value counts down and hears which
units became ready: an application's loop, a forward's thread, a transport's thread. Hence the rules: the lock is held
for a few instructions, no user code runs under it, and nothing here blocks.

The inline driver needs none of this: in one thread the plan's own order says what is ready.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Any

from weave.engine.program import Program
from weave.engine.run import Run
from weave.graph.plan import Exit


class Frontier(Run):
    """One run on a plan: slots, counters and the units that are ready. Starts with the units that wait for nothing."""

    __slots__ = ("_consumers", "_left", "_lock", "_ready")

    def __init__(self, program: Program, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__(program, args, kwargs)
        self._consumers = program.plan.consumers
        self._left = self.plan.in_degrees()
        self._lock = threading.Lock()
        self._ready = [index for index, left in enumerate(self._left) if not left]  # sorted, hence a heap

    def put(self, way: Exit, value: Any) -> Sequence[int]:
        """Adapt a value at its source, fill the slots behind it, count down. Returns the units that became ready."""
        super().put(way, value)
        return self.count(way.slots)

    def count(self, slots: Iterable[int]) -> list[int]:
        """Count filled slots; returns the units that became ready, which are in the queue by then."""
        became = []
        with self._lock:
            for slot in slots:
                consumer = self._consumers[slot]
                if consumer >= 0:
                    self._left[consumer] -= 1
                    if not self._left[consumer]:
                        heappush(self._ready, consumer)
                        became.append(consumer)
        return became

    def next(self) -> int | None:
        """Take the ready unit with the smallest topological index off the queue; `None` where none is ready."""
        with self._lock:
            return heappop(self._ready) if self._ready else None

    def waiting(self) -> list[int]:
        """Units that still wait for a value."""
        with self._lock:
            return [index for index, left in enumerate(self._left) if left]
