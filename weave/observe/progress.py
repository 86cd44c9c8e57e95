"""`Progress`: what runs do just now, on a terminal, by rich.

It is told off the runs' path, and drawn by a thread of its own, so that a node that computes for a minute has a clock
that goes. `with Progress():` it stands under what the program prints. Given in `RunOptions`, it comes with the first run
and goes when none has been under way for a moment; there it leaves `sys.stdout` alone, which it would have to swap at
moments that the program doesn't know of.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from weave.observe.recorder import rank_here
from weave.observe.recording import clock
from weave.observe.rendering import Line
from weave.observe.scribe import Listener
from weave.spi.events import RunInfo

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

EVERY = 0.1  # seconds between two drawings
AFTER_NS = (
    500_000_000  # a run has a row of its own when it has taken so long: those that are over at once would flicker
)
ROWS = 4
LINGERS = 5  # drawings without a run, before it goes


@dataclass
class _Run:
    since_ns: int
    units: int
    done: int = 0
    now: dict[int, str] = field(default_factory=dict)


class Progress(Listener):
    """Shows runs as they go: a bar for each that takes a while, with what computes in it, and how many are over.

    `with Progress():` shows every run of the process; `RunOptions(observers=[Progress()])` those of one graph. Shows
    nothing where its console is no terminal, in a forked process, and on every rank but the first.

    Args:
        console: where to draw; standard error, if not given.
        after: a run has a row of its own when it has taken so many seconds; rows of short ones would flicker.
        draws: whether it draws by itself. Else put `drawing()` into a display of your own: rich draws one at a time.

    Raises:
        ModuleNotFoundError: rich is not installed: `pip install 'weave-dataflow[progress]'`.
    """

    def __init__(self, console: Console | None = None, *, after: float = 0.5, draws: bool = True) -> None:
        try:
            from rich.console import Console
        except ImportError as error:
            raise ModuleNotFoundError(
                "progress is drawn by rich, which is not installed: pip install 'weave-dataflow[progress]'", name="rich"
            ) from error
        self._console = console if console is not None else Console(stderr=True)
        self._after_ns = int(after * 1e9)
        self._draws = draws
        self._process = os.getpid()
        # Whoever prints holds rich's lock and asks for `drawing`: so nothing of rich is called under the counts' own.
        self._counting = threading.Lock()
        self._showing = threading.RLock()  # of what follows
        self._entered = False
        self._over = False
        self._live: Live | None = None
        self._hidden = threading.Event()
        self._forget()

    def _forget(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._finished = self._failed = 0
        self._ends: deque[int] = deque(maxlen=100)  # the rate is that of the last hundred
        self._idle = 0

    def __enter__(self) -> Self:
        with self._showing:
            self._entered, self._over = True, False
            if self._draws and self._drawable():
                self._show()
        return super().__enter__()

    def _drawable(self) -> bool:
        return (
            self._console.is_terminal
            and not self._console.is_dumb_terminal
            and os.getpid() == self._process
            and rank_here() in (None, 0)
        )

    # --- what is told ---

    def heard(self, run: RunInfo, lines: Sequence[Line]) -> None:
        """Count."""
        if not self._drawable():
            return
        with self._counting:
            for line in lines:
                self._take(run, line)
        with self._showing:
            if self._draws and self._runs and self._live is None and not self._over:
                self._show()

    def _take(self, run: RunInfo, line: Line) -> None:
        event = line["event"]
        if event == "run.started":
            self._ends = self._ends or deque([line["time_ns"]], maxlen=100)
            self._runs[run.run] = _Run(line["time_ns"], len(run.plan.units))
        elif event == "run.finished":
            self._runs.pop(run.run, None)
            self._finished += 1
            self._ends.append(line["time_ns"])
            self._failed += line["status"] != "ok"
        elif run.run in self._runs:
            known = self._runs[run.run]
            if event == "node.started":
                known.now[line["unit"]] = line["node"]
            elif event in ("node.finished", "node.failed", "node.cancelled"):
                known.now.pop(line["unit"], None)
                known.done += event == "node.finished"

    def close(self) -> None:
        """Take it off the terminal."""
        with self._showing:
            self._entered, self._over = False, True
            self._hide()

    # --- what is drawn ---

    def _show(self) -> None:
        from rich.live import Live

        self._hidden.clear()
        self._live = Live(
            get_renderable=self.drawing,
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=self._entered,
            redirect_stderr=self._entered,
        )
        self._live.start()
        atexit.register(self.close)  # else the cursor stays hidden
        threading.Thread(target=self._draw, args=(self._live,), name="weave progress", daemon=True).start()

    def _hide(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()
            atexit.unregister(self.close)
        with self._counting:
            self._forget()
        self._hidden.set()

    def _draw(self, live: Live) -> None:
        while not self._hidden.wait(EVERY):
            with self._showing:
                if self._live is not live:
                    return
                self._idle = 0 if self._runs or self._entered else self._idle + 1
                try:
                    if self._idle > LINGERS:
                        self._hide()
                    else:
                        live.refresh()
                except Exception as error:  # a terminal that has gone
                    self._over, self._live = True, None
                    logging.getLogger("weave").warning("progress is shown no more: %r", error)
                    return

    def drawing(self, *, counts: bool = True) -> RenderableType:
        """What is under way, as it is drawn just now; `counts`: with how many are over."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        with self._counting:
            now = clock()
            late = [run for run in self._runs.values() if now - run.since_ns >= self._after_ns]
            rows = Table.grid(padding=(0, 2))
            for justify in ("left", "right", "right", "left"):
                rows.add_column(justify=justify, no_wrap=True, overflow="ellipsis")
            for run in late[:ROWS]:
                bar = ProgressBar(total=run.units, completed=run.done, width=20)
                took = f"{(now - run.since_ns) / 1e9:.1f} s"
                nodes = ", ".join(dict.fromkeys(run.now.values()))
                rows.add_row(bar, f"{run.done}/{run.units} nodes", took, Text(nodes))
            drawn = Table.grid()
            if late:
                drawn.add_row(rows)
            if counts and (self._finished or len(self._runs) > 1):
                drawn.add_row(Text(self._counts(now), no_wrap=True, overflow="ellipsis"))
            return drawn

    def _counts(self, now: int) -> str:
        said = []
        if self._finished:
            said.append(f"{self._finished} run{'' if self._finished == 1 else 's'} done")
        if self._failed:
            said.append(f"{self._failed} of them not ok")
        if self._runs:
            said.append(f"{len(self._runs)} {'' if self._finished else 'runs '}under way")
        if self._finished:
            took = max(now - self._ends[0], 1)
            said.append(f"{(len(self._ends) - 1) * 1e9 / took:.1f}/s")
        return ", ".join(said)
