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

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from weave.errors import InputsLoopFoundException, OutputsLoopFoundException
from weave.graph.adapters import IDENTITIES, default_input_adapter_fn, default_output_adapter_fn
from weave.graph.descriptors import (
    InputDescriptor,
    IODescriptor,
    Node,
    StitchDescriptor,
    port_text,
    target_text,
)
from weave.graph.reducers import DEFAULT_INPUT_REDUCER, default_input_reducer_fn, default_output_reducer_fn
from weave.graph.targets import ConstantTarget, ExternalTarget, FunctionTarget, ModuleTarget, RemoteTarget, Target

Kind: TypeAlias = Literal["input", "output"]
Role: TypeAlias = Literal["fire", "send", "receive"]
Resolve: TypeAlias = Callable[[IODescriptor], tuple[Callable[..., Any], Callable[..., Any], bool]]

_UNITS = frozenset({ModuleTarget, FunctionTarget, ConstantTarget})  # asked first: nearly all targets of a large graph
_NO_UNIT = (ExternalTarget, RemoteTarget)
_new: Any = tuple.__new__  # half the time of a NamedTuple's own constructor, where there are many to make
DEFAULT_REDUCERS = (default_input_reducer_fn, default_output_reducer_fn)


class Edge(NamedTuple):
    """A stitch as its destination sees it. `adapter` and `reducer` are `None` where they are the defaults.

    `crosses`: from an output (or all calls of an input, a list) to an input, where a value that is no `InputArgs` becomes
    one positional argument.
    """

    slot: int
    adapter: Callable[[Any], Any] | None
    crosses: bool
    reducer: Callable[..., Any] | None
    requires_original: bool
    stitch: StitchDescriptor

    @property
    def port(self) -> IODescriptor:
        """The destination port."""
        return self.stitch.destination_descriptor


class Exit(NamedTuple):
    """A source descriptor: where its value goes."""

    adapter: Callable[[Any], Any] | None
    slots: tuple[int, ...]
    port: IODescriptor


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
    """A graph, ready to run. Prints as its text, shows as a picture in a notebook; `to_dict()`, `to_mermaid()`,
    `to_dot()` and `to_svg()` give other forms."""

    __slots__ = ("__weakref__", "_ids", "consumers", "edges", "given", "others", "plain", "producers", "taken", "units")

    def __init__(
        self,
        units: tuple[Unit, ...],
        edges: tuple[Edge, ...],
        producers: tuple[int, ...],
        consumers: tuple[int, ...],
        given: tuple[Exit, ...],
        taken: tuple[Edge, ...],
        others: Mapping[Target, str],
        plain: bool,
    ) -> None:
        self.units = units
        self.edges = edges
        self.producers = producers  # by slot: the index of the unit that fills it, -1 for the external boundary
        self.consumers = consumers  # by slot: the index of the unit that empties it, likewise
        self.given = given
        self.taken = taken
        self.others = others  # ids of targets that are no unit of their own: the external boundary, remotes
        self.plain = plain  # no stitch has an adapter or a reducer of its own
        self._ids: dict[Target, str] = {}

    @property
    def nodes(self) -> Mapping[Target, str]:
        """Node ids by target. Put together when first asked for, because only messages and pictures want it."""
        if not self._ids:
            fired = {unit.target: unit.node for unit in self.units if unit.target not in self.others}
            self._ids = {**fired, **self.others}
        return self._ids

    def in_degrees(self) -> list[int]:
        """How many values each unit waits for. Those from outside count: they are delivered like any other."""
        return [len(unit.entries) for unit in self.units]

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

    def to_dot(self) -> str:
        """The graph for Graphviz, port names on the edges. Needs nothing installed."""
        from weave.graph.dot import dot
        from weave.graph.picture import picture_of

        return dot(picture_of(self))

    def to_svg(self) -> str:
        """The graph as a picture of its own, for light and dark pages. Laid out by python-igraph.

        Raises:
            ModuleNotFoundError: igraph is not installed: `pip install 'weave-dataflow[pictures]'`.
            ValueError: the graph is too large to be laid out.
        """
        from weave.graph.picture import picture_of
        from weave.graph.svg import svg

        return svg(picture_of(self))

    def _repr_html_(self) -> str:
        from weave.graph.notebook import html

        return html(self)

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
    ending: dict[Target, list[StitchDescriptor]] = {target: list(node.stitches_to) for target, node in nodes.items()}
    known = {id(stitch) for stitches in ending.values() for stitch in stitches}
    for node in nodes.values():  # a dict of nodes made by hand may know a stitch, or a target, at one end only
        for stitch in node.stitches_from:
            if id(stitch) not in known:
                known.add(id(stitch))
                ending.setdefault(stitch.destination_descriptor.target, []).append(stitch)
    for stitches in list(ending.values()):
        for stitch in stitches:
            if stitch.source_descriptor.target not in ending:
                ending[stitch.source_descriptor.target] = []
    return ending


def node_ids(targets: Iterable[Target]) -> dict[Target, str]:
    """A unique id for each target: its name, with `#2`, `#3` … from the second of a name on."""
    ids: dict[Target, str] = {}
    counts: dict[str, int] = {}
    for target in targets:
        name = getattr(target, "name", None)
        if type(name) is not str:
            name = target_text(target)
        if name not in counts:
            counts[name] = 1
            ids[target] = name
            continue
        count = counts[name] + 1
        while f"{name}#{count}" in counts:  # somebody called a target "f#2" himself
            count += 1
        node = f"{name}#{count}"
        counts[name] = count
        counts[node] = 1
        ids[target] = node
    return ids


def build(ending: Mapping[Target, Sequence[StitchDescriptor]], ids: Mapping[Target, str], resolve: Resolve) -> Plan:
    """Make the plan. `resolve(port)` gives the port's adapter, reducer and whether that needs the original.

    One pass over the stitches, one over the units; 10 microseconds a node is the budget, hence the plain loops.

    Raises:
        InputsLoopFoundException, OutputsLoopFoundException: the stitches are no directed acyclic graph.
    """
    units: list[tuple[str, Target, Role]] = []
    places: dict[Any, int] = {}  # by target; by (target, role, key) for remotes; -1 is the external boundary
    others: dict[Target, str] = {}
    for target in ending:
        if type(target) not in _UNITS and isinstance(target, _NO_UNIT):
            others[target] = ids[target]
            if isinstance(target, ExternalTarget):
                places[target] = -1
        else:
            places[target] = len(units)
            units.append((ids[target], target, "fire"))

    def remote(target: Target, role: Role, name: str) -> int:
        place = places.get((target, role, name))
        if place is None:
            place = places[target, role, name] = len(units)
            units.append((f"{ids[target]}.{role}({name!r})", target, role))
            entries.append(())
            left.append(0)
        return place

    entries: list[tuple[Edge, ...]] = [()] * len(units)
    left = [0] * len(units)  # by unit: how many units feed it, one for each stitch
    edges: list[Edge] = []
    producers: list[int] = []
    consumers: list[int] = []
    ways: dict[IODescriptor, list[int]] = {}
    add_edge, add_producer, add_consumer = edges.append, producers.append, consumers.append
    slot = -1
    plain = True
    for target, stitches in ending.items():
        place = places.get(target)
        first = slot + 1
        for stitch in stitches:
            source, destination = stitch.source_descriptor, stitch.destination_descriptor
            producer = places.get(source.target)
            if producer is None:
                producer = remote(source.target, "receive", source.name)
            slot += 1
            if (
                destination.reducer is DEFAULT_INPUT_REDUCER
                and type(destination) is InputDescriptor
                and destination.input_adapter is default_input_adapter_fn
            ):
                # Nearly every edge of a large graph: at an input, with nothing but defaults.
                crosses = source.kind == "output" or source.call == "all"
                edge = _new(Edge, (slot, None, crosses, None, False, stitch))
            else:
                edge = _edge(slot, stitch, resolve)
                plain = plain and edge.adapter is None and edge.reducer is None
            add_edge(edge)
            add_producer(producer)
            consumer = place
            if consumer is None:
                consumer = remote(target, "send", destination.name)
                entries[consumer] += (edge,)
            add_consumer(consumer)
            if producer >= 0 and consumer >= 0:
                left[consumer] += 1
            slots = ways.get(source)
            if slots is None:
                ways[source] = [slot]
            else:
                slots.append(slot)
        if place is not None and place >= 0:
            entries[place] = tuple(edges[first:])

    exits: list[tuple[Exit, ...]] = [()] * (len(units) + 1)  # the last is the external boundary's: its place is -1
    for port, slots in ways.items():
        adapter = port.adapter
        if adapter is default_output_adapter_fn or adapter is default_input_adapter_fn:
            way = _new(Exit, (None, tuple(slots), port))
        else:
            way = Exit(resolve(port)[0], tuple(slots), port)
            plain = False
        exits[producers[slots[0]]] += (way,)

    order = _topological(exits, consumers, left)
    if len(order) < len(units):
        _raise_loop(ids, producers, entries, set(order))
    final = [0] * len(units)
    for position, index in enumerate(order):
        final[index] = position
    return Plan(
        units=tuple([_new(Unit, (*units[i], entries[i], exits[i])) for i in order]),
        edges=tuple(edges),
        producers=tuple([-1 if p < 0 else final[p] for p in producers]),
        consumers=tuple([-1 if c < 0 else final[c] for c in consumers]),
        given=exits[-1],
        taken=tuple([edge for edge, consumer in zip(edges, consumers, strict=True) if consumer < 0]),
        others=others,
        plain=plain,
    )


def _edge(slot: int, stitch: StitchDescriptor, resolve: Resolve) -> Edge:
    source, destination = stitch.source_descriptor, stitch.destination_descriptor
    crosses = destination.kind == "input" and (source.kind == "output" or source.call == "all")
    adapter, reducer, original = resolve(destination)
    return Edge(
        slot,
        None if adapter in IDENTITIES else adapter,
        crosses,
        None if reducer in DEFAULT_REDUCERS else reducer,
        original,
        stitch,
    )


def _topological(exits: Sequence[tuple[Exit, ...]], consumers: Sequence[int], left: list[int]) -> list[int]:
    """Kahn's order, first come first served; shorter than the graph where there is a loop. Counts `left` down."""
    order = [index for index, count in enumerate(left) if not count]
    for index in order:  # grows as it goes
        for _, slots, _ in exits[index]:
            for slot in slots:
                consumer = consumers[slot]
                if consumer >= 0:
                    left[consumer] = waiting = left[consumer] - 1
                    if not waiting:
                        order.append(consumer)
    return order


def _raise_loop(
    ids: Mapping[Target, str],
    producers: Sequence[int],
    entries: Sequence[tuple[Edge, ...]],
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
