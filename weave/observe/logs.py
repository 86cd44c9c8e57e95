"""Runs as log lines: silent until somebody wants them.

Where the application has configured structlog, lines go there, through its processors and at its level. Else they go to
the standard logger `weave`, which has a `NullHandler`. (An unconfigured structlog prints every debug line to standard
output; so it is left alone.) `run.*` are told at level info, `node.*` and `transfer.*` at debug.

Lines are made in the scribe's thread, in a copy of the context in which the run began: what the application has bound
there is in them. The user's own lines carry the run and the node because both are bound where nodes run, in
variables that structlog's `merge_contextvars` finds; for the standard library there is `ContextFilter`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Any

from weave.observe.recording import NODE, RUN
from weave.observe.rendering import Line
from weave.observe.scribe import Listener
from weave.spi.events import RunInfo

_standard = logging.getLogger("weave")


class ContextFilter(logging.Filter):
    """Puts `weave_run_id` and `weave_node` on standard log records: the run and the node that the code belongs to.

    Add it to a handler: `handler.addFilter(ContextFilter())`. Empty outside runs, and where nobody wants `run.*` lines.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Every record passes."""
        said = getattr(record, "weave_fields", None)  # one of weave's own, which are told when the node is over
        if said is None:
            said = {"weave_run_id": RUN.get(), "weave_node": NODE.get()}
        for name in ("weave_run_id", "weave_node"):
            value = said.get(name, ...)
            setattr(record, name, "" if value is ... else value)
        return True


class Logs(Listener):
    """The application's log. A line that it can't take is left out; the first such is reported."""

    def __init__(self) -> None:
        self._reported = False

    def heard(self, run: RunInfo, lines: Sequence[Line]) -> None:
        """Log those whose level is wanted."""
        try:
            logger = _application()
            debug = _enabled(logger, logging.DEBUG)
        except Exception as error:
            self._report(error)
            return
        for line in lines:
            info = line["event"].startswith("run.")
            if info or (debug and line["event"] != "node.ready"):
                try:
                    _log(logger, logging.INFO if info else logging.DEBUG, run, line)
                except Exception as error:
                    self._report(error)

    def _report(self, error: Exception) -> None:
        if not self._reported:
            self._reported = True
            _standard.warning("a line about a run could not be logged: %r", error, exc_info=error)


def _log(logger: Any, level: int, run: RunInfo, line: Line) -> None:
    said = {"weave_run_id": line["run"]}
    for key, value in line.items():
        if key not in ("event", "run", "time_ns", "unit"):
            said[_CALLED.get(key, key)] = value
    if "outputs" in said:
        said["outputs"] = {out["port"]: out["value"] for out in said["outputs"]}
    said["at_ms"] = (line["time_ns"] - run.time_ns) / 1e6
    if logger is not None:
        getattr(logger, "info" if level == logging.INFO else "debug")(line["event"], **said)
    elif _standard.isEnabledFor(level):
        text = " ".join(f"{key}={value}" for key, value in said.items())
        _standard.log(level, "%s %s", line["event"], text, extra={"weave_event": line["event"], "weave_fields": said})


# The standard library refuses `thread` as a field of one's own (structlog's `render_to_log_kwargs` would make it one).
_CALLED = {"node": "weave_node", "thread": "weave_thread"}

logs = Logs()
_known: tuple[Any, Any] = (None, None)  # the application's configuration, and the logger that it gave


def wanted() -> bool:
    """Whether somebody wants `run.*` lines. Asked at every run."""
    global _known
    structlog = sys.modules.get("structlog")
    if structlog is None or not structlog.is_configured():
        return _standard.isEnabledFor(logging.INFO)
    try:
        found = structlog.get_config()
        if found != _known[0]:
            _known = (found, _application())  # making a logger takes 10 µs
        return _enabled(_known[1], logging.INFO)
    except Exception:
        return True  # whoever is to log will find out, off the run's path


def _application() -> Any:
    """The logger of the application's structlog, `None` where it has none. As it is configured now."""
    structlog = sys.modules.get("structlog")
    if structlog is None or not structlog.is_configured():
        return None
    wrapper = structlog.get_config()["wrapper_class"]
    if isinstance(wrapper, type) and issubclass(wrapper, structlog.stdlib.AsyncBoundLogger):
        wrapper = structlog.stdlib.BoundLogger  # what it wraps: it wants a running loop, and the scribe has none
    return structlog.wrap_logger(None, wrapper_class=wrapper, logger_factory_args=("weave",)).bind()


def _enabled(logger: Any, level: int) -> bool:
    """Whether a logger passes that level on; it is asked where it can be."""
    if logger is None:
        return _standard.isEnabledFor(level)
    for name in ("is_enabled_for", "isEnabledFor"):
        if hasattr(type(logger), name):  # its type: the plain BoundLogger takes any attribute for a line to be logged
            try:
                return bool(getattr(logger, name)(level))
            except Exception:
                return True
    return True
