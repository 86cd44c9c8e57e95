"""The hooks: everything that can be added to weave, in one class. Pluggy registers; the engine runs.

Hooks are synchronous and return records. Entry-point group `weave.plugins`; a hook's name begins with `weave_`.
"""

from __future__ import annotations

from collections.abc import Iterable

import pluggy

from weave.spi.records import AdapterDef, ReducerDef, TargetType

hookspec = pluggy.HookspecMarker("weave")
hookimpl = pluggy.HookimplMarker("weave")


class WeaveSpec:
    """The hooks that a plugin may implement."""

    @hookspec
    def weave_target_types(self) -> Iterable[TargetType]:  # type: ignore[empty-body]
        """Kinds of target, each with its executor."""

    @hookspec
    def weave_reducers(self) -> Iterable[ReducerDef]:  # type: ignore[empty-body]
        """Reducers that can be asked for by name: `target.input("x", reducer="mean")`."""

    @hookspec
    def weave_adapters(self) -> Iterable[AdapterDef]:  # type: ignore[empty-body]
        """Adapters that can be asked for by name: `target.output("x", adapter="clone")`."""
