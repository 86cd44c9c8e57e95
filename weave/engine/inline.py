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
from weave.engine.calls import gather, plain_arguments, spread
from weave.engine.firing import InlineFiring
from weave.engine.program import Step
from weave.engine.run import Run, note
from weave.errors import StitchedModuleException
from weave.graph.plan import Unit
from weave.graph.targets import Target


def drive(run: Run, resources: Mapping[Target, Any] | None = None) -> None:
    """Fire every unit of the run's program. What a node raises comes out as it is, with a note on where it happened."""
    program = run.program
    units, fired, steps = program.plan.units, run.fired, program.steps
    index = -1
    try:
        for index, call in enumerate(run.calls()):
            step = steps[index]
            if call is None:
                _fire(run, index, units[index], resources)
            elif step is None or not _call_plainly(run, units[index], call, step):
                _call(run, units[index], call)
            fired.append(index)
    except Exception as error:
        annotate(error, run, units[index])
        raise


def _fire(run: Run, index: int, unit: Unit, resources: Mapping[Target, Any] | None) -> None:
    values, shared = run.take(unit, unit.entries)
    firing = InlineFiring(run, index, values, resources)
    del values
    awaitable = run.program.bindings[index].executor.fire(firing)
    if awaitable is not None:
        _refuse(awaitable, unit)
    run.check(unit, shared)


def _call_plainly(run: Run, unit: Unit, function: Callable[..., Any], step: Step) -> bool:
    """A call between plain stitches of plain values; `False` where one is not that plain, then nothing has been touched."""
    ins, outs = step
    args = plain_arguments(run, ins)
    if args is None:
        return False
    result = function(*args)
    if type(result) in WITHOUT_TENSORS:
        values = run.values
        for slot, _ in outs:
            values[slot] = result
    else:
        if hasattr(type(result), "__await__"):
            _refuse(result, unit)
        spread(run, unit, result)
    return True


def _call(run: Run, unit: Unit, function: Callable[..., Any]) -> None:
    """A firing that is nothing but a call. A function of its own, so that no value outlives its call in a local variable."""
    args, kwargs, shared = gather(run, unit)
    result = function(*args, **kwargs)
    if hasattr(type(result), "__await__"):
        _refuse(result, unit)
    spread(run, unit, result)
    if shared:
        run.check(unit, shared)


def _refuse(awaitable: Any, unit: Unit) -> None:
    close = getattr(awaitable, "close", None)
    if close is not None:
        close()  # a coroutine that is dropped unawaited warns, much later and elsewhere
    raise StitchedModuleException(
        f"{unit.node!r} gave something to await, and a synchronous call can't await it: declare the function `async def`, "
        "`await stitched.run(...)`, or make it a plain function"
    )


def annotate(error: BaseException, run: Run, unit: Unit) -> None:
    """Note on an exception which node raised it, what fed the node, and in which run."""
    feeders = [f"{run.plan.source_text(e.slot)} -> {run.plan.text(e.port)}" for e in unit.entries[:8]]
    if len(unit.entries) > 8:
        feeders.append(f"and {len(unit.entries) - 8} more")
    fed = f", fed by {'; '.join(feeders)}" if feeders else ""
    note(error, f"weave: raised in node {unit.node!r}{fed} (run {run.id})")
