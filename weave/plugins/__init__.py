"""Plugins: what is registered, and the lookup of target types, reducers and adapters."""

from weave.plugins.registry import Registry
from weave.spi.hooks import hookimpl
from weave.spi.records import AdapterDef, ReducerDef, TargetType

__all__ = ["AdapterDef", "ReducerDef", "Registry", "TargetType", "hookimpl"]
