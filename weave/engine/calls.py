"""A firing that is nothing but a call: what `Run.take`, `reduce` and `Run.put` do, without the objects between.

For units whose executor says `function(target)`, which is most of a large graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weave.device.versions import WITHOUT_TENSORS
from weave.engine.run import EMPTY, Run, reduce
from weave.graph.args import InputArgs
from weave.graph.plan import Unit


def plain_arguments(run: Run, ins: Sequence[int]) -> list[Any] | None:
    """Empty the slots of a call between plain stitches, where all values are plain ones (numbers, strings, `None`).

    Such values need neither marks nor joining. `None` where one is not that plain; then nothing has been touched.
    """
    values = run.values
    args: list[Any] = []
    for slot in ins:
        value = values[slot]
        if type(value) not in WITHOUT_TENSORS:
            for taken, back in zip(ins, args, strict=False):
                values[taken] = back
            return None
        values[slot] = EMPTY
        args.append(value)
    return args


def gather(run: Run, unit: Unit) -> tuple[list[Any], dict[str, Any], Any]:
    """Empty a unit's slots into positional and keyword arguments; also the marks that others wait on."""
    if any(edge.reducer is not None for edge in unit.entries):
        taken, shared = run.take(unit, unit.entries)
        call = reduce(unit.entries, taken, None, run.plan)
        return list(call.args), dict(call.kwargs), shared
    values, marks = run.values, run.marks
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    shared = None
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
                kwargs.update(value.kwargs)
        elif crosses:
            args.append(value)
        else:
            raise run.no_arguments(edge, value)
    return args, kwargs, shared


def spread(run: Run, unit: Unit, result: Any) -> Sequence[int]:
    """Hand a result to everything behind a unit's exits; returns the units that became ready, where somebody counts."""
    exits = unit.exits
    if type(result) not in WITHOUT_TENSORS or any(way.adapter is not None for way in exits):
        return run.put_all(exits, result)
    if len(exits) == 1:
        filled: Sequence[int] = exits[0].slots
    else:
        filled = [slot for way in exits for slot in way.slots]
    for slot in filled:
        run.values[slot] = result
    return run.count(filled)
