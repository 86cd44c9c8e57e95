"""The names that programs written for the seed's API use, as data: written down by hand, not derived from the code.

A parameter is a name (no default) or a pair of name and default; `*` and `**` mark the variadic ones. A default is a
literal, or one of the markers below where it is an object.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Parameter = str | tuple[str, Any]


class Function(NamedTuple):
    """A default that is a function of this name (`core`: one that `weave.core` exports)."""

    name: str
    core: bool = True


class Appends(NamedTuple):
    """A default that is an `InputReducer` or `OutputReducer` as `.default()` makes it."""

    kind: str


FACTORY: Any = object()  # a dataclass field with a default factory
IDENTITY_INPUT = Function("default_input_adapter_fn")
IDENTITY_OUTPUT = Function("default_output_adapter_fn")
APPEND = Function("default_input_reducer_fn")
NEWEST = Function("default_output_reducer_fn")
NO_SUBMODULE = Function("always_false_predicate", core=False)


class Class(NamedTuple):
    """A class: its direct bases, the constructor's parameters, its dataclass fields, its other methods."""

    bases: tuple[str, ...]
    init: tuple[Parameter, ...] | None = None
    fields: tuple[Parameter, ...] = ()
    methods: dict[str, tuple[Parameter, ...]] = {}
    classmethods: dict[str, tuple[Parameter, ...]] = {}


def record(bases: tuple[str, ...], *fields: Parameter, **more: Any) -> Class:
    """A dataclass: the constructor's parameters are the fields."""
    return Class(bases, fields, fields, **more)


_INPUT = (("adapter", IDENTITY_INPUT), ("reducer", Appends("InputReducer")))
_OUTPUT = (("adapter", IDENTITY_OUTPUT), ("reducer", Appends("OutputReducer")))
_KNOT = (("capture_cache_outputs_predicate", NO_SUBMODULE), ("early_exit", True), ("ignore_extra_overrides", False))

CLASSES: dict[str, Class] = {
    # targets
    "Target": Class(("object",), init=()),
    "TargetWithInput": Class(("Target",), init=(), methods={"input": _INPUT}),
    "TargetWithOutput": Class(("Target",), init=(), methods={"output": _OUTPUT}),
    "TargetWithNamedInputs": Class(("Target",), init=(), methods={"input": ("name", *_INPUT)}),
    "TargetWithNamedOutputs": Class(("Target",), init=(), methods={"output": ("name", *_OUTPUT)}),
    "ModuleTarget": record(
        ("TargetWithNamedInputs", "TargetWithNamedOutputs"),
        "name",
        "module",
        methods={"input": ("name", *_INPUT), "output": ("name", *_OUTPUT)},
    ),
    "FunctionTarget": record(
        ("TargetWithInput", "TargetWithOutput"), "name", "function", methods={"input": _INPUT, "output": _OUTPUT}
    ),
    "ConstantTarget": record(("TargetWithOutput",), "name", "value", methods={"output": _OUTPUT}),
    "ExternalTarget": Class(
        ("TargetWithNamedInputs", "TargetWithNamedOutputs"),
        init=(),
        methods={"input": ("name", *_INPUT), "output": ("name", *_OUTPUT)},
    ),
    "RemoteTarget": record(
        ("Target",),
        "peer_rank",
        ("process_group", None),
        ("blocking", True),
        methods={"value": ("name", *_OUTPUT)},
    ),
    "Singleton": Class(("type",)),
    # what stitches are made of
    "InputDescriptor": record(
        ("object",),
        "target",
        ("input_name", ""),
        ("input_adapter", IDENTITY_INPUT),
        ("reducer", FACTORY),
    ),
    "OutputDescriptor": record(
        ("object",),
        "target",
        ("output_name", ""),
        ("output_adapter", IDENTITY_OUTPUT),
        ("reducer", FACTORY),
    ),
    "StitchDescriptor": record(("object",), "source_descriptor", "destination_descriptor"),
    "Node": record(("object",), "target", ("stitches_to", FACTORY), ("stitches_from", FACTORY)),
    "IOReducer": Class(("object",), init=()),
    "InputReducer": record(("IOReducer",), ("reducer_fn", APPEND), classmethods={"default": ()}),
    "OutputReducer": record(
        ("IOReducer",), ("reducer_fn", NEWEST), ("requires_original_output", False), classmethods={"default": ()}
    ),
    # the graph
    "Needle": Class(
        ("object",),
        init=(),
        methods={"get_node_for_target": ("target",), "stitch": ("src", "dst"), "knot": _KNOT},
    ),
    "StitchedModule": Class(
        ("Module",),
        init=("nodes", *_KNOT),
        methods={
            "forward": ("input_overrides", "output_overrides", "*args", "**kwargs"),
            "create_input_overrides": ("values_to_node",),
            "create_output_overrides": ("values_to_node",),
        },
    ),
    "StitchedModuleOutput": record(("object",), "captured_inputs", "captured_outputs"),
    # between ranks
    "RemoteDataDescriptor": record(("ABC",), "key"),
    "RemoteTensorDataDescriptor": record(("RemoteDataDescriptor",), "key", "device", "dtype", "shape"),
    "RemotePythonDataDescriptor": record(("RemoteDataDescriptor",), "key", "value"),
}

FUNCTIONS: dict[str, tuple[Parameter, ...]] = {
    "default_input_adapter_fn": ("input_values",),
    "default_input_reducer_fn": ("acc", "input_override", "*args"),
    "default_output_adapter_fn": ("v",),
    "default_output_reducer_fn": ("acc", "input_override", "*args"),
}

EXCEPTIONS: dict[str, tuple[str, ...]] = {
    "KnotException": ("Exception",),
    "OnlyInternalNodesException": ("KnotException",),
    "MultipleExternalNodesException": ("KnotException",),
    "LoopFoundException": ("KnotException",),
    "InputsLoopFoundException": ("LoopFoundException",),
    "OutputsLoopFoundException": ("LoopFoundException",),
    "StitchedModuleException": ("Exception",),
    "CantResolveNodeDependenciesException": ("StitchedModuleException",),
}

BESIDE_THE_SEED = ("InputArgs",)

# Exceptions that the seed doesn't have: the family, and the built-in that somebody catches who never heard of weave.
FURTHER_EXCEPTIONS: dict[str, tuple[str, type[Exception]]] = {
    "UnknownPortException": ("KnotException", KeyError),
    "ContradictionException": ("KnotException", ValueError),
    "OverridesException": ("StitchedModuleException", KeyError),
    "PortNotReachedException": ("StitchedModuleException", RuntimeError),
    "ChangedInPlaceException": ("StitchedModuleException", RuntimeError),
    "CheckpointException": ("StitchedModuleException", RuntimeError),
    "RemoteException": ("StitchedModuleException", RuntimeError),
    "PeerLostException": ("RemoteException", ConnectionError),
    "GraphMismatchException": ("StitchedModuleException", ValueError),
    "PluginException": ("Exception", LookupError),
}
