"""Finding plugins and asking each what it provides.

pluggy's own loader stops at the first plugin that raises and drops duplicate names in silence, and one implementation
that raises aborts its call for all. So here each plugin is loaded by itself and asked by itself, and what went wrong
with one is kept in its record: a broken package must never break a run that doesn't use it, nor disappear unsaid.
"""

from __future__ import annotations

import difflib
import inspect
import os
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Literal

import pluggy

from weave.errors import PluginException
from weave.spi.hooks import WeaveSpec
from weave.spi.records import AdapterDef, Command, ReducerDef, TargetType, TransportType

GROUP = "weave.plugins"

# What each hook's implementation returns a sequence of. `weave_observer` is asked at each run instead.
RECORDS: Mapping[str, type] = {
    "weave_target_types": TargetType,
    "weave_reducers": ReducerDef,
    "weave_adapters": AdapterDef,
    "weave_transports": TransportType,
    "weave_commands": Command,
}
HOOKS = (*RECORDS, "weave_observer")


@dataclass(frozen=True, kw_only=True)
class PluginRecord:
    """A plugin, loaded or not.

    Attributes:
        name: the entry point's name; of an object given by hand, its own.
        status: "loaded", "failed" or "disabled".
        distribution: the package that brings it, `""` for an object given by hand.
        version: of that package.
        plugin: the module or object with the hook implementations, `None` where it could not be loaded.
        hooks: which hooks it implements.
        provides: by hook, the records it returned.
        error: why it failed.
        trace: the traceback as text.
        remarks: what is odd about it though it loaded, such as a misspelt hook.
        builtin: whether it comes with weave.
        observe: calls its `weave_observer(run=...)`, where it has one; returns a list.
    """

    name: str
    status: Literal["loaded", "failed", "disabled"]
    distribution: str = ""
    version: str = ""
    plugin: Any = None
    hooks: tuple[str, ...] = ()
    provides: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    error: BaseException | None = None
    trace: str = ""
    remarks: tuple[str, ...] = ()
    builtin: bool = False
    observe: Any = None

    @property
    def owner(self) -> str:
        """How messages name it."""
        return f"{self.name!r} ({self.distribution} {self.version})" if self.distribution else repr(self.name)

    @property
    def why(self) -> str:
        """The error in one line."""
        if self.error is None:
            return ""
        text = str(self.error).strip().splitlines()
        return f"{type(self.error).__name__}: {text[0]}" if text else type(self.error).__name__


def installed() -> list[PluginRecord]:
    """A record for each entry point of the group `weave.plugins`, in the order of their names.

    `WEAVE_PLUGINS` names those to load (others are disabled), `WEAVE_DISABLE_PLUGINS` those not to, by comma; `*` is all.
    """
    allowed, denied = _names("WEAVE_PLUGINS"), _names("WEAVE_DISABLE_PLUGINS")
    records: list[PluginRecord] = []
    for point in sorted(metadata.entry_points(group=GROUP), key=lambda p: (p.name, p.value)):
        dist = point.dist
        facts: dict[str, Any] = {"distribution": dist.name, "version": dist.version} if dist is not None else {}
        names = {point.name, facts.get("distribution", ""), "*"}
        if (allowed and not names & allowed) or names & denied:
            records.append(PluginRecord(name=point.name, status="disabled", **facts))
            continue
        try:
            plugin = point.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a module that calls sys.exit() when it is imported, too
            records.append(_failed(point.name, error, facts))
            continue
        twin = next((r for r in records if r.plugin is plugin), None)
        if twin is not None:
            same = PluginException(f"the same object as the plugin {twin.owner}", name=point.name)
            records.append(_failed(point.name, same, facts))
            continue
        records.append(examine(plugin, point.name, **facts))
    return records


def _names(variable: str) -> set[str]:
    return {name.strip() for name in os.environ.get(variable, "").split(",") if name.strip()}


def name_of(plugin: Any) -> str:
    """What to call a plugin that was given as an object."""
    named = getattr(plugin, "__name__", None)
    return str(named) if isinstance(named, str) else type(plugin).__name__


def examine(plugin: Any, name: str, *, builtin: bool = False, **facts: Any) -> PluginRecord:
    """Ask a plugin what it provides. Whatever goes wrong with it ends up in the record."""
    if inspect.isclass(plugin):
        try:
            plugin = plugin()  # pluggy would register its functions without a self
        except Exception as error:
            return _failed(name, error, facts)
    hooks: list[str] = []
    provides: dict[str, tuple[Any, ...]] = {}
    try:
        manager = pluggy.PluginManager("weave")
        manager.add_hookspecs(WeaveSpec)
        remarks = list(_oddities(plugin))
        manager.register(plugin, name)
        for hook in HOOKS:
            if any(impl.plugin is plugin for impl in getattr(manager.hook, hook).get_hookimpls()):
                hooks.append(hook)
                if hook in RECORDS:
                    provides[hook] = _asked(manager, hook)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return _failed(name, error, facts, plugin=plugin, hooks=tuple(hooks))
    return PluginRecord(
        name=name,
        status="loaded",
        plugin=plugin,
        hooks=tuple(hooks),
        provides=provides,
        remarks=tuple(remarks),
        builtin=builtin,
        observe=manager.hook.weave_observer if "weave_observer" in hooks else None,
        **facts,
    )


def _failed(name: str, error: BaseException, facts: Mapping[str, Any], **more: Any) -> PluginRecord:
    trace = "".join(traceback.format_exception(error))
    return PluginRecord(name=name, status="failed", error=error, trace=trace, **facts, **more)


def _asked(manager: pluggy.PluginManager, hook: str) -> tuple[Any, ...]:
    """The records that the one plugin's implementation returned."""
    kind = RECORDS[hook]
    [answer] = getattr(manager.hook, hook)() or [()]
    records = tuple(answer)
    for record in records:
        if not isinstance(record, kind):
            raise TypeError(f"{hook}() must return {kind.__name__} records, not {type(record).__name__}")
    return records


def _oddities(plugin: Any) -> Iterator[str]:
    """Remarks on names that look like hooks and are none. Raises where a hook can't work at all."""
    for name in sorted(n for n in dir(plugin) if n.startswith("weave_")):
        function = inspect.getattr_static(plugin, name)
        if isinstance(function, staticmethod | classmethod):
            function = function.__func__
        if not callable(function):
            continue
        marked = hasattr(function, "weave_impl")
        if name not in HOOKS:
            near = difflib.get_close_matches(name, HOOKS, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(HOOKS)}"
            yield f"{name} is no hook of weave's{hint}"
        elif not marked:
            yield f"{name} is not marked with @hookimpl, so it is not called"
        elif inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"{name} is an async function: hooks are called while a graph is tied, without an event loop. Make it a "
                "plain function; what its records hold may be async"
            )
