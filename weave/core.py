"""The API of the seed document in one place, and nothing else."""

from weave.errors import (
    CantResolveNodeDependenciesException,
    InputsLoopFoundException,
    KnotException,
    LoopFoundException,
    MultipleExternalNodesException,
    OnlyInternalNodesException,
    OutputsLoopFoundException,
    StitchedModuleException,
)
from weave.graph.adapters import default_input_adapter_fn, default_output_adapter_fn
from weave.graph.args import InputArgs
from weave.graph.descriptors import (
    InputDescriptor,
    Node,
    OutputDescriptor,
    RemoteDataDescriptor,
    RemotePythonDataDescriptor,
    RemoteTensorDataDescriptor,
    StitchDescriptor,
)
from weave.graph.reducers import (
    InputReducer,
    IOReducer,
    OutputReducer,
    default_input_reducer_fn,
    default_output_reducer_fn,
)
from weave.graph.targets import (
    ConstantTarget,
    ExternalTarget,
    FunctionTarget,
    ModuleTarget,
    RemoteTarget,
    Singleton,
    Target,
    TargetWithInput,
    TargetWithNamedInputs,
    TargetWithNamedOutputs,
    TargetWithOutput,
)
from weave.needle import Needle
from weave.stitched import StitchedModule, StitchedModuleOutput

__all__ = [
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
]
