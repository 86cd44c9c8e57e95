"""Descriptors: a port of a target with what happens to the values there; a stitch; a node; a remote message."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from weave.graph.adapters import InputAdapter, OutputAdapter, default_input_adapter_fn, default_output_adapter_fn
from weave.graph.reducers import InputReducer, OutputReducer

if TYPE_CHECKING:
    import torch

    from weave.graph.targets import Target

Call: TypeAlias = int | Literal["last", "all"] | None
AnyInputReducer: TypeAlias = InputReducer | Callable[..., Any] | str
AnyOutputReducer: TypeAlias = OutputReducer | Callable[..., Any] | str


@dataclass(eq=False)
class InputDescriptor:
    """An input port of a target. Made by `target.input(...)`; one object may take part in several stitches."""

    kind: ClassVar[Literal["input"]] = "input"  # which side of a call this is

    target: Target
    input_name: str = ""
    input_adapter: InputAdapter | str = default_input_adapter_fn
    reducer: AnyInputReducer = field(default_factory=InputReducer.default)
    _: KW_ONLY
    call: Call = None

    def __post_init__(self) -> None:
        if not isinstance(self.reducer, InputReducer | str):
            self.reducer = InputReducer(_callable(self.reducer, "an input's reducer", InputReducer))

    # The port's name and adapter, whichever side it is on. (Getters in C: a knot reads them for every stitch.)
    name = property(attrgetter("input_name"))
    adapter = property(attrgetter("input_adapter"))

    def __repr__(self) -> str:
        return port_text(self)


@dataclass(eq=False)
class OutputDescriptor:
    """An output port of a target. Made by `target.output(...)` or `remote.value(...)`."""

    kind: ClassVar[Literal["output"]] = "output"

    target: Target
    output_name: str = ""
    output_adapter: OutputAdapter | str = default_output_adapter_fn
    reducer: AnyOutputReducer = field(default_factory=OutputReducer.default)
    _: KW_ONLY
    call: Call = None

    def __post_init__(self) -> None:
        if not isinstance(self.reducer, OutputReducer | str):
            self.reducer = OutputReducer(_callable(self.reducer, "an output's reducer", OutputReducer))

    # The port's name and adapter, whichever side it is on. (Getters in C: a knot reads them for every stitch.)
    name = property(attrgetter("output_name"))
    adapter = property(attrgetter("output_adapter"))

    def __repr__(self) -> str:
        return port_text(self)


IODescriptor: TypeAlias = InputDescriptor | OutputDescriptor


def _callable(value: Any, what: str, wanted: type) -> Callable[..., Any]:
    if callable(value) and not isinstance(value, InputReducer | OutputReducer):
        return value  # type: ignore[no-any-return]
    raise TypeError(f"{what} is an {wanted.__name__}, a function or a registered name, not {value!r}")


def port_text(port: IODescriptor, node: str | None = None) -> str:
    """A port as people write it: `teacher.input('layers.3', call=2)`."""
    who = node if node is not None else target_text(port.target)
    call = "" if port.call is None else f", call={port.call!r}"
    name = "" if port.name == "" and not has_name(port) else repr(port.name)
    return f"{who}.{port.kind}({name}{call})"


def has_name(port: IODescriptor) -> bool:
    """Whether the target has several ports of this kind, told apart by name."""
    return port.target.named_inputs if port.kind == "input" else port.target.named_outputs


def target_text(target: Target) -> str:
    """How a target is called where no graph has given it a node id yet."""
    name = getattr(target, "name", None)
    if isinstance(name, str):
        return name
    peers = getattr(target, "peer_rank", None)
    if peers is not None:
        return f"remote[{peers if isinstance(peers, int) else ','.join(map(str, peers))}]"
    return type(target).__name__.removesuffix("Target").lower()


@dataclass(eq=False)
class StitchDescriptor:
    """A stitch: the value goes from the source port to the destination port."""

    source_descriptor: IODescriptor
    destination_descriptor: IODescriptor

    def __repr__(self) -> str:
        return f"{self.source_descriptor!r} -> {self.destination_descriptor!r}"


@dataclass(eq=False)
class Node:
    """A target in a graph: the stitches that end here (`stitches_to`) and those that start here (`stitches_from`)."""

    target: Target
    stitches_to: list[StitchDescriptor] = field(default_factory=list)
    stitches_from: list[StitchDescriptor] = field(default_factory=list)


@dataclass
class RemoteDataDescriptor(ABC):
    """What is under way between two ranks under a key."""

    key: str


@dataclass
class RemoteTensorDataDescriptor(RemoteDataDescriptor):
    """A tensor under way: the bytes follow."""

    device: Literal["cuda", "cpu"]
    dtype: torch.dtype
    shape: torch.Size


@dataclass
class RemotePythonDataDescriptor(RemoteDataDescriptor):
    """Anything else under way: the value itself."""

    value: Any
