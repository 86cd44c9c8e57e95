"""What a result is, and its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from bench.pairing import ClockName, Spread

Status = Literal["baseline", "measured", "ok", "missed", "missing", "broken", "unequal", "not run"]

# weave itself in one of these is a failure of the whole; in a peer it is only something to know.
UNMEASURED: tuple[Status, ...] = ("missing", "broken", "unequal", "not run")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the table.

    Args:
        section: "passages", "engine" or "events".
        what: what was done; the rows of one comparison share it.
        peer: by whom.
        status: "ok" or "missed" where there is a target. "missing": not installed. "broken": it raised. "unequal": it
            gave another result than the baseline, so it was not timed. "not run": `note` says why.
        value: the figure, in `unit`; "x" is a ratio to the baseline, the median over the rounds.
        low, high: its quartiles.
        target: what the figure should be at most.
        seconds: the median time, for each `each` ("run" or "node").
        clock: "cpu" or "wall", where something was timed.
        rounds: how many rounds it took part in.
        checked: whether its result was compared with the baseline's before it was timed.
        note: why not; or what else there is to know.
    """

    section: str
    what: str
    peer: str
    status: Status
    value: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str = "x"
    target: float | None = None
    seconds: float | None = None
    each: str = "run"
    clock: ClockName | None = None
    rounds: int = 0
    checked: bool = False
    note: str = ""


def judged(spread: Spread, target: float | None) -> dict[str, Any]:
    """The fields of a row that hold a figure and whether it is good enough."""
    status: Status = "measured" if target is None else "ok" if spread.median <= target else "missed"
    return {
        "status": status,
        "value": spread.median,
        "low": spread.low,
        "high": spread.high,
        "rounds": spread.count,
        "target": target,
    }


def as_document(rows: Sequence[Row], about: Mapping[str, Any]) -> dict[str, Any]:
    """Everything, for a machine."""
    return {"format": 1, "about": dict(about), "rows": [asdict(row) for row in rows]}


def failed(rows: Sequence[Row]) -> list[Row]:
    """The rows in which weave, or the measuring itself, did not get as far as a figure."""
    return [row for row in rows if row.status in UNMEASURED and row.peer.split()[0] in ("weave", "bench")]
