"""The built-in adapters. Those that map tensors do so leaf by leaf, in list, tuple, dict and `InputArgs`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from weave.graph.args import InputArgs
from weave.graph.structure import map_leaves
from weave.spi.hooks import hookimpl
from weave.spi.records import AdapterDef


def _on_tensors(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Any]:
    def adapt(value: Any) -> Any:
        return map_leaves(lambda leaf: change(leaf) if isinstance(leaf, torch.Tensor) else leaf, value)

    return adapt


def wrap(value: Any) -> InputArgs:
    """The value as a call's arguments: a list or tuple is spread, anything else is one positional."""
    return InputArgs.from_value(value)


def first(value: Any) -> Any:
    """The first element (of an `InputArgs`: its first positional, as the only argument)."""
    if isinstance(value, InputArgs):
        return InputArgs(value.args[0])
    return next(iter(value.values())) if isinstance(value, dict) else value[0]


def _float32(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


@hookimpl
def weave_adapters() -> list[AdapterDef]:
    """`clone`, `detach`, `cpu`, `float32`, `args`, `first`."""
    return [
        AdapterDef(name="clone", fn=_on_tensors(torch.Tensor.clone), each_call=True),
        AdapterDef(name="detach", fn=_on_tensors(torch.Tensor.detach), each_call=True),
        AdapterDef(name="cpu", fn=_on_tensors(torch.Tensor.cpu), each_call=True),
        AdapterDef(name="float32", fn=_on_tensors(_float32), each_call=True),
        AdapterDef(name="args", fn=wrap),
        AdapterDef(name="first", fn=first),
    ]
