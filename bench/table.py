"""What is shown: the table, and a bar while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.rows import Row

# Where the output is no terminal there is no width to fit into.
_WIDE = 240
_STYLES = {"ok": "green", "missed": "bold red", "missing": "yellow", "broken": "yellow", "unequal": "bold red"}


def show(rows: Sequence[Row], about: Mapping[str, Any], stream: TextIO) -> None:
    """Print everything."""
    console = Console(file=stream, highlight=False, width=None if stream.isatty() else _WIDE)
    versions = ", ".join(f"{name} {there or 'not installed'}" for name, there in about["versions"].items())
    console.print(f"Python {about['python']}, {versions}", markup=False)
    console.print(
        f"{about['cores']} cores, torch on {about['torch_threads']} thread; collector {about['collector']}; times are processor "
        f"seconds unless they say wall; a million "
        f"additions take {about['million_additions_ms']} ms"
        + ("; quick: says nothing about speed" if about["quick"] else ""),
        markup=False,
    )
    table = Table(box=None, pad_edge=False)
    for name in ("what", "by", "ratio", "quartiles", "time", "at most", "", "note"):
        table.add_column(name, justify="right" if name in ("ratio", "quartiles", "time", "at most") else "left")
    table.columns[0].max_width, table.columns[-1].max_width = 72, 72
    before = None
    for row in rows:
        if before is not None and row.what != before:
            table.add_section()
        what = "" if row.what == before else row.what
        before = row.what
        # Text, not strings: a message in square brackets is no markup.
        cells = (what, row.peer, figure(row), quartiles(row), duration(row), at_most(row), row.status, row.note)
        styled = [Text(cell) for cell in cells]
        styled[6].stylize(_STYLES.get(row.status, ""))
        table.add_row(*styled)
    console.print(table)
    aimed = [row for row in rows if row.status in ("ok", "missed")]
    missed = [row for row in aimed if row.status == "missed"]
    console.print(f"{len(aimed)} targets, {len(missed)} missed")


def figure(row: Row) -> str:
    if row.value is None:
        return ""
    return f"{_short(row.value)} ×" if row.unit == "x" else f"{_short(row.value)} {row.unit}"


def at_most(row: Row) -> str:
    return "" if row.target is None else f"{row.target:g} ×" if row.unit == "x" else f"{row.target:g} {row.unit}"


def quartiles(row: Row) -> str:
    if row.low is None or row.high is None or row.rounds < 2 or row.status == "baseline":
        return ""
    return f"{_short(row.low)} … {_short(row.high)}"


def duration(row: Row) -> str:
    """The time in a unit that suits it."""
    if row.seconds is None:
        return ""
    wall = ", wall" if row.clock == "wall" else ""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if row.seconds >= size:
            return f"{_short(row.seconds / size)} {unit} a {row.each}{wall}"
    return f"{row.seconds * 1e9:.0f} ns a {row.each}{wall}"


def _short(number: float) -> str:
    """Three decimals for what is about 1, fewer for what is larger."""
    return f"{number:.3f}" if number < 10 else f"{number:.1f}" if number < 100 else f"{number:,.0f}"


@contextmanager
def progress(stream: TextIO, total: int) -> Iterator[Callable[[float, str], None]]:
    """A bar on a terminal, and nothing elsewhere. Called with how many experiments are done and the name of the next.

    It is drawn only when it is called, between two turns: rich's own thread would draw while something is timed.
    """
    if not stream.isatty():
        yield lambda done, title: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(file=stream)
    columns = (
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as bars:
        task = bars.add_task("", total=total)
        drawn = 0.0

        def tell(done: float, title: str) -> None:
            nonlocal drawn
            if time.monotonic() - drawn > 0.3:
                drawn = time.monotonic()
                bars.update(task, completed=done, description=title, refresh=True)

        yield tell
