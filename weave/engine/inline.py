"""The inline driver: the caller's thread fires one unit after another until none is left.

Ready units are taken by smallest topological index. In one thread that is the plan's order itself: when the unit at a
place is due, everything with a smaller index has ended, and its feeders are among those. So there is no queue and no
counting here, only a loop. No event loop, no thread, no recursion; works under any torch mode, inside a running loop and
in a notebook, and a node sets the caller's context variables as any function it calls would.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from weave.engine.firing import InlineFiring
from weave.engine.program import Bound
from weave.engine.run import Run, reduce
from weave.errors import StitchedModuleException
from weave.graph.args import InputArgs
from weave.graph.plan import Unit
from weave.graph.targets import Target


def drive(run: Run, resources: Mapping[Target, Any] | None = None) -> None:
    """Fire every unit of the run's program. What a node raises comes out as it is, with a note on where it happened."""
    index = 0
    try:
        for index, bound in enumerate(run.program.bound):
            if bound.function is not None:
                _call(run, index, bound)
            else:
                values, shared = run.take(bound.unit, bound.unit.entries)
                firing = InlineFiring(run, bound, values, resources)
                del values
                awaitable = bound.executor.fire(firing)
                if awaitable is not None:
                    _refuse(awaitable, bound.unit)
                run.ended(index, shared)
    except Exception as error:
        annotate(error, run, run.plan.units[index])
        raise


def _call(run: Run, index: int, bound: Bound) -> None:
    """A firing that is nothing but a call."""
    unit = bound.unit
    taken, shared = run.take(unit, unit.entries)
    function = bound.function(unit.target)  # type: ignore[misc]
    if bound.plain:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for value in taken:
            args += value.args
            if value.kwargs:
                kwargs.update(value.kwargs)
        del taken
    else:
        call = reduce(unit.entries, taken, InputArgs(), run.plan)
        args, kwargs = call.args, call.kwargs
    result = function(*args, **kwargs)
    if inspect.isawaitable(result):
        _refuse(result, unit)
    del args, kwargs
    for way in unit.exits:
        run.put(way, result)
    del result
    run.ended(index, shared)


def _refuse(awaitable: Any, unit: Unit) -> None:
    close = getattr(awaitable, "close", None)
    if close is not None:
        close()  # a coroutine that is dropped unawaited warns, much later and elsewhere
    raise StitchedModuleException(
        f"{unit.node!r} gave something to await, and a synchronous call can't await it: make it a plain function"
    )


def annotate(error: BaseException, run: Run, unit: Unit) -> None:
    """Note on an exception which node raised it, what fed the node, and in which run."""
    feeders = [f"{run.plan.source_text(e.slot)} -> {run.plan.text(e.port)}" for e in unit.entries[:8]]
    if len(unit.entries) > 8:
        feeders.append(f"and {len(unit.entries) - 8} more")
    fed = f", fed by {'; '.join(feeders)}" if feeders else ""
    note = f"weave: raised in node {unit.node!r}{fed} (run {run.id})"
    try:
        error.add_note(note)
    except Exception:  # an exception class may forbid it; the exception itself matters more than our note
        return
