"""What of a graph belongs to the `StitchedModule` as an `nn.Module`, and under which keys.

A module in two targets appears once, under the first one's node id; so does one that is inside another target's module
(its parameters already have a name there). Adapters and reducers that are modules are called by their port.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from weave.graph.descriptors import IODescriptor, StitchDescriptor
from weave.graph.plan import Plan
from weave.graph.reducers import IOReducer
from weave.graph.targets import Target


def owned_modules(
    ending: Mapping[Target, Sequence[StitchDescriptor]], plan: Plan, owned: Callable[[Target], Iterable[Any]]
) -> dict[str, nn.Module | nn.Parameter]:
    """Modules and parameters to register, by a key that `state_dict` can use."""
    candidates: list[tuple[str, Any]] = []
    for target in ending:
        candidates += [(plan.nodes[target], thing) for thing in owned(target)]
    ports: dict[int, IODescriptor] = {}
    for edge in plan.edges:
        for port in (edge.stitch.source_descriptor, edge.port):
            ports.setdefault(id(port), port)
    for port in ports.values():
        parts = [plan.nodes[port.target], port.kind, *([port.name] if port.name else [])]
        reducer = port.reducer.reducer_fn if isinstance(port.reducer, IOReducer) else None
        for thing, what in ((port.adapter, "adapter"), (reducer, "reducer")):
            if isinstance(thing, nn.Module):
                candidates.append(("_".join([*parts, what]), thing))

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
