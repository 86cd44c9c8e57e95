"""The smallest graphs and modules, and what somebody could notice of a module that was touched."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from weave import ConstantTarget, ExternalTarget, FunctionTarget, ModuleTarget, Needle, StitchedModule

EXT = ExternalTarget()


def sewn(*stitches: tuple[Any, Any]) -> Needle:
    """A needle with these stitches, in this order."""
    needle = Needle()
    for src, dst in stitches:
        needle.stitch(src, dst)
    return needle


def knot(*stitches: tuple[Any, Any], **options: Any) -> StitchedModule:
    """The knotted graph of these stitches."""
    return sewn(*stitches).knot(**options)


def flow(*functions: Callable[..., Any]) -> StitchedModule:
    """The caller's "x" through one function after another, to "y". The nodes are f0, f1, ..."""
    targets = [FunctionTarget(f"f{i}", function) for i, function in enumerate(functions)]
    between = [(a.output(), b.input()) for a, b in itertools.pairwise(targets)]
    return knot((EXT.input("x"), targets[0].input()), *between, (targets[-1].output(), EXT.output("y")))


def packed(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a function was called with."""
    return args, kwargs


def plus_one(x: Any) -> Any:
    return x + 1


def times_ten(x: Any) -> Any:
    return x * 10


def constant(value: Any, name: str = "c") -> Any:
    """A constant's output."""
    return ConstantTarget(name, value).output()


class Tiny(nn.Module):
    """Two linear layers, a and b."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.tanh(self.a(x)))


def module(net: nn.Module, name: str = "m") -> ModuleTarget:
    return ModuleTarget(name, net)


def appearance(net: nn.Module) -> list[Any]:
    """What somebody could notice of a module and of what is in it: types, attributes, hooks, parameters."""
    hooks = [key for key in vars(nn.Module()) if key.endswith(("_hooks", "_hooks_with_kwargs", "_hooks_always_called"))]
    return [
        (
            name,
            type(part),
            sorted(vars(part)),
            [len(vars(part)[key] or ()) for key in hooks],
            [(n, id(p)) for n, p in part.named_parameters()],
        )
        for name, part in net.named_modules()
    ]
