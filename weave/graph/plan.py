"""The plan: what `knot()` makes of the stitches, once, for every run. Immutable.

A *unit* is what fires: a target, or one direction of one key of a `RemoteTarget` (so that receive, function, send to the
same peer is no loop). Units stand in topological order, so a unit's index is its place in the one-thread order, and
whatever feeds it has a smaller one. An *edge* is a stitch; its index is the number of its *slot* in a run. An *exit* is a
source descriptor: its adapter runs once, then the value goes into the slots of all its edges.

The external boundary is no unit: `given` are its exits (filled when a run starts), `taken` its entries (read when it
ends).

Objects are counted here: half a kilobyte a node is the budget, so ports are not stored but read off the descriptors
(`ports_in`, `ports_out`) by whoever needs them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from weave.errors import InputsLoopFoundException, OutputsLoopFoundException
from weave.graph.adapters import IDENTITIES
from weave.graph.descriptors import IODescriptor, Node, StitchDescriptor, port_text, target_text
from weave.graph.reducers import default_input_reducer_fn, default_output_reducer_fn
from weave.graph.targets import ExternalTarget, RemoteTarget, Target

Kind: TypeAlias = Literal["input", "output"]
Role: TypeAlias = Literal["fire", "send", "receive"]
Resolve: TypeAlias = Callable[[IODescriptor], tuple[Callable[..., Any], Callable[..., Any], bool]]

DEFAULT_REDUCERS = (default_input_reducer_fn, default_output_reducer_fn)


class Edge(NamedTuple):
    """A stitch as its destination sees it. `adapter` and `reducer` are `None` where they are the defaults."""

    slot: int
    stitch: StitchDescriptor
    adapter: Callable[[Any], Any] | None
    reducer: Callable[..., Any] | None
    requires_original: bool

    @property
    def port(self) -> IODescriptor:
        """The destination port."""
        return self.stitch.destination_descriptor


class Exit(NamedTuple):
    """A source descriptor: where its value goes."""

    port: IODescriptor
    adapter: Callable[[Any], Any] | None
    slots: tuple[int, ...]


class Unit(NamedTuple):
    """What fires. `entries` stand in stitch order."""

    node: str
    target: Target
    role: Role
    entries: tuple[Edge, ...]
    exits: tuple[Exit, ...]


class InPort(NamedTuple):
    """Edges that meet at one port, in stitch order."""

    kind: Kind
    name: str
    edges: tuple[Edge, ...]


class OutPort(NamedTuple):
    """Exits at one port (and call of it)."""

    kind: Kind
    name: str
    call: int | str | None
    exits: tuple[Exit, ...]


class Plan:
    """A graph, ready to run. Prints as its text; `to_dict()` and `to_mermaid()` give other forms."""

    __slots__ = ("edges", "given", "nodes", "producers", "taken", "units")

    def __init__(
        self,
        units: tuple[Unit, ...],
        edges: tuple[Edge, ...],
        producers: tuple[int, ...],
        given: tuple[Exit, ...],
        taken: tuple[Edge, ...],
        nodes: Mapping[Target, str],
    ) -> None:
        self.units = units
        self.edges = edges
        self.producers = producers  # by slot: the index of the unit that fills it, -1 for the external boundary
        self.given = given
        self.taken = taken
        self.nodes = nodes

    def in_degrees(self) -> list[int]:
        """How many values each unit waits for. Those from outside count: they are delivered like any other."""
        return [len(unit.entries) for unit in self.units]

    def consumers(self) -> list[int]:
        """By slot: the index of the unit that empties it, -1 for the external boundary."""
        by_slot = [-1] * len(self.edges)
        for index, unit in enumerate(self.units):
            for edge in unit.entries:
                by_slot[edge.slot] = index
        return by_slot

    def source_text(self, slot: int) -> str:
        """The port that fills a slot, as people write it."""
        return self.text(self.edges[slot].stitch.source_descriptor)

    def text(self, port: IODescriptor) -> str:
        """A port with its node's id: `teacher.output('layers.3')`."""
        return port_text(port, self.nodes[port.target])

    def to_dict(self) -> dict[str, Any]:
        """Plain data: JSON can hold it. Functions appear by name."""
        from weave.graph.render import plan_dict

        return plan_dict(self)

    def to_mermaid(self) -> str:
        """A Mermaid flowchart of the graph, port names on the edges."""
        from weave.graph.render import mermaid

        return mermaid(self)

    def __str__(self) -> str:
        from weave.graph.render import plan_text

        return plan_text(self)

    def __repr__(self) -> str:
        return f"<Plan: {len(self.units)} units, {len(self.edges)} stitches>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]


def ports_in(entries: Iterable[Edge]) -> tuple[InPort, ...]:
    """Entries grouped by port, in the order of each port's first stitch."""
    groups: dict[tuple[Kind, str], list[Edge]] = {}
    for edge in entries:
        port = edge.port
        groups.setdefault((port.kind, port.name), []).append(edge)
    return tuple(InPort(kind, name, tuple(edges)) for (kind, name), edges in groups.items())


def ports_out(exits: Iterable[Exit]) -> tuple[OutPort, ...]:
    """Exits grouped by port and call."""
    groups: dict[tuple[Kind, str, int | str | None], list[Exit]] = {}
    for way in exits:
        groups.setdefault((way.port.kind, way.port.name, way.port.call), []).append(way)
    return tuple(OutPort(kind, name, call, tuple(ways)) for (kind, name, call), ways in groups.items())


def gather(nodes: Mapping[Target, Node]) -> dict[Target, list[StitchDescriptor]]:
    """The stitches that end at each target, in order. Targets stand in order of appearance; every one is there."""
    ending: dict[Target, list[StitchDescriptor]] = {target: [] for target in nodes}
    seen = set[int]()
    for node in nodes.values():
        for stitch in node.stitches_to:
            if id(stitch) not in seen:
                seen.add(id(stitch))
                ending.setdefault(stitch.source_descriptor.target, [])
                ending.setdefault(stitch.destination_descriptor.target, []).append(stitch)
    for node in nodes.values():  # a dict of nodes made by hand may know a stitch at one end only
        for stitch in node.stitches_from:
            if id(stitch) not in seen:
                seen.add(id(stitch))
                ending.setdefault(stitch.source_descriptor.target, [])
                ending.setdefault(stitch.destination_descriptor.target, []).append(stitch)
    return ending


def node_ids(targets: Iterable[Target]) -> dict[Target, str]:
    """A unique id for each target: its name, with `#2`, `#3` … from the second of a name on."""
    ids: dict[Target, str] = {}
    counts: dict[str, int] = {}
    for target in targets:
        name = target_text(target)
        count = counts.get(name, 0) + 1
        node = name if count == 1 else f"{name}#{count}"
        while node != name and node in counts:  # somebody called a target "f#2" himself
            count += 1
            node = f"{name}#{count}"
        counts[name] = count
        counts.setdefault(node, 1)
        ids[target] = node
    return ids


def _unit_key(target: Target, port: IODescriptor, role: Role) -> Any:
    return (target, role, port.name) if isinstance(target, RemoteTarget) else target


def build(ending: Mapping[Target, Sequence[StitchDescriptor]], ids: Mapping[Target, str], resolve: Resolve) -> Plan:
    """Make the plan. `resolve(port)` gives the port's adapter, reducer and whether that needs the original.

    Raises:
        InputsLoopFoundException, OutputsLoopFoundException: the stitches are no directed acyclic graph.
    """
    keys: dict[Any, int] = {}
    units: list[tuple[str, Target, Role]] = []

    def unit_of(target: Target, port: IODescriptor, role: Role) -> int:
        key = _unit_key(target, port, role)
        index = keys.get(key)
        if index is None:
            index = keys[key] = len(units)
            if isinstance(target, RemoteTarget):
                units.append((f"{ids[target]}.{role}({port.name!r})", target, role))
            else:
                units.append((ids[target], target, "fire"))
        return index

    entries: list[list[Edge]] = []
    exits: dict[int, dict[int, tuple[IODescriptor, list[int]]]] = {}
    edges: list[Edge] = []
    producers: list[int] = []
    successors: list[list[int]] = []
    degrees: list[int] = []
    resolved: dict[int, tuple[Any, Any, bool]] = {}
    for target in ending:
        if not isinstance(target, ExternalTarget | RemoteTarget):
            keys[target] = len(units)
            units.append((ids[target], target, "fire"))
    taken: list[Edge] = []
    for target, stitches in ending.items():
        for stitch in stitches:
            source, destination = stitch.source_descriptor, stitch.destination_descriptor
            if isinstance(source.target, ExternalTarget):
                producer = -1
            else:
                producer = keys.get(source.target, -1)
                if producer < 0:
                    producer = unit_of(source.target, source, "receive")
            if isinstance(target, ExternalTarget):
                consumer = -1
            else:
                consumer = keys.get(target, -1)
                if consumer < 0:
                    consumer = unit_of(target, destination, "send")
            got = resolved.get(id(destination))
            if got is None:
                adapter, reducer, original = resolve(destination)
                got = resolved[id(destination)] = (
                    None if adapter in IDENTITIES else adapter,
                    None if reducer in DEFAULT_REDUCERS else reducer,
                    original,
                )
            slot = len(edges)
            edge = Edge(slot, stitch, *got)
            edges.append(edge)
            producers.append(producer)
            while len(entries) < len(units):
                entries.append([])
                successors.append([])
                degrees.append(0)
            (taken if consumer < 0 else entries[consumer]).append(edge)
            exits.setdefault(producer, {}).setdefault(id(source), (source, []))[1].append(slot)
            if producer >= 0 and consumer >= 0:
                successors[producer].append(consumer)
                degrees[consumer] += 1
    while len(entries) < len(units):
        entries.append([])
        successors.append([])
        degrees.append(0)

    order = _topological(successors, degrees)
    if len(order) < len(units):
        _raise_loop(ids, edges, producers, entries, set(order))
    place = [0] * len(units)
    for position, index in enumerate(order):
        place[index] = position

    def exits_of(index: int) -> tuple[Exit, ...]:
        return tuple(_exit(port, slots, resolve) for port, slots in exits.get(index, {}).values())

    return Plan(
        units=tuple(Unit(*units[i], tuple(entries[i]), exits_of(i)) for i in order),
        edges=tuple(edges),
        producers=tuple(-1 if p < 0 else place[p] for p in producers),
        given=exits_of(-1),
        taken=tuple(taken),
        nodes=dict(ids),
    )


def _exit(port: IODescriptor, slots: list[int], resolve: Resolve) -> Exit:
    adapter = port.adapter
    if adapter in IDENTITIES:
        return Exit(port, None, tuple(slots))
    return Exit(port, resolve(port)[0], tuple(slots))


def _topological(successors: Sequence[Sequence[int]], degrees: Sequence[int]) -> list[int]:
    """Kahn's order, first come first served; shorter than the graph where there is a loop."""
    left = list(degrees)
    ready = deque(index for index, degree in enumerate(left) if degree == 0)
    order = []
    while ready:
        index = ready.popleft()
        order.append(index)
        for successor in successors[index]:
            left[successor] -= 1
            if left[successor] == 0:
                ready.append(successor)
    return order


def _raise_loop(
    ids: Mapping[Target, str],
    edges: Sequence[Edge],
    producers: Sequence[int],
    entries: Sequence[list[Edge]],
    done: set[int],
) -> None:
    """Walk upstream among the units that never became ready: each has a feeder among them, so the walk must close."""
    unit = next(index for index in range(len(entries)) if index not in done)
    path: list[Edge] = []
    visited: dict[int, int] = {}
    while unit not in visited:
        visited[unit] = len(path)
        edge = next(e for e in entries[unit] if producers[e.slot] >= 0 and producers[e.slot] not in done)
        path.append(edge)
        unit = producers[edge.slot]
    cycle = path[visited[unit] :][::-1]

    def said(port: IODescriptor) -> str:
        return port_text(port, ids[port.target])

    steps = [f"{said(e.stitch.source_descriptor)} -> {said(e.port)}" for e in cycle]
    outputs_only = all(e.port.kind == "output" for e in cycle)
    who = ids[cycle[0].stitch.source_descriptor.target]
    raise (OutputsLoopFoundException if outputs_only else InputsLoopFoundException)(
        f"the {'outputs' if outputs_only else 'inputs'} of {who!r} lead back to itself:\n  "
        + "\n  ".join(steps)
        + "\nEach target runs once a run. For a second forward of the same module make a second ModuleTarget on it."
    )
