"""One run's state on a plan: its slots, and the values' way through them.

A slot is a stitch's place for its value. `put` runs a source's adapter and fills the slots behind it; `take` empties a
unit's slots and runs the destinations' adapters. So a value is let go when its last consumer has taken it. Beside the
values there is room for each slot's ready event and home stream, used once transfers overlap with compute.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weave.device.versions import Mark, mark
from weave.engine.program import Program
from weave.errors import CantResolveNodeDependenciesException, ChangedInPlaceException, StitchedModuleException
from weave.graph.args import InputArgs
from weave.graph.plan import Edge, Exit, Plan, Unit
from weave.graph.reducers import reduce_inputs, reduce_outputs

EMPTY: Any = type("EMPTY", (), {"__repr__": lambda self: "<nothing yet>"})()


class Run:
    """The state of one run. Threads may `put` and `take` at once: each slot has one writer and one reader."""

    __slots__ = (
        "_id",
        "_said",
        "args",
        "events",
        "failed_at",
        "fired",
        "kwargs",
        "marks",
        "plan",
        "program",
        "streams",
        "values",
    )

    def __init__(self, program: Program, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.program = program
        self.plan = program.plan
        self.args = args
        self.kwargs = kwargs
        self._said = mark((args, kwargs)) if args or kwargs else None
        size = len(self.plan.edges)
        self.values: list[Any] = [EMPTY] * size
        self.marks: list[Mark | None] = [None] * size
        self.events: list[Any] | None = None  # by slot, as soon as a stream backend has any
        self.streams: list[Any] | None = None
        self.fired: list[int] = []  # units that have ended, in order: who may have changed a tensor meanwhile
        self.failed_at = ""  # the first node that failed
        self._id = ""

    @property
    def id(self) -> str:
        """The run's id, for messages and logs: 12 hex digits, made when first asked for."""
        if not self._id:
            self._id = uuid.uuid4().hex[:12]
        return self._id

    def calls(self) -> Iterable[Callable[..., Any] | None]:
        """What the inline driver calls, one after another: `None` for a unit that an executor fires."""
        return self.program.calls

    def check_arguments(self) -> None:
        """The run's arguments go to every module: one that is yet to be called must get them as the caller gave them."""
        if self._said is not None and self._said.changed():
            suspects = tuple(self.plan.units[i].node for i in self.fired[-8:])
            raise ChangedInPlaceException(
                "a tensor among the run's arguments was changed in place "
                + (f"by one of {', '.join(map(repr, suspects))}" if suspects else "by something outside the graph")
                + ", while a module is still to be called with it. Change a clone instead",
                node="external",
                port="the run's arguments",
                suspects=suspects,
            )

    def put(self, way: Exit, value: Any) -> Sequence[int]:
        """Adapt a value at its source and hand it to every stitch from there.

        Returns the units that became ready, where somebody counts (see `Frontier`).
        """
        self.fill(way, value)
        return self.count(way.slots)

    def fill(self, way: Exit, value: Any, known: Mark | None = None) -> Mark | None:
        """Adapt a value at its source and fill the slots behind it. Returns the value's mark.

        `known`: the mark of the same value behind another exit, whose consumers and these wait on one tensor.
        """
        if way.adapter is not None:
            value = way.adapter(value)
            if way.port.kind == "input" and way.port.call != "all" and not isinstance(value, InputArgs):
                raise StitchedModuleException(
                    f"the adapter of {self.plan.text(way.port)} returned a {type(value).__name__}: at an input it must return "
                    "an InputArgs (wrap it: InputArgs(value))"
                )
        if known is not None and way.adapter is None:
            known.waiting += len(way.slots)
            marked: Mark | None = known
        else:
            marked = mark(value, len(self.fired), len(way.slots))
        for slot in way.slots:
            self.values[slot] = value
            if marked is not None:
                self.marks[slot] = marked
        return marked

    def count(self, slots: Sequence[int]) -> Sequence[int]:
        """Slots were filled. Nobody counts where one thread follows the plan's order."""
        return ()

    def put_all(self, exits: Sequence[Exit], value: Any) -> Sequence[int]:
        """`put` at every exit of a port."""
        self.fill_all(exits, value)
        return self.count([slot for way in exits for slot in way.slots])

    def fill_all(self, exits: Sequence[Exit], value: Any, *, held: bool = False) -> tuple[int, Mark] | None:
        """`fill` at every exit of a port. An adapter of one must not change the others' value.

        Returns a slot and the mark of the value as it is, where some exit passes it on so. `held`: the producer goes on
        with it, and counts among those who wait.
        """
        before = mark(value) if len(exits) > 1 else None
        plain: tuple[int, Mark] | None = None
        for way in exits:
            marked = self.fill(way, value, plain and plain[1])
            if way.adapter is None and plain is None and marked is not None:
                plain = way.slots[0], marked
                marked.waiting += held
        if before is not None and before.changed():
            raise self.changed(exits[0].slots[0], before, by=self.plan.nodes[exits[0].port.target])
        return plain

    def take(self, unit: Unit | None, entries: Sequence[Edge]) -> tuple[list[Any], list[tuple[Edge, Mark]] | None]:
        """Empty the slots of a unit (`None`: the external boundary): adapted values, and marks that others wait on."""
        taken: list[Any] = []
        shared: list[tuple[Edge, Mark]] | None = None
        for edge in entries:
            value = self.values[edge.slot]
            if value is EMPTY:
                raise self.starved(unit, edge)
            self.values[edge.slot] = EMPTY
            if self.marks[edge.slot] is not None:
                shared = self.unmark(edge, shared)
            if edge.adapter is not None:
                value = edge.adapter(value)
            if edge.crosses:
                if not isinstance(value, InputArgs):
                    value = InputArgs.of((value,), {})
            elif edge.port.kind == "input" and not isinstance(value, InputArgs):
                raise self.no_arguments(edge, value)
            taken.append(value)
        return taken, shared

    def unmark(self, edge: Edge, shared: list[tuple[Edge, Mark]] | None) -> list[tuple[Edge, Mark]] | None:
        """Take a slot's mark off, once the value is seen to be as it was; on `shared` where others wait for it still."""
        marked = self.marks[edge.slot]
        self.marks[edge.slot] = None
        if marked is None:
            return shared
        if marked.changed():
            raise self.changed(edge.slot, marked)
        if marked.waiting > 1:
            shared = shared or []
            shared.append((edge, marked))
        return shared

    def check(self, unit: Unit, shared: Iterable[tuple[Edge, Mark]] | None) -> None:
        """A unit has fired: what it shares with others and what it gave must be as they were delivered."""
        # First let go of all: a unit may have the same tensor by two stitches.
        for edge, marked in [(edge, marked) for edge, marked in shared or () if self.others_wait(marked)]:
            if marked.waiting > 0 and self.to_report(marked):
                raise self.changed(edge.slot, marked, by=unit.node)
        for way in unit.exits:
            given = self.marks[way.slots[0]]
            if given is not None and given.changed():
                raise self.changed(way.slots[0], given, by=unit.node)

    def others_wait(self, marked: Mark) -> bool:
        """A reading of a marked value is over; whether another is not, perhaps because it goes on just now."""
        marked.waiting -= 1
        return marked.waiting > 0

    def to_report(self, marked: Mark) -> bool:
        """Whether a value was changed, and nobody has said so yet: a consumer and the producer may both find it."""
        found = marked.changed()
        if found:
            marked.pairs = ()
        return found

    def changed(self, slot: int, marked: Mark | None, by: str = "") -> ChangedInPlaceException:
        """The error for a value that is no longer what was delivered."""
        source = self.plan.edges[slot].stitch.source_descriptor
        said, node = self.plan.text(source), self.plan.nodes[source.target]
        suspects = (by,) if by else tuple(self.plan.units[i].node for i in self.fired[marked.since if marked else 0 :])
        if by == node:
            who = f"by {by!r} itself, after it had been captured"
        elif suspects:
            who = "by " + (repr(by) if by else "one of " + ", ".join(map(repr, suspects[:8])))
        else:
            who = "by something outside the graph"
        return ChangedInPlaceException(
            f"a tensor from {said} was changed in place {who}, while it was still needed as it was. "
            'Keep a copy for those who need it: adapter="clone" at that port, or change a clone instead',
            node=node,
            port=said,
            suspects=suspects,
        )

    def no_arguments(self, edge: Edge, value: Any) -> StitchedModuleException:
        """The error for a value that goes from an input to an input and is no `InputArgs`."""
        return StitchedModuleException(
            f"the adapter of {self.plan.text(edge.port)} returned a {type(value).__name__}: from an input to an input it "
            "must return an InputArgs (wrap it: InputArgs(value))"
        )

    def unfilled(self, unit: Unit) -> Edge:
        """The first edge of a unit that nobody has brought a value for."""
        return next(edge for edge in unit.entries if self.values[edge.slot] is EMPTY)

    def starved(self, unit: Unit | None, edge: Edge) -> CantResolveNodeDependenciesException:
        """The error for a unit that waits for a value nobody will bring."""
        who = "the caller" if unit is None else repr(unit.node)
        giver = self.plan.nodes[edge.stitch.source_descriptor.target]
        return CantResolveNodeDependenciesException(
            f"{who} waits for {self.plan.source_text(edge.slot)}, and {giver!r} ended without delivering it: "
            "its executor must call firing.deliver(...) for every port that is stitched"
        )


def reduce(edges: Sequence[Edge], values: Sequence[Any], original: Any, plan: Plan) -> Any:
    """What several stitches bring to one port: an `InputArgs` at an input, a value at an output."""
    port = edges[0].port
    reducers = [edge.reducer for edge in edges]
    try:
        if port.kind == "output":
            return reduce_outputs(reducers, values, original)
        first = original if isinstance(original, InputArgs) else InputArgs()
        return reduce_inputs(reducers, values, first, plan.text(port))
    except Exception as error:
        note(error, f"weave: in a reducer of {plan.text(port)}")
        raise


def note(error: BaseException, text: str) -> None:
    """Add a note to an exception, once."""
    try:
        if text not in getattr(error, "__notes__", ()):
            error.add_note(text)
    except Exception:  # a class may forbid it; the exception itself matters more than our note
        return
