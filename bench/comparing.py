"""A comparison: build each contender, see that all of them give the same, time them in turns, make rows."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.pairing import ClockName, Contender, Pace, Timings, finish, measure
from bench.rows import Row, Status, judged

Call = Callable[[], Any]


@dataclass(frozen=True)
class Experiment:
    """A few rows that are measured together."""

    title: str
    run: Callable[[Pace], list[Row]]


@dataclass(frozen=True)
class Entry:
    """A contender before it is built.

    Args:
        peer: its name.
        make: builds it, importing what it needs; returns what is called and timed.
        proof: returns what is compared with the baseline's proof; `None`: what the timed call returns.
        target: what its ratio to the baseline should be at most.
        not_run: why it isn't even tried here.
        when_unequal: what is known about it where its result is another.
    """

    peer: str
    make: Callable[[], Call]
    proof: Callable[[], Any] | None = None
    target: float | None = None
    not_run: str = ""
    when_unequal: str = "its result differs from the baseline's"


@dataclass(frozen=True)
class Compared:
    """The rows, and the timings for whoever wants to make more of them."""

    rows: list[Row]
    timings: Timings
    timed: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What the rows have in common.

    Args:
        section, what: see `Row`.
        same: whether two proofs are equal.
        clock: the one that the work needs (see `pairing`).
        per: into how many pieces a time is divided, each called `each`.
        again: the baseline takes part twice, and its ratio to itself is the noise floor.
    """

    section: str
    what: str
    same: Callable[[Any, Any], bool] = operator.eq
    clock: ClockName = "cpu"
    per: int = 1
    each: str = "run"
    again: bool = True

    def run(self, entries: Sequence[Entry], pace: Pace) -> Compared:
        """Compare functions that wait for nothing."""
        return finish(self.run_async(entries, pace))

    async def run_async(self, entries: Sequence[Entry], pace: Pace) -> Compared:
        """Compare. The first entry is the baseline; where it fails there is nothing to compare with, so it raises."""
        contenders: list[Contender] = []
        expected: Any = None
        unmeasured: dict[str, Row] = {}
        for entry in entries:
            try:
                if entry.not_run:
                    unmeasured[entry.peer] = self._without(entry, "not run", entry.not_run)
                    continue
                call = entry.make()
                waits, got = await _ask(call)
                if entry.proof is not None:
                    got = (await _ask(entry.proof))[1]
                if not contenders:
                    expected = got
                elif not self.same(expected, got):
                    unmeasured[entry.peer] = self._without(entry, "unequal", entry.when_unequal)
                    continue
                contenders.append(Contender(entry.peer, call, waits))
            except Exception as error:
                if not contenders:
                    raise
                status: Status = "missing" if isinstance(error, ImportError) else "broken"
                unmeasured[entry.peer] = self._without(entry, status, told(error))
        baseline = contenders[0]
        if self.again:
            contenders.insert(1, Contender(f"{baseline.name}, again", baseline.call, baseline.waits))
        timings = await measure(contenders, pace, self.clock)
        targets = {entry.peer: entry.target for entry in entries}
        clock = pace.clock(self.clock)
        rows = {c.name: self._row(c.name, baseline.name, timings, targets.get(c.name), clock) for c in contenders}
        order = [contenders[0].name, *([contenders[1].name] if self.again else []), *(e.peer for e in entries[1:])]
        return Compared(
            [rows.get(name) or unmeasured[name] for name in order], timings, tuple(c.name for c in contenders)
        )

    def _row(self, name: str, baseline: str, timings: Timings, target: float | None, clock: ClockName) -> Row:
        figures = judged(timings.ratio(name, baseline), target)
        if name == baseline:
            figures["status"] = "baseline"
        note = "the noise floor" if name == f"{baseline}, again" else ""
        seconds = timings.seconds(name).median / self.per
        return self.row(name, seconds=seconds, clock=clock, checked=True, note=note, **figures)

    def _without(self, entry: Entry, status: Status, why: str) -> Row:
        return self.row(entry.peer, status=status, target=entry.target, note=why)

    def row(self, peer: str, **fields: Any) -> Row:
        """A row of this comparison."""
        return Row(section=self.section, what=self.what, peer=peer, each=self.each, **fields)


async def _ask(call: Call) -> tuple[bool, Any]:
    """Call it; whether the result was to be awaited, and the result."""
    got = call()
    if inspect.isawaitable(got):
        return True, await got
    return False, got


def told(error: BaseException) -> str:
    """An exception in one line."""
    text = (str(error).strip().splitlines() or [""])[0]
    line = text if isinstance(error, ImportError) and text else f"{type(error).__name__}: {text}".removesuffix(": ")
    return line if len(line) <= 120 else f"{line[:119]}…"
