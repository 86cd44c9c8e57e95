"""Loading plugins and asking each what it provides.

pluggy's own loader stops at the first plugin that raises and drops duplicate names in silence, and one implementation
that raises aborts its call for all. So here each plugin is loaded by itself and asked by itself, and what went wrong
with one is kept in its record: a broken package must never break a run that doesn't use it, nor disappear unsaid.
"""

from __future__ import annotations

import difflib
import inspect
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, cast

import pluggy

from weave.errors import PluginException
from weave.plugins.finding import ALLOW, DENY, find, names_in, same
from weave.spi.hooks import WeaveSpec
from weave.spi.records import AdapterDef, Command, ReducerDef, TargetType, TransportType

# Modules through which weave comes to a plugin's code.
_NOT_THEIRS = ("weave.plugins.", "importlib", "pluggy.")  # `importlib._bootstrap` and others

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
        try:
            text = " ".join(str(self.error).split())
        except Exception:
            text = "(its text can't be shown)"
        text = f"{text[:300]}..." if len(text) > 300 else text
        return f"{type(self.error).__name__}: {text}" if text else type(self.error).__name__


def installed() -> list[PluginRecord]:
    """A record for each entry point of the group `weave.plugins`, in the order of their names.

    `WEAVE_PLUGINS` names those to load (others are disabled), `WEAVE_DISABLE_PLUGINS` those not to, by comma, by their own
    name or their distribution's; `*` is all. A name in `WEAVE_PLUGINS` that nothing has is a failed plugin's record.
    """
    allowed, denied = names_in(ALLOW), names_in(DENY)
    records: list[PluginRecord] = []
    loaded: list[tuple[Any, PluginRecord]] = []
    everything = find()
    for found in everything:
        facts: dict[str, Any] = {"distribution": found.distribution, "version": found.version}
        if (allowed and not found.named_in(allowed)) or found.named_in(denied):
            records.append(PluginRecord(name=found.name, status="disabled", **facts))
            continue
        try:
            if found.point is None:
                raise PluginException(f"its entry points can't be read: {found.error}") from found.error
            plugin = found.point.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a module that calls sys.exit() when it is imported, too
            records.append(_failed(found.name, error, facts))
            continue
        twin = next((record for other, record in loaded if other is plugin), None)
        if twin is not None:
            same_object = PluginException(f"the same object as the plugin {twin.owner}", name=found.name)
            records.append(_failed(found.name, same_object, facts))
            continue
        records.append(examine(plugin, found.name, **facts))
        loaded.append((plugin, records[-1]))
    known = {same(name) for found in everything for name in (found.name, found.distribution)}
    for key in allowed.keys() - known - {"*"}:
        near = difflib.get_close_matches(key, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        missing = PluginException(f"{ALLOW} names it, and no installed package brings it{hint}", name=allowed[key])
        records.append(_failed(allowed[key], missing, {}))
    return records


def name_of(plugin: Any) -> str:
    """What to call a plugin that was given as an object."""
    named = getattr(plugin, "__name__", None)
    return str(named) if isinstance(named, str) else type(plugin).__name__


def examine(plugin: Any, name: str, *, builtin: bool = False, **facts: Any) -> PluginRecord:
    """Ask a plugin what it provides. Whatever goes wrong with it ends up in the record."""
    hooks: list[str] = []
    provides: dict[str, tuple[Any, ...]] = {}
    try:
        if inspect.isclass(plugin):
            plugin = plugin()  # pluggy would register its functions without a self
        manager = pluggy.PluginManager("weave")
        manager.add_hookspecs(WeaveSpec)
        remarks = list(_oddities(plugin))
        manager.register(plugin, name)
        for hook in HOOKS:
            if any(impl.plugin is plugin for impl in getattr(manager.hook, hook).get_hookimpls()):
                hooks.append(hook)
                if hook in RECORDS:
                    provides[hook] = _asked(manager, hook)
        if not hooks and not remarks:
            remarks.append(f"it implements no hook of weave's; there are {', '.join(HOOKS)}")
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


def sentences(*said: str) -> str:
    """One behind another, with full stops between those that don't end in a question."""
    given = [text for text in said if text]
    return " ".join([*(text if text.endswith("?") else f"{text}." for text in given[:-1]), *given[-1:]])


def _failed(name: str, error: BaseException, facts: Mapping[str, Any], **more: Any) -> PluginRecord:
    trace = "".join(traceback.format_exception(type(error), error, _plugins_own(error)))
    return PluginRecord(name=name, status="failed", error=error, trace=trace, **facts, **more)


def _plugins_own(error: BaseException) -> TracebackType | None:
    """Where the error's traceback enters the plugin's code; all of it, where it never does."""
    left = error.__traceback__
    while left is not None and left.tb_frame.f_globals.get("__name__", "").startswith(_NOT_THEIRS):
        left = left.tb_next
    return left or error.__traceback__


def _asked(manager: pluggy.PluginManager, hook: str) -> tuple[Any, ...]:
    """The records that the one plugin's implementation returned."""
    kind: Any = RECORDS[hook]
    [answer] = getattr(manager.hook, hook)() or [()]
    if isinstance(answer, kind):
        raise TypeError(f"{hook}() must return a list of {kind.__name__} records, not one alone")
    records = tuple(answer)
    for record in records:
        if not isinstance(record, kind):
            raise TypeError(f"{hook}() must return {kind.__name__} records, not {type(record).__name__}")
        fault = _fault(record)
        if fault:
            raise TypeError(f"{hook}(): the {kind.__name__} {record.name!r} {fault}")
    return records


def _fault(record: Any) -> str:
    """What is wrong with a record that nobody could use; found here, it is its plugin that fails and not a knot."""
    if not isinstance(record.name, str) or not record.name:
        return "needs a string for a name"
    if isinstance(record, TargetType):
        target, executor = cast(Any, record.target), cast(Any, record.executor)
        if not isinstance(target, type):
            return f"needs a class as target=, not {target!r}"
        if executor is not None and not callable(getattr(executor, "fire", None)):
            return f"needs an executor with a method fire(firing), not {executor!r}"
        return ""
    words = ("run", "add_arguments") if isinstance(record, Command) else ("fn",)
    for word in ("connect",) if isinstance(record, TransportType) else words:
        if not callable(getattr(record, word)):
            return f"needs a function as {word}=, not {getattr(record, word)!r}"
    if isinstance(record, ReducerDef | AdapterDef):
        if record.kind not in (("input", "output") if isinstance(record, ReducerDef) else ("input", "output", None)):
            return f'has kind={record.kind!r}, which is neither "input" nor "output"'
        if inspect.iscoroutinefunction(record.fn):
            return "has an async function: reducers and adapters are called without awaiting what they return"
    return ""


def _oddities(plugin: Any) -> Iterator[str]:
    """Remarks on names that look like hooks and are none. Raises where a hook can't work at all."""
    for name in dir(plugin):
        function = inspect.getattr_static(plugin, name, None)
        if isinstance(function, staticmethod | classmethod):
            function = function.__func__
        marked = getattr(function, "weave_impl", None) if inspect.isroutine(function) else None
        if marked is None and not (name.startswith("weave_") and callable(function)):
            continue
        hook = (marked and marked.get("specname")) or name
        if hook not in HOOKS:
            if marked and marked.get("optionalhook"):
                continue  # pluggy's word for a hook that this version may not have
            near = difflib.get_close_matches(hook, HOOKS, n=1)
            if near or marked:  # a function of the plugin's own may be called weave_something
                hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(HOOKS)}"
                yield f"{hook} is no hook of weave's{hint}"
        elif not marked:
            yield f"{name} is not marked with @hookimpl, so it is not called"
        elif inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"{name} is an async function: hooks are called while a graph is tied, without an event loop. Make it a "
                "plain function; what its records hold may be async"
            )
