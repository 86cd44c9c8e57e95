"""One firing of one unit: what an executor is handed (see `weave.spi.executor.Firing`)."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from weave.device.versions import Mark
from weave.engine.run import Run, reduce
from weave.errors import StitchedModuleException
from weave.graph.args import InputArgs
from weave.graph.plan import Edge, Exit, InPort, OutPort, ports_in
from weave.graph.targets import Target

if TYPE_CHECKING:
    from weave.engine.tasks import Crew

T = TypeVar("T")


class InlineFiring:
    """A firing in the caller's thread."""

    __slots__ = ("_binding", "_resources", "_run", "_unit", "_values")

    def __init__(self, run: Run, index: int, values: list[Any], resources: Mapping[Target, Any] | None) -> None:
        self._run = run
        self._unit = run.plan.units[index]
        self._binding = run.program.bindings[index]
        self._values = {edge.slot: value for edge, value in zip(self._unit.entries, values, strict=True)}
        self._resources = resources

    @property
    def target(self) -> Target:
        """The target that fires."""
        return self._unit.target

    @property
    def node(self) -> str:
        """The node's id."""
        return self._unit.node

    @property
    def args(self) -> tuple[Any, ...]:
        """The run's positional arguments."""
        self._run.check_arguments()
        return self._run.args

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """The run's keyword arguments."""
        return self._run.kwargs

    @property
    def prepared(self) -> Any:
        """What the target type's `prepare` returned."""
        return self._binding.prepared

    @property
    def resources(self) -> Any:
        """What was opened for this target by `with stitched`."""
        if self._resources is None or self.target not in self._resources:
            raise StitchedModuleException(
                f"{self.node!r} needs resources that are not open: run inside `with stitched:` (or `async with`)"
            )
        return self._resources[self.target]

    def inputs(self, port: InPort | str = "", *, original: Any = None) -> Any:
        """What the stitches brought to a port, reduced."""
        if not isinstance(port, InPort):
            name = port
            port = next(
                (p for p in ports_in(self._unit.entries) if p.kind == "input" and p.name == name),
                InPort("input", name, ()),
            )
            if not port.edges:
                return InputArgs()
        edges: tuple[Edge, ...] = port.edges
        values = [self._values[edge.slot] for edge in edges]
        return reduce(edges, values, original, self._run.plan)

    def deliver(self, port: OutPort | str, value: Any) -> None:
        """Hand a value to everything stitched from a port."""
        self._put_all(self.exits_at(port), value)

    def exits_at(self, port: OutPort | str) -> tuple[Exit, ...]:
        """What is stitched from a port; nothing from what is none."""
        if isinstance(port, OutPort):
            return port.exits
        return tuple(way for p in self._binding.outputs if p.kind == "output" and p.name == port for way in p.exits)

    def _put_all(self, exits: Sequence[Exit], value: Any) -> None:
        self._run.put_all(exits, value)

    def settled(self) -> None:
        """Nobody runs beside this firing who could have changed what it has delivered, or be misled by it."""

    def check_cancelled(self) -> None:
        """Nothing cancels a run in the caller's thread but an exception there."""

    async def blocking(self, function: Callable[..., T], *args: Any) -> T:
        """Only a driver with worker threads can; the inline driver fires no async executor."""
        raise StitchedModuleException(f"{self.node!r} asks for a worker thread, and a synchronous call has none")


class Stopped(BaseException):
    """The run is being stopped; a forward is left at a port."""


class TaskFiring(InlineFiring):
    """A firing under `run`: what it delivers goes on at once, and it can hop into a thread."""

    __slots__ = ("_crew", "_given", "_settled")

    def __init__(self, crew: Crew, index: int, values: list[Any]) -> None:
        super().__init__(crew.frontier, index, values, crew.resources)
        self._crew = crew
        self._settled = False
        # Weak: a value is let go when its last consumer has it, also while its producer's forward goes on.
        self._given: list[tuple[int, weakref.ref[Mark], list[tuple[weakref.ref[Any], int]]]] = []

    def _put_all(self, exits: Sequence[Exit], value: Any) -> None:
        frontier = self._crew.frontier
        given = frontier.fill_all(exits, value, held=not self._settled)
        if given is not None and not self._settled:
            slot, marked = given
            tensors = [(weakref.ref(tensor), version) for tensor, version in marked.pairs]
            self._given.append((slot, weakref.ref(marked), tensors))
        self._crew.pass_on(frontier.count([slot for way in exits for slot in way.slots]))

    def settled(self) -> None:
        """What was delivered so far is not touched by this firing again."""
        self.check_given()
        self._settled = True

    def check_given(self) -> None:
        """What was delivered while the firing went on must be as it was then; its consumers may have it already."""
        frontier, given = self._crew.frontier, self._given
        self._given = []
        for slot, reference, tensors in given:
            marked = reference()
            if marked is not None:
                frontier.others_wait(marked)
                if frontier.to_report(marked):
                    raise frontier.changed(slot, None, by=self.node)
                continue
            # Its consumers have ended, and it was right until then; one that kept it has something else now.
            for weak, version in tensors:
                tensor = weak()
                if tensor is not None and tensor._version != version:
                    raise frontier.changed(slot, None, by=self.node)

    def check_cancelled(self) -> None:
        """Leave if the run is being stopped."""
        if self._crew.stopping:
            raise Stopped

    async def blocking(self, function: Callable[..., T], *args: Any) -> T:
        """Run a blocking function in a worker thread of the run, under the caller's torch state."""
        return await self._crew.hop(function, *args)
