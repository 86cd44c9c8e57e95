"""Targets: the things that compute. Two targets are the same only where they are one object; names may repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from weave.graph.adapters import InputAdapter, OutputAdapter, default_input_adapter_fn, default_output_adapter_fn
from weave.graph.descriptors import AnyInputReducer, AnyOutputReducer, Call, InputDescriptor, OutputDescriptor
from weave.graph.reducers import DEFAULT_INPUT_REDUCER, DEFAULT_OUTPUT_REDUCER

if TYPE_CHECKING:
    import torch.distributed
    from torch import nn

    from weave.graph.ports import PortListing


@dataclass(eq=False)
class Target:
    """Something that computes. Compared and hashed by identity."""

    named_inputs: ClassVar[bool] = True
    named_outputs: ClassVar[bool] = True


class TargetWithInput(Target):
    """A target with one input, as a function has."""

    named_inputs: ClassVar[bool] = False

    def input(
        self, adapter: InputAdapter | str = default_input_adapter_fn, reducer: AnyInputReducer = DEFAULT_INPUT_REDUCER
    ) -> InputDescriptor:
        """The port at which stitches bring arguments."""
        return InputDescriptor(self, "", adapter, reducer)


class TargetWithOutput(Target):
    """A target with one output, as a function or a constant has."""

    named_outputs: ClassVar[bool] = False

    def output(
        self,
        adapter: OutputAdapter | str = default_output_adapter_fn,
        reducer: AnyOutputReducer = DEFAULT_OUTPUT_REDUCER,
    ) -> OutputDescriptor:
        """The port at which the result leaves."""
        return OutputDescriptor(self, "", adapter, reducer)


class TargetWithNamedInputs(Target):
    """A target with inputs that have names."""

    def input(
        self,
        name: str,
        adapter: InputAdapter | str = default_input_adapter_fn,
        reducer: AnyInputReducer = DEFAULT_INPUT_REDUCER,
        *,
        call: Call = None,
    ) -> InputDescriptor:
        """An input port. `call` picks one of several calls of a submodule in one forward (see `ModuleTarget`)."""
        return InputDescriptor(self, name, adapter, reducer, call=call)


class TargetWithNamedOutputs(Target):
    """A target with outputs that have names."""

    def output(
        self,
        name: str,
        adapter: OutputAdapter | str = default_output_adapter_fn,
        reducer: AnyOutputReducer = DEFAULT_OUTPUT_REDUCER,
        *,
        call: Call = None,
    ) -> OutputDescriptor:
        """An output port. `call` picks one of several calls of a submodule in one forward (see `ModuleTarget`)."""
        return OutputDescriptor(self, name, adapter, reducer, call=call)


@dataclass(eq=False)
class ModuleTarget(TargetWithNamedInputs, TargetWithNamedOutputs):
    """An `nn.Module`, called once a run; its ports are its submodules' calls, by path, `""` being the module itself.

    As a source, `input("layers.3")` captures the arguments that `layers.3` was called with (an `InputArgs`) and
    `output("layers.3")` what it returned; as a destination they replace them. For a submodule that is called several
    times in one forward, `call=k` picks a call (0, the first, is a capture's default), `"last"` the last one, `"all"`
    a list of all; an override applies to every call unless `call=k` says which.
    """

    name: str
    module: nn.Module

    def ports(self) -> list[PortListing]:
        """What can be stitched: a row for each submodule path, with its class and, where it can't, the reason."""
        from weave.graph.ports import list_ports

        return list_ports(self.module)


@dataclass(eq=False)
class FunctionTarget(TargetWithInput, TargetWithOutput):
    """A function, called with the arguments that its stitches bring. It may be an `nn.Module`.

    `inline=True` says that it is cheap enough for an event loop's own thread; a synchronous call has only one anyway.
    """

    name: str
    function: Callable[..., Any]
    _: KW_ONLY
    inline: bool = False


@dataclass(eq=False)
class ConstantTarget(TargetWithOutput):
    """A value, read anew in every run. A `Parameter` or an `nn.Module` belongs to the `StitchedModule`."""

    name: str
    value: Any


class Singleton(type):
    """A metaclass: one object a class. A subclass has one of its own."""

    _objects: dict[type, Any] = {}

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """The one object."""
        if cls not in Singleton._objects:
            Singleton._objects.setdefault(cls, super().__call__(*args, **kwargs))
        return Singleton._objects[cls]


class ExternalTarget(TargetWithNamedInputs, TargetWithNamedOutputs, metaclass=Singleton):
    """External target for stitched modules: the caller.

    As a source, `input("x")` is the call's `input_overrides["x"]` and `output("x")` its `output_overrides["x"]`; as a
    destination they become `captured_inputs["x"]` and `captured_outputs["x"]`. There is one, after pickle and deepcopy
    too.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()

    def __copy__(self) -> ExternalTarget:
        return self

    def __deepcopy__(self, memo: Any) -> ExternalTarget:
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


@dataclass(eq=False)
class RemoteTarget(Target):
    """Another rank, or several. Stitched *to*, it sends; stitched *from*, it receives (from one peer only).

    `peer_rank` counts in `process_group` (default: the world). `blocking=False` lets the run go on while a value is
    still being sent. `transport`: the scheme of a registered transport (default: the world's). `timeout`: seconds to wait
    for the peer to tie its part of the graph.
    """

    peer_rank: int | Sequence[int]
    process_group: torch.distributed.ProcessGroup | None = None
    blocking: bool = True
    _: KW_ONLY
    transport: str | None = None
    timeout: float | None = None

    def value(
        self,
        name: str,
        adapter: OutputAdapter | str = default_output_adapter_fn,
        reducer: AnyOutputReducer = DEFAULT_OUTPUT_REDUCER,
    ) -> OutputDescriptor:
        """What travels under the key `name`."""
        return OutputDescriptor(self, name, adapter, reducer)

    @property
    def peers(self) -> tuple[int, ...]:
        """The peers' ranks, one or more."""
        return (self.peer_rank,) if isinstance(self.peer_rank, int) else tuple(self.peer_rank)
