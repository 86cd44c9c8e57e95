"""How something is timed.

The machine is shared and its speed changes from second to second, so a time alone says little. Contenders take turns in
one process: each round times every one of them once, forwards in one round (A B C) and backwards in the next (C B A). The
ratio to the baseline is taken within a round, and the median over the rounds is what counts, with its quartiles.

What only computes is timed by the processor seconds of the process (all its threads), which leave out what other
processes take: on a machine with other work, half of a forward's ratios to itself are 25 % or more off by the wall clock
and 3 % by this one. What waits, or computes in several threads at once, is timed by the wall clock, and `--wall` takes
that for everything.

Python's collector is run before each round and is off during it, for everybody (`--gc` leaves it on): a full collection
takes as long as 100 000 nodes and falls on whoever happens to be timed.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeVar

T = TypeVar("T")
ClockName = Literal["cpu", "wall"]
CLOCKS: dict[ClockName, Callable[[], float]] = {"cpu": time.process_time, "wall": time.perf_counter}


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long to measure.

    Args:
        budget: seconds for one comparison, about.
        fewest: rounds at least, also for a contender that takes long.
        most: rounds at most.
        block: seconds that one turn should take; what is faster is called several times in a turn.
        collector: leave Python's collector on while timing.
        small: leave out the large sizes.
        wall: take the wall clock for everything.
        tick: told between two rounds which share of them is done.
    """

    budget: float = 3.5
    fewest: int = 6
    most: int = 300
    block: float = 0.004
    collector: bool = False
    small: bool = False
    wall: bool = False
    tick: Callable[[float], None] = field(default=lambda share: None, compare=False)

    def times(self, factor: float) -> Pace:
        """The same with another budget."""
        return replace(self, budget=self.budget * factor)

    def clock(self, wanted: ClockName) -> ClockName:
        """The clock to take."""
        return "wall" if self.wall else wanted

    def pick(self, full: T, small: T) -> T:
        """The sizes to take."""
        return small if self.small else full


def quick() -> Pace:
    """Two rounds of one call each, of small sizes: shows that it runs, and nothing about speed."""
    return Pace(budget=0.0, fewest=2, most=2, block=0.0, small=True)


class Timed(NamedTuple):
    """What a contender returns that holds the watch itself."""

    seconds: float
    result: Any = None


@dataclass(frozen=True)
class Contender:
    """Somebody who takes turns. `waits`: `call()` gives something to await."""

    name: str
    call: Callable[[], Any]
    waits: bool = False


class Spread(NamedTuple):
    """A median and its quartiles."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        if len(values) == 1:
            return cls(values[0], values[0], values[0], 1)
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high, len(values))

    def times(self, factor: float) -> Spread:
        return Spread(self.median * factor, self.low * factor, self.high * factor, self.count)


class Timings:
    """Seconds a call, by contender and round, by both clocks; what is asked for is by the comparison's own unless said."""

    def __init__(self, clock: ClockName) -> None:
        self.clock = clock
        self._seconds: dict[str, dict[int, dict[ClockName, float]]] = {}

    def note(self, name: str, number: int, seconds: dict[ClockName, float]) -> None:
        self._seconds.setdefault(name, {})[number] = seconds

    def seconds(self, name: str, clock: ClockName | None = None) -> Spread:
        return Spread.of([taken[clock or self.clock] for taken in self._seconds[name].values()])

    def ratio(self, name: str, baseline: str, clock: ClockName | None = None) -> Spread:
        by, base = clock or self.clock, self._seconds[baseline]
        return Spread.of([taken[by] / base[number][by] for number, taken in self._seconds[name].items()])

    def difference(self, name: str, baseline: str) -> Spread:
        """Seconds that one takes more than the other, within a round."""
        base = self._seconds[baseline]
        both = [(taken, base[number]) for number, taken in self._seconds[name].items() if number in base]
        return Spread.of([taken[self.clock] - other[self.clock] for taken, other in both])


async def measure(contenders: Sequence[Contender], pace: Pace, clock: ClockName = "cpu") -> Timings:
    """Time the contenders against each other. The first is the baseline, and the yardstick for what is slow.

    `clock` is the one that the work needs (see above). It awaits only where a contender does, so `finish` can drive it
    without a loop.
    """
    times, plan = [], []
    for contender in contenders:
        seconds, own_watch = await _warm(contender, pace)
        times.append(1 if own_watch or not pace.block else max(1, round(pace.block / seconds)))
        plan.append(seconds * times[-1])
    timings = Timings(pace.clock(clock))
    turns = list(schedule(plan, pace))
    due = time.perf_counter() + 1.5 * pace.budget
    with_collector = gc.isenabled()
    gc.collect()
    if not pace.collector:
        gc.freeze()  # what is there already need not be gone through before every round
    try:
        for number, turn in enumerate(turns):
            if number >= pace.fewest and number % 2 == 0 and time.perf_counter() > due:
                break  # the machine has become slower since it was planned
            gc.collect()
            if not pace.collector:
                gc.disable()
            for place in turn:
                timings.note(contenders[place].name, number, await _time(contenders[place], times[place]))
            if with_collector:
                gc.enable()
            pace.tick((number + 1) / len(turns))
    finally:
        gc.unfreeze()
        if with_collector:
            gc.enable()
    return timings


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits to its end, with no event loop anywhere near what it times."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    work.close()
    raise RuntimeError("it waits for something: give it an event loop")


def schedule(costs: Sequence[float], pace: Pace) -> Iterator[list[int]]:
    """Who takes a turn in each round, in which order, by what one turn of each costs.

    A contender fifty times as slow as the baseline would leave time for a handful of rounds. So it sits out most of them;
    those it takes part in are two after another, one forwards and one backwards.
    """
    slow = [cost > 8 * costs[0] for cost in costs]
    for_fast = pace.budget * (0.6 if any(slow) else 1.0)
    rounds = _between(for_fast / sum(c for c, s in zip(costs, slow, strict=True) if not s), pace.fewest, pace.most)
    pairs = (rounds + 1) // 2
    share = 0.4 * pace.budget / max(1, sum(slow)) / 2
    takes = [
        _between(share / c, min(pairs, (pace.fewest + 1) // 2), pairs) if s else pairs
        for c, s in zip(costs, slow, strict=True)
    ]
    for pair in range(pairs):
        turn = [i for i, taken in enumerate(takes) if pair * taken % pairs < taken]
        yield turn
        yield turn[::-1]


def _between(wanted: float, fewest: int, most: int) -> int:
    return max(fewest, min(most, int(wanted)))


async def _warm(contender: Contender, pace: Pace) -> tuple[float, bool]:
    """A few calls that don't count: how long the fastest took, and whether the contender holds the watch itself."""
    best, own_watch = 1e9, False
    for _ in range(3 if pace.block else 1):
        begin = time.perf_counter()
        result = contender.call()
        if contender.waits:
            result = await result
        best = min(best, time.perf_counter() - begin)
        own_watch = type(result) is Timed
        if best > 0.5:
            break
    return max(best, 1e-7), own_watch


async def _time(contender: Contender, times: int) -> dict[ClockName, float]:
    call, cpu_clock, wall_clock = contender.call, CLOCKS["cpu"], CLOCKS["wall"]
    result: Any = None
    wall, cpu = wall_clock(), cpu_clock()
    if contender.waits:
        for _ in range(times):
            result = await call()
    else:
        for _ in range(times):
            result = call()
    cpu, wall = cpu_clock() - cpu, wall_clock() - wall
    if type(result) is Timed:
        return {"cpu": result.seconds, "wall": result.seconds}
    return {"cpu": cpu / times, "wall": wall / times}
