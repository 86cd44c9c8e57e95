"""What a plugin is written with, and which plugins a knot sees.

A plugin is a module (or object) with functions marked `@hookimpl`, named in the entry-point group `weave.plugins`. The
hooks, with an example each, are the methods of `WeaveSpec`; they return the records below.
"""

from weave.plugins.loader import PluginRecord
from weave.plugins.plugin_set import PluginSet
from weave.plugins.registry import Registry
from weave.spi.events import (
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeStarted,
    Observer,
    RunFinished,
    RunInfo,
    RunStarted,
)
from weave.spi.hooks import WeaveSpec, hookimpl
from weave.spi.records import AdapterDef, Command, ReducerDef, TargetType, TransportType

__all__ = [
    "AdapterDef",
    "Command",
    "NodeCancelled",
    "NodeFailed",
    "NodeFinished",
    "NodeStarted",
    "Observer",
    "PluginRecord",
    "PluginSet",
    "ReducerDef",
    "Registry",
    "RunFinished",
    "RunInfo",
    "RunStarted",
    "TargetType",
    "TransportType",
    "WeaveSpec",
    "hookimpl",
]
