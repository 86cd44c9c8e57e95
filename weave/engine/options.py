"""`RunOptions`: how a graph is run. Given to `knot(options=...)`, changed by `stitched.with_options(...)`.

They can't be arguments of a call, because every keyword of a call goes to the modules.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from weave.observe.scribe import Listener
from weave.spi.events import Observer


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a graph is run.

    Args:
        max_workers: how many modules and plain functions compute at once under `run` (async functions, which mostly
            wait, are not counted). `None`: the number of cores this process may use. `1` computes in the order of a
            synchronous call, hence with the same random numbers.
        timeout: seconds for one `run`; then it is cancelled and raises `TimeoutError`. `None`: no limit. A synchronous
            call of a synchronous graph can't be interrupted and has none.
        observers: hear of every run's events, beside those that plugins bring: an `Observer` in line, a `Listener`
            such as a `weave.observe.Recorder` off the run's path.
        run_key: which run this is, on all ranks of a graph that reaches others. Needed only where such runs overlap
            outside a stream; then every rank gives each the same key.
    """

    max_workers: int | None = None
    timeout: float | None = None
    observers: tuple[Observer | Listener, ...] = ()
    run_key: int | str | None = None
    listeners: tuple[Listener, ...] = field(init=False, repr=False, compare=False, default=())
    in_line: tuple[Observer, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        if self.max_workers is not None and self.max_workers < 1:
            raise ValueError(f"max_workers={self.max_workers}: at least one must compute; None takes one for each core")
        if not isinstance(self.observers, Iterable):
            raise TypeError(
                f"observers takes several: observers=({type(self.observers).__name__}(...),), not one by itself"
            )
        object.__setattr__(self, "observers", tuple(self.observers))
        for observer in self.observers:
            if not isinstance(observer, Observer | Listener):
                raise TypeError(
                    "observers takes objects of a subclass of weave.plugins.Observer or weave.observe.Listener, "
                    f"not {observer!r}" + (": call the class" if isinstance(observer, type) else "")
                )
        # Told apart once, not at every run.
        object.__setattr__(self, "listeners", tuple(o for o in self.observers if isinstance(o, Listener)))
        object.__setattr__(self, "in_line", tuple(o for o in self.observers if isinstance(o, Observer)))
        if self.timeout is not None and self.timeout < 0:
            raise ValueError(f"timeout={self.timeout}: seconds from 0 on, or None for no limit")

    @property
    def workers(self) -> int:
        """How many compute at once."""
        if self.max_workers is not None:
            return self.max_workers
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
