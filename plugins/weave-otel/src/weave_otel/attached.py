"""A context that is current from here on, and is put back where it was made current, nowhere else.

A node's start and end are told in line, in the context that its code runs in, so what is attached at the start is what
the node's own spans nest under. The end comes in the same context nearly always: in a thread each node has a copy of
its own, an async node stays in its worker's task. Not so where a plain function hands back something to await, which is
awaited in another task. OpenTelemetry's `detach` logs an error there, for nothing: the context that the token belongs
to has gone with its thread. Rejected: comparing thread names, which says nothing of two tasks on one loop; comparing
the current context with what was attached, which would keep ours where the node left something attached itself.
"""

from __future__ import annotations

from contextvars import ContextVar

from opentelemetry import context
from opentelemetry.context import Context

_here: ContextVar[None] = ContextVar("weave_otel_here")


class Attached:
    """Makes a context current; `detach()` puts back what was before."""

    __slots__ = ("_mark", "_token")

    def __init__(self, current: Context) -> None:
        self._mark = _here.set(None)
        self._token = context.attach(current)

    def detach(self) -> None:
        """Put back what was current before, if this is where it was replaced."""
        try:
            _here.reset(self._mark)
        except ValueError:  # Python's own check that a token belongs to the current contextvars.Context
            return
        context.detach(self._token)
