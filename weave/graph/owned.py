"""What of a graph belongs to the `StitchedModule` as an `nn.Module`, and under which keys.

A module in two targets appears once, under the first one's node id; so does one that is inside another target's module
(its parameters already have a name there). Adapters and reducers that are modules are called by their port.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn

from weave.graph.descriptors import IODescriptor
from weave.graph.plan import Plan
from weave.graph.targets import Target


def owned_modules(
    ids: Mapping[Target, str], plan: Plan, owned: Callable[[Target], Iterable[Any]]
) -> dict[str, nn.Module | nn.Parameter]:
    """Modules and parameters to register, by a key that `state_dict` can use."""
    candidates: list[tuple[str, Any]] = [(node, thing) for target, node in ids.items() for thing in owned(target)]
    ports: dict[int, tuple[IODescriptor, list[tuple[Any, str]]]] = {}
    for edge in () if plan.plain else plan.edges:
        if edge.adapter is not None or edge.reducer is not None:
            things = [(edge.port.adapter, "adapter"), (getattr(edge.port.reducer, "reducer_fn", None), "reducer")]
            ports.setdefault(id(edge.port), (edge.port, things))
    for exits in () if plan.plain else (plan.given, *(unit.exits for unit in plan.units)):
        for way in exits:
            if way.adapter is not None:
                ports.setdefault(id(way.port), (way.port, []))[1].append((way.port.adapter, "adapter"))
    for port, things in ports.values():
        parts = [ids[port.target], port.kind, *([port.name] if port.name else [])]
        candidates += [("_".join([*parts, what]), thing) for thing, what in things if isinstance(thing, nn.Module)]

    inside: dict[int, int] = {}
    for _, thing in candidates:
        if isinstance(thing, nn.Module):
            for module in thing.modules():
                if module is not thing:
                    inside.setdefault(id(module), id(thing))
    kept: dict[str, nn.Module | nn.Parameter] = {}
    seen = set[int]()
    for name, thing in candidates:
        if id(thing) in seen or id(thing) in inside:
            continue
        seen.add(id(thing))
        kept[_key(name, kept)] = thing
    return kept


def _key(name: str, taken: Mapping[str, Any]) -> str:
    # A dot would look like a level of the tree, and torch refuses empty names.
    base = key = name.replace(".", "_") or "unnamed"
    count = 1
    while key in taken:
        count += 1
        key = f"{base}#{count}"
    return key
