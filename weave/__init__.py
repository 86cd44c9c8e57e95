"""weave: stitch named inputs and outputs of submodules, functions and constants into one graph, and run it.

Layout, from the ground up (imports go one way, import-linter says so):

    errors      every exception
    graph/      what a graph is: targets, ports, stitches, checks, the plan
    spi/        what can be added: hook specs, records, the executor protocol
    observe/    what a run says: events, recordings, traces, log lines, the page
    device/     torch's own state: tensors' versions, thread-local modes
    passage/    one forward of one module, with captures and overrides inside it
    engine/     when things run: a run's state, the inline and the tasks driver, streams, the synchronous facade
    plugins/    finding plugins, and the registry of what they provide
    remote/     other ranks: the link between them, what travels on it, the built-in transports
    builtin/    weave's own, through the same hooks as anybody's
    stitched    StitchedModule, an nn.Module
    needle      Needle: stitch and knot
    testing/    for tests of concurrent graphs: orders forced or recorded; in suites/ what a plugin's tests subclass
    core        the API of the seed document, nothing else
    cli/ demo/  the command

Importing weave imports neither torch nor any of the above: names load when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_CORE = (
    "CantResolveNodeDependenciesException",
    "ConstantTarget",
    "ExternalTarget",
    "FunctionTarget",
    "IOReducer",
    "InputArgs",
    "InputDescriptor",
    "InputReducer",
    "InputsLoopFoundException",
    "KnotException",
    "LoopFoundException",
    "ModuleTarget",
    "MultipleExternalNodesException",
    "Needle",
    "Node",
    "OnlyInternalNodesException",
    "OutputDescriptor",
    "OutputReducer",
    "OutputsLoopFoundException",
    "RemoteDataDescriptor",
    "RemotePythonDataDescriptor",
    "RemoteTarget",
    "RemoteTensorDataDescriptor",
    "Singleton",
    "StitchDescriptor",
    "StitchedModule",
    "StitchedModuleException",
    "StitchedModuleOutput",
    "Target",
    "TargetWithInput",
    "TargetWithNamedInputs",
    "TargetWithNamedOutputs",
    "TargetWithOutput",
    "default_input_adapter_fn",
    "default_input_reducer_fn",
    "default_output_adapter_fn",
    "default_output_reducer_fn",
)
_ERRORS = (
    "ChangedInPlaceException",
    "CheckpointException",
    "ContradictionException",
    "GraphMismatchException",
    "OverridesException",
    "PeerLostException",
    "PluginException",
    "PluginWarning",
    "PortNotReachedException",
    "RemoteException",
    "TraceException",
    "UnknownPortException",
    "WireException",
)
_HOME = {
    **dict.fromkeys(_CORE, "weave.core"),
    **dict.fromkeys(_ERRORS, "weave.errors"),
    "Plan": "weave.graph.plan",
    "RunOptions": "weave.engine.options",
    "fake_tensor": "weave.passage.fake",
}

__all__ = [*_HOME, "__version__"]

if TYPE_CHECKING:  # "X as X" is how a type checker is told that a name is meant for others
    from weave.core import *
    from weave.engine.options import RunOptions as RunOptions
    from weave.errors import ChangedInPlaceException as ChangedInPlaceException
    from weave.errors import CheckpointException as CheckpointException
    from weave.errors import ContradictionException as ContradictionException
    from weave.errors import GraphMismatchException as GraphMismatchException
    from weave.errors import OverridesException as OverridesException
    from weave.errors import PeerLostException as PeerLostException
    from weave.errors import PluginException as PluginException
    from weave.errors import PluginWarning as PluginWarning
    from weave.errors import PortNotReachedException as PortNotReachedException
    from weave.errors import RemoteException as RemoteException
    from weave.errors import TraceException as TraceException
    from weave.errors import UnknownPortException as UnknownPortException
    from weave.errors import WireException as WireException
    from weave.graph.plan import Plan as Plan
    from weave.passage.fake import fake_tensor as fake_tensor


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'weave' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
