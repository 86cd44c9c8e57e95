"""Which submodules of a module can be ports, and why the others can't.

A port is seen at the call boundary: what the caller passes to `submodule(...)` and what it receives. That rules out
what is never called, what runs inside TorchScript, and classes whose own `__call__` hands the caller something else.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

_C = TypeVar("_C", bound=type)

# Classes with a `__call__` of their own that hands on exactly what `nn.Module.__call__` takes and gives. By name, so
# that nothing is imported to look.
_PASSES_THROUGH = {
    ("torch._dynamo.eval_frame", "OptimizedModule"),
    ("transformers.modeling_layers", "GradientCheckpointingLayer"),
}


class PortListing(NamedTuple):
    """A row of `ModuleTarget.ports()`. `refusal` is empty where both ports can be stitched."""

    name: str
    type: str
    same_as: str
    refusal: str


def passes_through(cls: _C) -> _C:
    """Say that a class's own `__call__` passes arguments and result through unchanged. Usable as a decorator."""
    _PASSES_THROUGH.add((cls.__module__, cls.__qualname__))
    return cls


def submodules(root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every path to every submodule, as `named_modules(remove_duplicate=False)`, `""` first.

    Iterative, and a module registered inside itself (which sends torch's own into endless recursion) ends.
    """
    stack: list[tuple[str, nn.Module, tuple[int, ...]]] = [("", root, ())]
    while stack:
        name, module, above = stack.pop()
        yield name, module
        inside = (*above, id(module))
        children = [
            (f"{name}.{key}" if name else key, child, inside)
            for key, child in module._modules.items()
            if child is not None and id(child) not in inside
        ]
        stack.extend(reversed(children))


def ancestors(name: str) -> list[str]:
    """The paths above a path, the module itself first: `a.b.c` has `""`, `a`, `a.b`."""
    parts = name.split(".") if name else []
    return [".".join(parts[:i]) for i in range(len(parts))]


def refusal(paths: dict[str, nn.Module], name: str) -> str:
    """Why the submodule at this path can't be a port, or `""`."""
    module = paths[name]
    for above in ancestors(name):
        if isinstance(paths[above], torch.jit.ScriptModule):
            return f"{above!r} is a ScriptModule, and TorchScript calls what is inside without Python"
        outer: Any = paths[above]
        if isinstance(outer, nn.DataParallel) and len(outer.device_ids) > 1:
            return f"{above!r} is an nn.DataParallel, which calls copies of what is inside; use DistributedDataParallel"
    if isinstance(module, nn.ParameterList | nn.ParameterDict):
        return f"a {type(module).__name__} holds parameters and is never called"
    owner = next(cls for cls in type(module).__mro__ if "__call__" in vars(cls))
    if owner is not nn.Module and not _known(module, owner):
        return (
            f"its class {owner.__name__} has a __call__ of its own, so what its caller passes and receives can't be seen; "
            "stitch what it calls inside, or, where it passes everything through, say so with "
            f"weave.passage.passes_through({owner.__name__})"
        )
    # Read statically: on TorchScript's classes `forward` is a descriptor that can't be read off the class.
    forward = inspect.getattr_static(type(module), "forward", None)
    if forward is vars(nn.Module)["forward"] and "forward" not in vars(module):
        return f"a {type(module).__name__} is never called itself; stitch what is in it"
    return ""


def _known(module: nn.Module, owner: type) -> bool:
    # fx.GraphModule makes a class for each instance, so its name tells nothing.
    return (owner.__module__, owner.__qualname__) in _PASSES_THROUGH or isinstance(module, torch.fx.GraphModule)


def nearest(name: str, names: list[str]) -> list[str]:
    """Names that look like it, best first: close spellings, then ends (`layers.3` for `encoder.layers.3`)."""
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    ends = [n for n in names if name and (n.endswith("." + name) or name.endswith("." + n)) and n not in close]
    return (close + ends)[:4]


def list_ports(root: nn.Module) -> list[PortListing]:
    """A row for each path of `root`, in the order of `named_modules`."""
    paths = dict(submodules(root))
    first: dict[int, str] = {}
    rows = []
    for name, module in paths.items():
        same = first.setdefault(id(module), name)
        rows.append(PortListing(name, type(module).__name__, same if same != name else "", refusal(paths, name)))
    return rows
