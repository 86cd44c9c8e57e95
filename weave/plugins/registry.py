"""The registry: target types by class, reducers and adapters by name, filled through the hooks.

Each plugin's hook is called by itself: one that raises would otherwise abort pluggy's whole call.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, TypeVar

import pluggy

from weave.errors import PluginException
from weave.graph.targets import Target
from weave.spi.hooks import WeaveSpec
from weave.spi.records import AdapterDef, ReducerDef, TargetType

_R = TypeVar("_R")


class Registry:
    """What a set of plugins provides. Looked at while a knot is tied, never in a run."""

    def __init__(self, plugins: Iterable[Any]) -> None:
        manager = pluggy.PluginManager("weave")
        manager.add_hookspecs(WeaveSpec)
        for plugin in plugins:
            manager.register(plugin)
        self._types: dict[type, list[tuple[str, TargetType]]] = {}
        self._found: dict[type, TargetType] = {}
        self._reducers: dict[tuple[str, str], list[tuple[str, ReducerDef]]] = {}
        self._adapters: dict[str, list[tuple[str, AdapterDef]]] = {}
        for name, plugin in manager.list_name_plugin():
            others = [p for _, p in manager.list_name_plugin() if p is not plugin]
            for record in _call(manager, "weave_target_types", others):
                self._types.setdefault(record.target, []).append((name, record))
            for record in _call(manager, "weave_reducers", others):
                self._reducers.setdefault((record.kind, record.name), []).append((name, record))
            for record in _call(manager, "weave_adapters", others):
                self._adapters.setdefault(record.name, []).append((name, record))

    def target_type(self, target: Target) -> TargetType:
        """The record for a target: that of its class, or of the nearest class it derives from."""
        found = self._found.get(type(target))
        if found is not None:
            return found
        for cls in type(target).__mro__:
            if cls in self._types:
                found = self._found[type(target)] = _only(self._types[cls], f"the target type {cls.__name__}")
                return found
        known = ", ".join(sorted(cls.__name__ for cls in self._types))
        raise PluginException(
            f"no executor is registered for {type(target).__name__} targets (known: {known}); "
            "a plugin's weave_target_types() must return a TargetType for it",
            name=type(target).__name__,
        )

    def reducer(self, name: str, kind: str) -> ReducerDef:
        """The reducer of that name for that kind of port."""
        if (kind, name) in self._reducers:
            return _only(self._reducers[kind, name], f"the {kind} reducer {name!r}")
        raise _unknown(f"{kind} reducer", name, [n for k, n in self._reducers if k == kind])

    def adapter(self, name: str, kind: str) -> AdapterDef:
        """The adapter of that name, if it is for that kind of port."""
        if name in self._adapters:
            record = _only(self._adapters[name], f"the adapter {name!r}")
            if record.kind in (None, kind):
                return record
            raise PluginException(f"the adapter {name!r} is for {record.kind} ports, not for {kind} ports", name=name)
        raise _unknown("adapter", name, list(self._adapters))


def _call(manager: pluggy.PluginManager, hook: str, others: list[Any]) -> list[Any]:
    results = manager.subset_hook_caller(hook, others)()
    return [record for records in results for record in records]


def _only(claims: list[tuple[str, _R]], what: str) -> _R:
    if len(claims) > 1:
        raise PluginException(
            f"{what} is claimed by several plugins: {', '.join(owner for owner, _ in claims)}; disable all but one"
        )
    return claims[0][1]


def _unknown(what: str, name: str, names: Iterable[str]) -> PluginException:
    names = sorted(names)
    near = difflib.get_close_matches(name, names, n=3)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(names) or 'none'}"
    return PluginException(f"no {what} is called {name!r}; {hint}", name=name, nearest=tuple(near))
