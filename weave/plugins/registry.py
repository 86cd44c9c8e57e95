"""The registry: what a set of plugins provides, by class and by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from weave.errors import PluginException
from weave.graph.targets import Target
from weave.plugins.loader import PluginRecord, examine, name_of, sentences
from weave.spi.records import AdapterDef, Command, ReducerDef, TargetType, TransportType

_R = TypeVar("_R")
_Claims = list[tuple[str, _R]]


class Registry:
    """Looked at while a knot is tied, never in a run, but for `observers`, which a run asks once.

    Names and classes that two plugins claim are kept for both, and refused when somebody uses one: neither breaks those
    who don't.
    """

    def __init__(self, plugins: Iterable[Any]) -> None:
        """From records, or from the plugins themselves."""
        self.records = [p if isinstance(p, PluginRecord) else examine(p, name_of(p)) for p in plugins]
        # Implementations of weave_observer, with their owners.
        self.observers: list[tuple[str, Callable[..., Any]]] = []
        self._types: dict[type, _Claims[TargetType]] = {}
        self._found: dict[type, TargetType] = {}
        self._reducers: dict[tuple[str, str], _Claims[ReducerDef]] = {}
        self._adapters: dict[str, _Claims[AdapterDef]] = {}
        self._transports: dict[str, _Claims[TransportType]] = {}
        self._commands: dict[str, _Claims[Command]] = {}
        for record in self.records:
            given = record.provides
            for kind in given.get("weave_target_types", ()):
                self._types.setdefault(kind.target, []).append((record.owner, kind))
            for reducer in given.get("weave_reducers", ()):
                self._reducers.setdefault((reducer.kind, reducer.name), []).append((record.owner, reducer))
            for hook, table in (
                ("weave_adapters", self._adapters),
                ("weave_transports", self._transports),
                ("weave_commands", self._commands),
            ):
                named: dict[str, _Claims[Any]] = table
                for provided in given.get(hook, ()):
                    named.setdefault(provided.name, []).append((record.owner, provided))
            if record.observe is not None:
                self.observers.append((record.owner, record.observe))

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
            self._missed(
                f"no executor is registered for {type(target).__name__} targets (known: {known}); "
                "a plugin's weave_target_types() must return a TargetType for it"
            ),
            name=type(target).__name__,
        )

    def reducer(self, name: str, kind: str) -> ReducerDef:
        """The reducer of that name for that kind of port."""
        if (kind, name) in self._reducers:
            return _only(self._reducers[kind, name], f"the {kind} reducer {name!r}")
        raise self._unknown(f"{kind} reducer", name, [n for k, n in self._reducers if k == kind])

    def adapter(self, name: str, kind: str) -> AdapterDef:
        """The adapter of that name, if it is for that kind of port."""
        record = self._named("adapter", name, self._adapters)
        if record.kind in (None, kind):
            return record
        raise PluginException(f"the adapter {name!r} is for {record.kind} ports, not for {kind} ports", name=name)

    def transport(self, scheme: str) -> TransportType:
        """The transport of that scheme."""
        return self._named("transport", scheme, self._transports)

    def command(self, name: str) -> Command:
        """The subcommand of that name."""
        return self._named("command", name, self._commands)

    @property
    def commands(self) -> Mapping[str, Sequence[tuple[str, Command]]]:
        """The subcommands by name, each with its owner: several where several plugins claim it."""
        return self._commands

    @property
    def conflicts(self) -> Sequence[tuple[str, tuple[str, ...]]]:
        """What is claimed more than once, and by whom: refused when somebody uses it. Of commands, see `commands`."""
        tables: list[tuple[str, Mapping[Any, _Claims[Any]]]] = [
            ("target type {0.__name__}", self._types),
            ("{0[0]} reducer {0[1]!r}", self._reducers),
            ("adapter {0!r}", self._adapters),
            ("transport {0!r}", self._transports),
        ]
        return [
            (what.format(key), tuple(owner for owner, _ in claims))
            for what, table in tables
            for key, claims in table.items()
            if len(claims) > 1
        ]

    def _named(self, what: str, name: str, table: Mapping[str, _Claims[_R]]) -> _R:
        if name in table:
            return _only(table[name], f"the {what} {name!r}")
        raise self._unknown(what, name, table)

    def _unknown(self, what: str, name: str, names: Iterable[str]) -> PluginException:
        names = sorted(names)
        near = difflib.get_close_matches(name, names, n=3)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(names) or 'none'}"
        said = self._missed(f"no {what} is called {name!r}; {hint}")
        return PluginException(said, name=name, nearest=tuple(near))

    def _missed(self, said: str) -> str:
        """With the plugins that failed or are disabled, for whoever misses a name: it may have been theirs."""
        failed = [f"{record.owner}: {record.why}" for record in self.records if record.status == "failed"]
        disabled = [record.owner for record in self.records if record.status == "disabled"]
        return sentences(
            said,
            f"Plugins that could not be loaded, and may bring it: {'; '.join(failed)}" if failed else "",
            f"Plugins that are disabled: {', '.join(disabled)}" if disabled else "",
        )


def _only(claims: _Claims[_R], what: str) -> _R:
    if len(claims) > 1:
        owners = list(dict.fromkeys(owner for owner, _ in claims))
        if len(owners) == 1:
            raise PluginException(
                f"{what} is claimed {len(claims)} times by the plugin {owners[0]}, which must give each a name of its own"
            )
        raise PluginException(
            f"{what} is claimed by several plugins: {', '.join(owners)}. Leave out all but one: "
            "WEAVE_DISABLE_PLUGINS=NAME, or knot(plugins=PluginSet(...))"
        )
    return claims[0][1]
