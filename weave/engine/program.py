"""A plan bound to what computes it: each unit's executor, and what the knot prepared for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from weave.graph.plan import InPort, OutPort, Plan, Unit, ports_in, ports_out
from weave.graph.targets import Target
from weave.spi.executor import Executor
from weave.spi.records import TargetType


class Bound(NamedTuple):
    """A unit ready to fire. `function` is the executor's, where a firing is nothing but a call."""

    unit: Unit
    executor: Executor
    function: Callable[[Target], Callable[..., Any]] | None
    plain: bool  # every entry has the default reducer, so arguments can be put together without an InputArgs
    prepared: Any
    outputs: tuple[OutPort, ...]


class Prepared(NamedTuple):
    """What a target type's `prepare` is given."""

    target: Target
    node: str
    inputs: tuple[InPort, ...]
    outputs: tuple[OutPort, ...]
    early_exit: bool
    cache_predicate: Callable[[str, Any], bool] | None


class Program(NamedTuple):
    """What drivers run."""

    plan: Plan
    bound: tuple[Bound, ...]
    ignore_extra_overrides: bool


def bind(
    plan: Plan,
    record_of: Callable[[Target], TargetType],
    *,
    early_exit: bool,
    cache_predicate: Callable[[str, Any], bool] | None,
    ignore_extra_overrides: bool,
) -> Program:
    """Bind a plan to its executors. Target types check their ports here and raise a `KnotException`."""
    bound = []
    for unit in plan.units:
        record = record_of(unit.target)
        executor = record.executor
        assert executor is not None, f"{record.name} has units but no executor"
        function = getattr(executor, "function", None)
        prepared: Any = None
        outputs: tuple[OutPort, ...] = ()
        if function is None or record.prepare is not None:
            outputs = ports_out(unit.exits)
            if record.prepare is not None:
                prepared = record.prepare(
                    Prepared(unit.target, unit.node, ports_in(unit.entries), outputs, early_exit, cache_predicate)
                )
        plain = all(edge.reducer is None for edge in unit.entries)
        bound.append(Bound(unit, executor, function, plain, prepared, outputs))
    return Program(plan, tuple(bound), ignore_extra_overrides)
