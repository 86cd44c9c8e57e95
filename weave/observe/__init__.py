"""Seeing a run: what it did, where the time went, what waited for what.

Recorder     writes runs to a JSONL file, which `weave trace` reads; `WEAVE_TRACE=run.jsonl` makes one
Listener     hears of runs off their path: what a recorder is
Progress     shows runs on a terminal as they go
ContextFilter, flush, EVENTS
read_trace, figures
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "ContextFilter": "weave.observe.logs",
    "EVENTS": "weave.observe.events",
    "Figures": "weave.observe.figures",
    "Listener": "weave.observe.scribe",
    "Progress": "weave.observe.progress",
    "Recorder": "weave.observe.recorder",
    "Trace": "weave.observe.trace",
    "flush": "weave.observe.scribe",
    "read_trace": "weave.observe.trace",
}

__all__ = [*_HOME]

if TYPE_CHECKING:
    from weave.observe.events import EVENTS as EVENTS
    from weave.observe.figures import Figures as Figures
    from weave.observe.logs import ContextFilter as ContextFilter
    from weave.observe.progress import Progress as Progress
    from weave.observe.recorder import Recorder as Recorder
    from weave.observe.scribe import Listener as Listener
    from weave.observe.scribe import flush as flush
    from weave.observe.trace import Trace as Trace
    from weave.observe.trace import read_trace as read_trace


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'weave.observe' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
