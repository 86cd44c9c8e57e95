"""A plan bound to what computes it: each unit's executor, and what the knot prepared for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
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


class Step(NamedTuple):
    """A call between plain stitches: the slots of its arguments; the slots of its result, each with the unit behind it or -1."""

    ins: tuple[int, ...]
    outs: tuple[tuple[int, int], ...]


class Program(NamedTuple):
    """What drivers run. By unit: its binding; what to call, where a firing is nothing but a call; its lane.

    `steps` is a faster form of the easy units, made by the first run: of a plan that only is drawn, nobody needs it.
    `awaits`: some unit can't be fired without a loop. `alone`: no other thread than the loop's takes any part in a run.
    """

    plan: Plan
    bindings: tuple[Binding, ...]
    calls: tuple[Callable[..., Any] | None, ...]
    lanes: bytes
    ordered: bytes  # lanes where one worker is to compute everything, in a synchronous call's order
    adapting: bytes  # whether an entry or an exit has an adapter, or a call's arguments a reducer
    easy: bytes  # whether it is a call between plain stitches: from outputs, no adapter, no reducer
    awaits: bool
    alone: bool
    adapts_given: bool  # whether the caller's values pass an adapter on their way in
    adapts_taken: bool  # whether the results pass an adapter or a reducer on their way out
    made: list[Step | None]

    @property
    def steps(self) -> Sequence[Step | None]:
        """By unit: its slots, where it is easy and nothing but a call."""
        if not self.made:
            consumers = self.plan.consumers
            self.made[:] = [  # at once: another thread may look
                Step(
                    tuple([edge.slot for edge in unit.entries]),
                    tuple([(slot, consumers[slot]) for way in unit.exits for slot in way.slots]),
                )
                if easy and call is not None
                else None
                for unit, easy, call in zip(self.plan.units, self.easy, self.calls, strict=True)
            ]
        return self.made


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
    lanes, ordered, adapting, easy = bytearray(), bytearray(), bytearray(), bytearray()
    awaits = False
    kinds: dict[type, _Kind] = {}
    for unit in plan.units:
        _, target, _, entries, exits = unit
        kind = kinds.get(type(target))
        if kind is None:
            kind = kinds[type(target)] = _kind(record_of(target))
        adapts, crosses_only, plain = False, True, True
        for _, adapter, crosses, reducer, _, _ in entries:
            if not crosses:
                crosses_only = False
            if adapter is not None:
                adapts = True
            if reducer is not None:
                plain = False
        reduces = not plain and kind.function is not None
        if not plan.plain:
            adapts = adapts or any(way.adapter is not None for way in exits)
        lane = "await" if kind.fires_async else "thread" if kind.lane_of is None else kind.lane_of(target)
        if adapts and lane == "inline" and kind.function is None:
            lane = "thread"  # adapters are anybody's code, and the executor is what calls them
        lanes.append(THREAD if lane == "thread" else LOOP)
        ordered.append(LOOP if lane == "await" else THREAD)
        awaits = awaits or lane == "await"
        adapting.append(adapts or reduces)
        easy.append(crosses_only and not adapts and not reduces)
        if kind.function is not None:
            bindings.append(kind.shared)
            calls.append(kind.function(target))
            continue
        outputs = ports_out(exits)
        prepared = None
        if kind.prepare is not None:
            inputs = ports_in(entries)
            prepared = kind.prepare(Prepared(target, unit.node, inputs, outputs, early_exit, cache_predicate))
        bindings.append(Binding(kind.shared.executor, prepared, outputs))
        calls.append(None)
    adapts_given = any(way.adapter is not None for way in plan.given)
    adapts_taken = any(edge.adapter is not None or edge.reducer is not None for edge in plan.taken)
    alone = not adapts_given and not adapts_taken and THREAD not in lanes and not any(adapting) and None not in calls
    if alone:
        ordered = lanes  # the loop is the one worker
    return Program(
        plan,
        tuple(bindings),
        tuple(calls),
        bytes(lanes),
        bytes(ordered),
        bytes(adapting),
        bytes(easy),
        awaits,
        alone,
        adapts_given,
        adapts_taken,
        [],
    )


class _Kind(NamedTuple):
    """What `bind` asks of a target type, once."""

    shared: Binding
    fires_async: bool
    lane_of: Callable[[Target], str] | None
    function: Callable[[Target], Callable[..., Any]] | None
    prepare: Callable[[Any], Any] | None


def _kind(record: TargetType) -> _Kind:
    executor = record.executor
    if executor is None:
        raise PluginException(f"the target type {record.name!r} has no executor", name=record.name)
    function = getattr(executor, "function", None) if record.prepare is None else None
    lane_of = getattr(executor, "lane", None)
    return _Kind(Binding(executor), inspect.iscoroutinefunction(executor.fire), lane_of, function, record.prepare)
