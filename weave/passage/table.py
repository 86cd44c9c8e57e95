"""The table of a module's ports: made once at the knot, read by every passage.

Ports are kept by module object, so a submodule with two names (tied) answers to both. A submodule that the graph
captures, overrides or caches has a *station* here; no other is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from torch import nn

from weave.errors import ContradictionException, UnknownPortException
from weave.graph.descriptors import port_text
from weave.graph.plan import Edge, InPort, OutPort
from weave.graph.ports import ancestors, nearest, refusal, submodules
from weave.passage.fake import FakeCache
from weave.spi.executor import Preparation


class Capture(NamedTuple):
    """A captured port: `call` is a number, `"last"` or `"all"`. `place` is its index in the passage's lists."""

    place: int
    port: OutPort
    call: int | str

    @property
    def held(self) -> bool:
        """Whether it is only known when the forward has ended."""
        return isinstance(self.call, str)


class Overrides(NamedTuple):
    """The stitches that replace a submodule's input or output, in stitch order."""

    port: InPort
    every_call: bool  # none of them picks a call
    requires_original: bool

    def at(self, call: int) -> InPort | None:
        """Those that apply to a call; `None` where none does."""
        if self.every_call:
            return self.port
        edges = tuple(e for e in self.port.edges if _applies(e, call))
        return self.port._replace(edges=edges) if edges else None


class Station(NamedTuple):
    """What the graph wants of one submodule. `finishing` and `eager` are found out in each run (see `regions`)."""

    place: int
    module: nn.Module
    name: str
    into: Overrides | None = None
    out_of: Overrides | None = None
    entering: tuple[Capture, ...] = ()
    leaving: tuple[Capture, ...] = ()
    cached: bool = False
    finishing: bool = False
    eager: bool = False

    @property
    def has_ports(self) -> bool:
        """Whether a stitch starts or ends here."""
        return bool(self.into or self.out_of or self.entering or self.leaving)


class PortTable(NamedTuple):
    """Everything about one `ModuleTarget` in one graph."""

    node: str
    root: nn.Module
    stations: dict[int, Station]
    captures: tuple[Capture, ...]
    routes: tuple[tuple[nn.Module, tuple[str, ...]], ...]
    early_exit: bool
    cache: FakeCache


def _applies(edge: Edge, call: int) -> bool:
    return edge.port.call is None or edge.port.call == "all" or edge.port.call == call


def prepare(preparation: Preparation) -> PortTable:
    """Check the ports of a `ModuleTarget` and make its table.

    Raises:
        UnknownPortException: a name that no submodule has, or a submodule that can't be a port.
        ContradictionException: a port inside a submodule that never runs, because its output is overridden.
    """
    root = preparation.target.module  # type: ignore[attr-defined]
    node = preparation.node
    paths = dict(submodules(root))
    names: dict[int, list[str]] = {}
    for name, module in paths.items():
        names.setdefault(id(module), []).append(name)
    ports: list[InPort | OutPort] = [*preparation.inputs, *preparation.outputs]
    for port in ports:
        _check_name(node, port, paths)

    into = _overrides(preparation.inputs, "input", paths)
    out_of = _overrides(preparation.inputs, "output", paths)
    captures = tuple(
        Capture(i, port, 0 if port.call is None else port.call) for i, port in enumerate(preparation.outputs)
    )
    at: dict[int, None] = {id(paths[p.name]): None for p in ports}
    cached = _cached(preparation.cache_predicate, paths, set(at))
    stations: dict[int, Station] = {}
    for key in (*at, *cached):
        module = paths[names[key][0]]
        here = [c for c in captures if paths[c.port.name] is module]
        stations[key] = Station(
            place=len(stations),
            module=module,
            name=names[key][0],
            into=into.get(key),
            out_of=out_of.get(key),
            entering=tuple(c for c in here if c.port.kind == "input"),
            leaving=tuple(c for c in here if c.port.kind == "output"),
            cached=key in cached,
        )
    _check_contradictions(node, stations, paths, names)
    routes = tuple(
        (station.module, tuple(name.split(".")) if name else ())
        for key, station in stations.items()
        if station.has_ports
        for name in names[key]
    )
    early = preparation.early_exit and bool(captures) and not any(c.held for c in captures)
    return PortTable(node, root, stations, captures, routes, early, FakeCache())


def _check_name(node: str, port: InPort | OutPort, paths: dict[str, nn.Module]) -> None:
    descriptor = port.edges[0].port if isinstance(port, InPort) else port.exits[0].port
    said = port_text(descriptor, node)
    if port.name not in paths:
        near = nearest(str(port.name), list(paths))
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"it has {_some(paths)}"
        raise UnknownPortException(
            f"{said}: {type(paths['']).__name__} has no submodule {port.name!r}; {hint} "
            "(ModuleTarget.ports() lists them all)",
            node=node,
            port=said,
            nearest=tuple(near),
        )
    why = refusal(paths, port.name)
    if why:
        raise UnknownPortException(f"{said} can't be stitched: {why}", node=node, port=said)


def _some(paths: Iterable[str]) -> str:
    names = [repr(n) for n in paths]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _overrides(ports: Sequence[InPort], kind: str, paths: dict[str, nn.Module]) -> dict[int, Overrides]:
    gathered: dict[int, list[InPort]] = {}
    for port in ports:
        if port.kind == kind:
            gathered.setdefault(id(paths[port.name]), []).append(port)
    found = {}
    for key, same in gathered.items():
        # Two names of one module: their stitches meet in the order in which they were made, as one port's do.
        edges = tuple(sorted((e for p in same for e in p.edges), key=lambda e: e.slot))
        found[key] = Overrides(
            same[0]._replace(edges=edges),
            all(e.port.call in (None, "all") for e in edges),
            any(e.requires_original for e in edges),
        )
    return found


def _cached(
    predicate: Callable[[str, Any], bool] | None, paths: dict[str, nn.Module], ports: set[int]
) -> dict[int, None]:
    """Submodules whose fake answers are kept: those named by the predicate with no port on or in them."""
    if predicate is None:
        return {}
    busy = {id(paths[above]) for name, m in paths.items() if id(m) in ports for above in (*ancestors(name), name)}
    return {id(m): None for name, m in paths.items() if id(m) not in busy and predicate(name, m)}


def _check_contradictions(
    node: str, stations: dict[int, Station], paths: dict[str, nn.Module], names: dict[int, list[str]]
) -> None:
    for station in stations.values():
        over = station.out_of
        if over is None or over.requires_original or all(e.port.call not in (None, "all") for e in over.port.edges):
            continue
        skipper = port_text(over.port.edges[0].port, node)
        remedy = "override it for one call only (call=k), or with a reducer that has requires_original_output=True, and it runs"
        if station.into is not None:
            said = port_text(station.into.port.edges[0].port, node)
            raise ContradictionException(
                f"{said} and {skipper} contradict each other: the output is overridden at every call, so "
                f"{station.name!r} never runs and its new input is never used. Drop one, or {remedy}.",
                node=node,
                port=said,
            )
        for key, inner in stations.items():
            if not inner.has_ports or inner is station:
                continue
            if all(any(paths[a] is station.module for a in ancestors(n)) for n in names[key]):
                said = _any_port(inner, node)
                where = repr(station.name) if station.name else "the module itself"
                raise ContradictionException(
                    f"{said} is inside {where}, which never runs, because {skipper} overrides its output at every "
                    f"call. Drop one, or {remedy}.",
                    node=node,
                    port=said,
                )


def _any_port(station: Station, node: str) -> str:
    for over in (station.into, station.out_of):
        if over is not None:
            return port_text(over.port.edges[0].port, node)
    return port_text((*station.entering, *station.leaving)[0].port.exits[0].port, node)
