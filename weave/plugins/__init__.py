"""What a plugin is written with, and which plugins a knot sees.

A plugin is a module (or object) with functions marked `@hookimpl`, named in the entry-point group `weave.plugins`. The
hooks, with an example each, are the methods of `WeaveSpec`; they return the records below. An executor is given a
`Firing`, a record's `prepare` a `Preparation`; their ports are an `InPort` or an `OutPort`. A transport makes an `Endpoint`,
given a `Meeting`, which tells a `Hears` what comes.
"""

from weave.graph.plan import InPort, OutPort
from weave.plugins.loader import PluginRecord
from weave.plugins.plugin_set import PluginSet
from weave.plugins.registry import Registry
from weave.spi.events import (
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeReady,
    NodeStarted,
    Observer,
    Output,
    RunFinished,
    RunInfo,
    RunStarted,
    TransferFailed,
    TransferFinished,
    TransferStarted,
)
from weave.spi.executor import Executor, Firing, Preparation
from weave.spi.hooks import WeaveSpec, hookimpl
from weave.spi.records import AdapterDef, Command, ReducerDef, TargetType, TransportType
from weave.spi.transport import Endpoint, Hears, Meeting

__all__ = [
    "AdapterDef",
    "Command",
    "Endpoint",
    "Executor",
    "Firing",
    "Hears",
    "InPort",
    "Meeting",
    "NodeCancelled",
    "NodeFailed",
    "NodeFinished",
    "NodeReady",
    "NodeStarted",
    "Observer",
    "OutPort",
    "Output",
    "PluginRecord",
    "PluginSet",
    "Preparation",
    "ReducerDef",
    "Registry",
    "RunFinished",
    "RunInfo",
    "RunStarted",
    "TargetType",
    "TransferFailed",
    "TransferFinished",
    "TransferStarted",
    "TransportType",
    "WeaveSpec",
    "hookimpl",
]
