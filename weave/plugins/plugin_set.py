"""`PluginSet`: which plugins a knot sees."""

from __future__ import annotations

import importlib
import sys
import threading
import types
import warnings
from collections.abc import Iterable
from typing import Any, Self

from weave.errors import PluginException, PluginWarning
from weave.plugins.finding import DENY, STRICT, strict
from weave.plugins.loader import PluginRecord, examine, installed, name_of, sentences

# Two first knots in two threads load once. Reentrant, so that a plugin which ties a knot while it is imported is told
# so, instead of waiting for itself.
_lock = threading.RLock()
_kept: list[PluginSet] = []  # at most one: what is installed
_loading = False


class PluginSet:
    """Plugins beside the built-in ones, for `knot(plugins=...)`.

    `PluginSet.installed()` is what the installed packages bring, and a knot's default; it is loaded at the first knot.
    `PluginSet(plugin, ...)` takes modules or objects with hook implementations, for embedding and for tests;
    `PluginSet()` is the built-ins alone. `+` adds two sets. A plugin that is given twice counts once.

    Raises:
        PluginException: a plugin given by hand does not work. One that is installed is only warned of, unless
            `WEAVE_PLUGINS_STRICT=1`.
    """

    def __init__(self, *plugins: Any) -> None:
        different = {id(plugin): plugin for plugin in plugins}
        records = tuple(examine(plugin, name_of(plugin)) for plugin in different.values())
        for record in records:
            if record.error is not None:
                raise PluginException(
                    f"the plugin {record.owner} does not work: {record.why}", name=record.name
                ) from record.error
        _warn(records)
        self.records: tuple[PluginRecord, ...] = records

    @classmethod
    def of(cls, records: Iterable[PluginRecord]) -> PluginSet:
        """A set of plugins that have been examined."""
        made = cls()
        made.records = tuple(records)
        return made

    @classmethod
    def installed(cls) -> PluginSet:
        """What the installed packages bring. Loaded once in a process; `PluginSet.forget()` has it loaded anew."""
        with _lock:
            if not _kept:
                _load()
            return _kept[0]

    @staticmethod
    def forget() -> None:
        """Look for installed packages again at the next knot."""
        with _lock:
            importlib.invalidate_caches()  # a package may have been installed since
            _kept.clear()

    @property
    def failed(self) -> tuple[PluginRecord, ...]:
        """The plugins that could not be loaded."""
        return tuple(record for record in self.records if record.status == "failed")

    def __add__(self, other: PluginSet) -> PluginSet:
        known = {id(record.plugin) for record in self.records if record.plugin is not None}
        return PluginSet.of([*self.records, *(r for r in other.records if id(r.plugin) not in known)])

    def __repr__(self) -> str:
        return f"PluginSet({', '.join(record.name for record in self.records)})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # Plugins are code rather than the graph's data: a copy of a graph has the same, connections and locks included.
        return self

    def __reduce__(self) -> Any:
        # Modules don't pickle; their names do.
        plugins = [r.plugin for r in self.records if r.status == "loaded"]
        return _restored, ([p.__name__ if isinstance(p, types.ModuleType) else p for p in plugins],)


def _restored(plugins: list[Any]) -> PluginSet:
    return PluginSet(*[importlib.import_module(p) if isinstance(p, str) else p for p in plugins])


def _load() -> None:
    global _loading
    if _loading:
        raise PluginException(
            "a plugin ties a knot while it is being loaded, which would load the plugins: let it tie the knot later, or "
            "say which plugins that knot sees, knot(plugins=PluginSet())"
        )
    _loading = True
    try:
        records = installed()
    finally:
        _loading = False
    bad = [record for record in records if record.status == "failed"]
    if bad and strict():
        said = "; ".join(f"{record.owner}: {record.why}" for record in bad)
        number = "an installed plugin" if len(bad) == 1 else f"{len(bad)} installed plugins"
        raise PluginException(f"{number} could not be loaded, and {STRICT} is set: {said}", name=bad[0].name) from bad[
            0
        ].error
    _kept.append(PluginSet.of(records))
    _warn(records)  # last: where warnings are errors, the next knot works


def _warn(records: Iterable[PluginRecord]) -> None:
    """One warning for all that is wrong: it comes at somebody's first knot, who may have nothing to do with it."""
    records = list(records)
    said = [f"{record.owner} could not be loaded ({record.why})" for record in records if record.status == "failed"]
    said += [f"{record.owner}: {remark}" for record in records for remark in record.remarks]
    if said:
        warnings.warn(
            "weave's plugins: "
            + sentences("; ".join(said), f"`weave plugins check` shows more; {DENY}=NAME,... leaves plugins out"),
            PluginWarning,
            stacklevel=_outside(),
        )


def _outside() -> int:
    """The `stacklevel` of whoever called weave: it is at his line that Python shows a warning."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "weave":
        level, frame = level + 1, frame.f_back
    return level
