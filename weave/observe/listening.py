"""Who listens to a run: `WEAVE_TRACE`, the application's log, and listeners that are on everywhere."""

from __future__ import annotations

import os

from weave.observe.logs import logs, wanted
from weave.observe.recorder import Recorder
from weave.observe.scribe import Listener, scribe


def listening() -> tuple[Listener, ...]:
    """Those who hear of every run. Asked at each, and mostly nobody."""
    if wanted():
        return (*scribe.everywhere, logs)
    return scribe.everywhere


def binds(listeners: tuple[Listener, ...]) -> bool:
    """Whether the run and the node are to be bound for log lines of the user's own."""
    return logs in listeners


if os.environ.get("WEAVE_TRACE"):
    scribe.listen(Recorder(os.environ["WEAVE_TRACE"]))
