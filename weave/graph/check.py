"""The knot's checks of a graph's form. What only a target type knows (its port names, say) is asked in its record.

Loops are found by the plan's topological sort, which is linear; see `plan.build`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from weave.errors import (
    ContradictionException,
    MultipleExternalNodesException,
    OnlyInternalNodesException,
    UnknownPortException,
)
from weave.graph.descriptors import IODescriptor, StitchDescriptor, has_name, port_text
from weave.graph.targets import ConstantTarget, ExternalTarget, FunctionTarget, ModuleTarget, RemoteTarget, Target

_INSIDE = frozenset({ModuleTarget, FunctionTarget, ConstantTarget})


class Directions(Protocol):
    """What of a target type's record is asked here."""

    @property
    def sources(self) -> Collection[str]:
        """Which kinds of port (`"input"`, `"output"`) a stitch may start from."""

    @property
    def destinations(self) -> Collection[str]:
        """Which kinds of port a stitch may end on."""


def check_form(
    ending: Mapping[Target, Sequence[StitchDescriptor]],
    ids: Mapping[Target, str],
    directions: Callable[[Target], Directions],
    *,
    part: bool = False,
) -> None:
    """Raise a `KnotException` for a graph that can't be tied, whatever its targets compute.

    `part`: the external boundary is another rank's, and there may be none here.
    """
    outside: list[Target] = []
    remotes = False
    of: dict[type, Directions] = {}  # a target type's record is the same for all its targets
    for target in ending:
        kind = type(target)
        if kind not in of:
            of[kind] = directions(target)
            remotes = remotes or isinstance(target, RemoteTarget)
        if kind is ExternalTarget or (kind not in _INSIDE and isinstance(target, ExternalTarget)):
            outside.append(target)
    if len(outside) > 1:
        raise MultipleExternalNodesException(
            f"{len(outside)} external nodes: {', '.join(map(repr, outside))}. There is one external boundary: "
            "use ExternalTarget() everywhere"
        )
    if not outside and not remotes and not part:
        raise OnlyInternalNodesException(
            f"nothing gets in or out of the graph of {', '.join(map(repr, ids.values())) or 'no targets at all'}: "
            "stitch a port to or from ExternalTarget() (or a RemoteTarget)"
        )
    for target, stitches in ending.items():
        ends = of[type(target)].destinations
        for stitch in stitches:
            source, destination = stitch.source_descriptor, stitch.destination_descriptor
            starts = of[type(source.target)].sources
            if source.kind not in starts or source.call is not None or (source.name and not has_name(source)):
                _check_port(source, ids, starts, "source", stitch)
            if (
                destination.kind not in ends
                or destination.call is not None
                or (destination.name and not has_name(destination))
            ):
                _check_port(destination, ids, ends, "destination", stitch)
    if remotes:
        _check_remotes(ending, ids)


def _check_port(
    port: IODescriptor, ids: Mapping[Target, str], kinds: Collection[str], end: str, stitch: StitchDescriptor
) -> None:
    node = ids[port.target]
    said = port_text(port, node)
    if port.kind not in kinds:
        can = f"only its {' and '.join(sorted(kinds))} can" if kinds else "none of its ports can"
        raise UnknownPortException(
            f"{said} can't be the {end} of a stitch ({stitch!r}): {can}",
            node=node,
            port=said,
            nearest=tuple(sorted(kinds)),
        )
    if port.name and not has_name(port):
        raise UnknownPortException(
            f"{said}: {node!r} has one {port.kind}, which has no name: {node}.{port.kind}()", node=node, port=said
        )
    if port.call is None:
        return
    if not isinstance(port.target, ModuleTarget):
        raise UnknownPortException(
            f"{said}: call= picks a call of a submodule within a forward, and {node!r} is no ModuleTarget; leave it out",
            node=node,
            port=said,
        )
    number = isinstance(port.call, int) and not isinstance(port.call, bool) and port.call >= 0
    if not number and port.call not in ("last", "all"):
        raise UnknownPortException(
            f'{said}: call= takes a number from 0 on, "last" or "all", not {port.call!r}', node=node, port=said
        )
    if end == "destination" and port.call == "last":
        raise ContradictionException(
            f"{said}: which call is the last one is not known before the forward has ended, so it can't be overridden; "
            "say call=k, or leave call= out to override every call",
            node=node,
            port=said,
        )


def _check_remotes(ending: Mapping[Target, Sequence[StitchDescriptor]], ids: Mapping[Target, str]) -> None:
    claims: dict[tuple[object, int, str, str], Target] = {}
    for stitches in ending.values():
        for stitch in stitches:
            for port, direction in ((stitch.source_descriptor, "receives"), (stitch.destination_descriptor, "sends")):
                target = port.target
                if isinstance(target, RemoteTarget):
                    _check_remote(target, port, direction, ids[target], claims, ids)


def _check_remote(
    target: RemoteTarget,
    port: IODescriptor,
    direction: str,
    node: str,
    claims: dict[tuple[object, int, str, str], Target],
    ids: Mapping[Target, str],
) -> None:
    said = port_text(port, node)
    if direction == "receives" and len(target.peers) != 1:
        raise UnknownPortException(
            f"{said} can't be a source: a value comes from one peer, and {node!r} has {len(target.peers)} "
            f"({_listed(target.peers)}); use RemoteTarget(rank) with the one that sends it",
            node=node,
            port=said,
        )
    if not target.peers:
        raise UnknownPortException(f"{said}: {node!r} has no peer at all", node=node, port=said)
    for peer in target.peers:
        claim = (target.process_group, peer, direction, port.name)
        other = claims.setdefault(claim, target)
        if other is not target:
            raise ContradictionException(
                f"two RemoteTargets ({ids[other]!r} and {node!r}) {direction[:-1]} under the key {port.name!r} with rank {peer}: "
                "the peer could not tell them apart; use one target, or another key",
                node=node,
                port=said,
            )


def _listed(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))
