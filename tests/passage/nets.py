"""Small modules with one trait each, and counters of what ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Chain(nn.Module):
    """`c(b(a(x)))` with tanh between."""

    def __init__(self, d: int = 3) -> None:
        super().__init__()
        self.a = nn.Linear(d, d)
        self.b = nn.Linear(d, d)
        self.c = nn.Linear(d, d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))

    def steps(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """What each output is, by plain arithmetic."""
        a = nn.functional.linear(x, self.a.weight, self.a.bias)
        b = nn.functional.linear(torch.tanh(a), self.b.weight, self.b.bias)
        c = nn.functional.linear(torch.tanh(b), self.c.weight, self.c.bias)
        return {"a": a, "b": b, "c": c, "": c}


class Again(nn.Module):
    """One layer called `times` times in a forward; `other` is its second name."""

    def __init__(self, times: int = 4, d: int = 3) -> None:
        super().__init__()
        self.layer = nn.Linear(d, d)
        self.other = self.layer
        self.times = times

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for k in range(self.times):
            x = torch.tanh((self.layer if k % 2 == 0 else self.other)(x))
        return x

    def step(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.layer.weight, self.layer.bias)


class Counted(nn.Module):
    """Runs a function and counts."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.ran = 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.ran += 1
        return self.function(*args, **kwargs)


class Does(nn.Module):
    """A forward given as a function of the module itself: `Does(lambda m, x: m.a(x), a=nn.Linear(3, 3))`."""

    def __init__(self, body: Callable[..., Any], **children: nn.Module) -> None:
        super().__init__()
        self.body = body
        for name, child in children.items():
            self.add_module(name, child)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.body(self, *args, **kwargs)


def counting(module: nn.Module) -> list[str]:
    """The names of the submodules whose forward runs from now on, in order (a hook inside the call)."""
    ran: list[str] = []
    for name, child in module.named_modules():
        child.register_forward_pre_hook(lambda m, args, name=name: ran.append(name))
    return ran


def lin(d: int = 3) -> nn.Linear:
    return nn.Linear(d, d)


def rows(n: int = 2, d: int = 3) -> torch.Tensor:
    return torch.arange(float(n * d)).reshape(n, d) / 5 - 0.4
