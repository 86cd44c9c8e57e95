"""One graph over several ranks: each keeps its own part, and where a stitch is cut there is a transfer.

Every rank builds the same graph and computes the same cut from it, so nothing has to be told: a transfer is called after
the port that its value comes from. A value goes to a rank once, however many stitches there want it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from weave.errors import KnotException
from weave.graph.descriptors import IODescriptor, Node, OutputDescriptor, StitchDescriptor, port_text
from weave.graph.targets import ConstantTarget, ExternalTarget, FunctionTarget, RemoteTarget, Target

# By target; an external port by (kind, name).
Places: TypeAlias = Mapping[Target | tuple[str, str], int]


@dataclass
class Part:
    """What a rank keeps. `elsewhere`: external ports of other ranks, by kind and name."""

    nodes: dict[Target, Node] = field(default_factory=dict)
    elsewhere: dict[tuple[str, str], int] = field(default_factory=dict)

    def stitch(self, source: IODescriptor, destination: IODescriptor, made: StitchDescriptor | None = None) -> None:
        """Keep a stitch, or one that replaces its cut."""
        stitch = made or StitchDescriptor(source, destination)
        self.node(source.target).stitches_from.append(stitch)
        self.node(destination.target).stitches_to.append(stitch)

    def node(self, target: Target) -> Node:
        """A target's node."""
        return self.nodes.setdefault(target, Node(target))


def partition(
    nodes: Mapping[Target, Node], ids: Mapping[Target, str], places: Places, rank: int, world_size: int
) -> Part:
    """This rank's part of a graph.

    Raises:
        KnotException: something has no place, or one that isn't there.
    """
    for what, place in places.items():
        if not 0 <= place < world_size:
            said = f"external {what[0]} {what[1]!r}" if isinstance(what, tuple) else repr(ids.get(what, what))
            raise KnotException(
                f"{said} is placed on rank {place}, and there {'is' if world_size == 1 else 'are'} {world_size} "
                f"(0 to {world_size - 1}): place it on one of those, or start more"
            )
    where = _resolved(nodes, ids, places)
    part = Part()
    names: dict[int, str] = {}  # by source port: what its transfers are called
    counts: dict[str, int] = {}
    remotes: dict[int, RemoteTarget] = {}
    received: dict[int, OutputDescriptor] = {}
    sent: set[tuple[int, int]] = set()

    def remote(peer: int) -> RemoteTarget:
        return remotes.setdefault(peer, RemoteTarget(peer))

    def name(port: IODescriptor) -> str:
        if id(port) not in names:
            text = port_text(port, ids[port.target])
            counts[text] = counts.get(text, 0) + 1
            names[id(port)] = text if counts[text] == 1 else f"{text} #{counts[text]}"
        return names[id(port)]

    def place_of(port: IODescriptor) -> int | None:
        """`None`: on every rank that wants it."""
        if isinstance(port.target, ExternalTarget):
            return places.get((port.kind, port.name), places.get(port.target, 0))
        return where[port.target]

    for target, node in nodes.items():
        if not isinstance(target, ExternalTarget) and where[target] == rank:
            part.node(target)  # also without a stitch
        for stitch in node.stitches_to:
            source, destination = stitch.source_descriptor, stitch.destination_descriptor
            goes, comes = place_of(destination), place_of(source)
            if goes is None:
                raise AssertionError("only constants are everywhere, and no stitch ends at one")
            for port in (source, destination):
                if isinstance(port.target, ExternalTarget) and place_of(port) != rank:
                    part.elsewhere[port.kind, port.name] = place_of(port) or 0
            if comes is None or comes == goes:
                if goes == rank:
                    part.stitch(source, destination, stitch)
                continue
            key = name(source)  # also where this rank has no part in it: names are counted alike everywhere
            if goes == rank:
                if id(source) not in received:
                    received[id(source)] = remote(comes).value(key)
                part.stitch(received[id(source)], destination)
            elif comes == rank and (id(source), goes) not in sent:
                sent.add((id(source), goes))
                part.stitch(source, remote(goes).value(key))
    return part


def places_of(nodes: Mapping[Target, Node], ids: Mapping[Target, str], places: Places) -> dict[str, int]:
    """By node id, the rank that computes it. A constant that is everywhere is where it is wanted first."""
    where = _resolved(nodes, ids, places)
    found = {}
    for target, place in where.items():
        if place is None:
            wanted = [where.get(stitch.destination_descriptor.target) for stitch in nodes[target].stitches_from]
            place = next((rank for rank in wanted if rank is not None), None)
        if place is not None:
            found[ids[target]] = place
    return found


def _resolved(nodes: Mapping[Target, Node], ids: Mapping[Target, str], places: Places) -> dict[Target, int | None]:
    """Where every target is; `None` for a constant that is nowhere in particular: each rank that wants it has its own.

    An unplaced function goes where the first of those that want its result is; one that nobody wants, where the first of
    what it is given comes from.
    """
    where: dict[Target, int | None] = {}
    lacking: list[str] = []
    for target in nodes:
        if target in places:
            where[target] = places[target]
        elif isinstance(target, ConstantTarget):
            where[target] = None
        elif isinstance(target, RemoteTarget) or not isinstance(target, ExternalTarget | FunctionTarget):
            lacking.append(ids[target])
    if lacking:
        named = ", ".join(map(repr, lacking[:8])) + (" ..." if len(lacking) > 8 else "")
        raise KnotException(
            f"{named} {'has' if len(lacking) == 1 else 'have'} no place: where some of a graph's targets are placed, all of its "
            "modules and remote targets are: needle.place(target, rank=...)"
        )

    def external(port: IODescriptor) -> int:
        return places.get((port.kind, port.name), places.get(port.target, 0))

    def known(port: IODescriptor) -> int | None:
        return external(port) if isinstance(port.target, ExternalTarget) else where.get(port.target)

    # From the results backwards, without recursion: a chain of functions may be long.
    waiting = {
        target: sum(
            s.destination_descriptor.target in nodes and _open(s.destination_descriptor.target, where)
            for s in node.stitches_from
        )
        for target, node in nodes.items()
        if _open(target, where)
    }
    ready = [target for target, left in waiting.items() if not left]
    undecided: list[Target] = []
    for target in ready:  # grows as it goes
        wanted = [known(stitch.destination_descriptor) for stitch in nodes[target].stitches_from]
        found = next((place for place in wanted if place is not None), None)
        if found is None:
            undecided.append(target)
        else:
            where[target] = found
        for stitch in nodes[target].stitches_to:
            feeder = stitch.source_descriptor.target
            if feeder in waiting and feeder not in where:
                waiting[feeder] -= 1
                if not waiting[feeder]:
                    ready.append(feeder)
    for target in reversed(undecided):  # those nobody wants: feeders first
        given = [known(stitch.source_descriptor) for stitch in nodes[target].stitches_to]
        where[target] = next((place for place in given if place is not None), 0)
    for target in nodes:  # a loop, which the plan will complain about
        if not isinstance(target, ExternalTarget):
            where.setdefault(target, 0)
    return where


def _open(target: Target, where: Mapping[Target, int | None]) -> bool:
    return target not in where and not isinstance(target, ExternalTarget)
