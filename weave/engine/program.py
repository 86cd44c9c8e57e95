"""A plan bound to what computes it: each unit's executor, and what the knot prepared for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from weave.errors import PluginException
from weave.graph.plan import InPort, OutPort, Plan, ports_in, ports_out
from weave.graph.targets import Target
from weave.spi.executor import Executor
from weave.spi.records import TargetType

# Lanes: where a unit is fired under `run`.
THREAD: Final = 0
LOOP: Final = 1


class Binding(NamedTuple):
    """A unit's executor and what it needs. Units that are nothing but a call share one."""

    executor: Executor
    prepared: Any = None
    outputs: tuple[OutPort, ...] = ()


class Prepared(NamedTuple):
    """What a target type's `prepare` is given."""

    target: Target
    node: str
    inputs: tuple[InPort, ...]
    outputs: tuple[OutPort, ...]
    early_exit: bool
    cache_predicate: Callable[[str, Any], bool] | None


class Program(NamedTuple):
    """What drivers run. By unit: its binding; what to call, where a firing is a call with all reducers the default; its lane.

    `awaits`: some unit can't be fired without a loop.
    """

    plan: Plan
    bindings: tuple[Binding, ...]
    calls: tuple[Callable[..., Any] | None, ...]
    lanes: bytes
    adapting: bytes  # whether an entry or an exit has an adapter
    easy: bytes  # whether it is a call between plain stitches: from outputs, no adapter, no reducer
    awaits: bool


def bind(
    plan: Plan,
    record_of: Callable[[Target], TargetType],
    *,
    early_exit: bool,
    cache_predicate: Callable[[str, Any], bool] | None,
) -> Program:
    """Bind a plan to its executors. Target types check their ports here and raise a `KnotException`."""
    bindings: list[Binding] = []
    calls: list[Callable[..., Any] | None] = []
    lanes, adapting, easy = bytearray(), bytearray(), bytearray()
    awaits = False
    shared: dict[int, Binding] = {}
    for unit in plan.units:
        record = record_of(unit.target)
        executor = record.executor
        if executor is None:
            raise PluginException(f"the target type {record.name!r} has no executor", name=record.name)
        lane = _lane(executor, unit.target)
        lanes.append(THREAD if lane == "thread" else LOOP)
        awaits = awaits or lane == "await"
        ends: tuple[Any, ...] = (*unit.entries, *unit.exits)
        adapting.append(any(end.adapter is not None for end in ends))
        easy.append(not adapting[-1] and all(edge.crosses for edge in unit.entries))
        function = getattr(executor, "function", None)
        if function is not None and record.prepare is None and all(edge.reducer is None for edge in unit.entries):
            binding = shared.get(id(executor))
            if binding is None:
                binding = shared[id(executor)] = Binding(executor)
            bindings.append(binding)
            calls.append(function(unit.target))
            continue
        outputs = ports_out(unit.exits)
        prepared = None
        if record.prepare is not None:
            inputs = ports_in(unit.entries)
            prepared = record.prepare(Prepared(unit.target, unit.node, inputs, outputs, early_exit, cache_predicate))
        bindings.append(Binding(executor, prepared, outputs))
        calls.append(None)
    return Program(plan, tuple(bindings), tuple(calls), bytes(lanes), bytes(adapting), bytes(easy), awaits)


def _lane(executor: Executor, target: Target) -> str:
    if inspect.iscoroutinefunction(executor.fire):
        return "await"
    lane_of = getattr(executor, "lane", None)
    return "thread" if lane_of is None else str(lane_of(target))
