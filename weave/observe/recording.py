"""A run's recording: what it says of itself, raw, as cheap as it can be made.

Entries are appended from any thread; a deque's append is atomic. Turning them into events is done elsewhere (`Scribe`),
so an entry holds what an event needs and nothing of the run: no value, no exception, whose lives it would lengthen.

An entry is one of
- an `int`, a tick of the inline driver: units fire one after another in the plan's order there, so the time between two
  says it all, at one reading of the clock a node. The first is the start of unit 0, the next its end and unit 1's start;
- a tuple that begins with one of the tags below.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import Context, ContextVar
from operator import itemgetter
from threading import current_thread
from typing import Any

from weave.spi.events import RunInfo

STARTED = 0  # unit, time_ns, thread's ident
FINISHED = 1  # unit, time_ns, awaited, facts of what it returned or None
GIVEN = 2  # exit, time_ns, facts: a value that a unit handed on while it went on
RAISED = 3  # unit, time_ns, awaited, "failed" or "cancelled", type of the error, its text
EVENT = 4  # name, time_ns, a dict of fields: an event that is what it is
ENDED = 5  # time_ns, status, type of the error, its text

clock = time.perf_counter_ns

# Found by structlog's `merge_contextvars`, which takes every variable whose name begins so; `...` is its word for unset.
RUN: ContextVar[Any] = ContextVar("structlog_weave_run_id", default=...)
NODE: ContextVar[Any] = ContextVar("structlog_weave_node", default=...)


class Recording:
    """What one run says, as it goes.

    `bind`: whether `RUN` and `NODE` are set round user code; `ticks`: whether the inline driver's calls tick; `context`:
    the caller's, for loggers; `rendering`: the scribe's.
    """

    __slots__ = ("append", "bind", "context", "entries", "info", "rendering", "thread", "ticks")

    def __init__(self, info: RunInfo, *, bind: bool) -> None:
        self.info = info
        self.bind = bind
        self.ticks = False
        self.context: Context | None = None
        self.entries: deque[Any] = deque()
        self.append: Callable[[Any], None] = self.entries.append
        self.thread = current_thread().name
        self.rendering: Any = None

    def ticking(self, calls: Iterable[Any]) -> Iterator[Any]:
        """Calls, with a tick before each and one after the last.

        Made of iterators that run in C: a generator of ours costs as much again as the clock.
        """
        ticks = map(self.append, iter(clock, None))  # the clock is read when zip asks, before it asks for the call
        if self.bind:
            names = [unit.node for unit in self.info.plan.units]
            return map(itemgetter(2), zip(ticks, map(NODE.set, names), calls, strict=False))
        return map(itemgetter(1), zip(ticks, calls, strict=False))


def said(error: BaseException) -> tuple[str, str]:
    """An exception's type and text, as events have them."""
    return type(error).__qualname__, text_of(error)[:500]


def text_of(error: BaseException) -> str:
    """An exception's text; its own `__str__` may raise."""
    try:
        return str(error)
    except Exception:
        return ""
