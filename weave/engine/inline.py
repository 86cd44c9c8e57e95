"""The inline driver: the caller's thread fires one unit after another until none is left.

Ready units are taken by smallest topological index. In one thread that is the plan's order itself: when the unit at a
place is due, everything with a smaller index has ended, and its feeders are among those. So there is no queue and no
counting here, only a loop. No event loop, no thread, no recursion; works under any torch mode, inside a running loop
and in a notebook, and a node sets the caller's context variables as any function it calls would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from weave.device.versions import WITHOUT_TENSORS
from weave.engine.firing import InlineFiring
from weave.engine.run import EMPTY, Run, note
from weave.errors import StitchedModuleException
from weave.graph.args import InputArgs
from weave.graph.plan import Unit
from weave.graph.targets import Target


def drive(run: Run, resources: Mapping[Target, Any] | None = None) -> None:
    """Fire every unit of the run's program. What a node raises comes out as it is, with a note on where it happened."""
    program = run.program
    calls, fired = program.calls, run.fired
    index = -1
    try:
        for index, unit in enumerate(program.plan.units):
            call = calls[index]
            if call is not None:
                _call(run, unit, call)
                fired.append(index)
            else:
                values, shared = run.take(unit, unit.entries)
                firing = InlineFiring(run, index, values, resources)
                del values
                awaitable = program.bindings[index].executor.fire(firing)
                if awaitable is not None:
                    _refuse(awaitable, unit)
                fired.append(index)
                run.check(unit, shared)
    except Exception as error:
        annotate(error, run, program.plan.units[index])
        raise


def _call(run: Run, unit: Unit, function: Callable[..., Any]) -> None:
    """A firing that is nothing but a call: what `Run.take`, `reduce` and `Run.put` do, without the objects between.

    A function of its own, so that no value outlives its call in a local variable of the loop.
    """
    values, marks = run.values, run.marks
    args: list[Any] = []
    kwargs: dict[str, Any] | None = None
    shared: Any = None
    for edge in unit.entries:
        slot, adapter, crosses, _, _, _ = edge
        value = values[slot]
        if value is EMPTY:
            raise run.starved(unit, edge)
        values[slot] = EMPTY
        if marks[slot] is not None:
            shared = run.unmark(edge, shared)
        if adapter is not None:
            value = adapter(value)
        if isinstance(value, InputArgs):
            args += value.args
            if value.kwargs:
                kwargs = {**kwargs, **value.kwargs} if kwargs else value.kwargs
        elif crosses:
            args.append(value)
        else:
            raise run.no_arguments(edge, value)
    result = function(*args, **kwargs) if kwargs else function(*args)
    kind = type(result)
    if kind in WITHOUT_TENSORS:
        for way in unit.exits:
            if way.adapter is None:
                for slot in way.slots:
                    values[slot] = result
            else:
                run.put(way, result)
    else:
        if hasattr(kind, "__await__"):
            _refuse(result, unit)
        run.put_all(unit.exits, result)
    if shared:
        run.check(unit, shared)


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
    note(error, f"weave: raised in node {unit.node!r}{fed} (run {run.id})")
