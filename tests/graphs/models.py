"""The modules that random graphs reach into: real `nn.Module`s, nested, tied, called repeatedly, with keywords.

Every part takes whatever it is called with (`blend`), because overrides give it anything; `strict` is the exception.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .vocabulary import TRACE, WIDTH, Fuse, blend, changed_in_place, planned_error


class Part(nn.Module):
    """A module that leaves its label in the trace whenever its forward runs."""

    label = ""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        TRACE.append(self.label)
        return self.compute(*args, **kwargs)

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


class Lin(Part):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH, dtype=torch.float64) / 2)
        self.bias = nn.Parameter(torch.randn(WIDTH, dtype=torch.float64) / 2)

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        return functional.linear(blend(*args, **kwargs), self.weight, self.bias)


class Tanh(Part):
    def compute(self, *args: Any, **kwargs: Any) -> Any:
        return torch.tanh(blend(*args, **kwargs))


class InPlace(Part):
    """Like `ReLU(inplace=True)`: what it was called with is changed, and is what it returns."""

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        return changed_in_place(*args, **kwargs)


class Bomb(Part):
    def compute(self, *args: Any, **kwargs: Any) -> Any:
        if Fuse.burns:
            raise planned_error(self.label)
        return blend(*args, **kwargs)


class Mlp(Part):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.act, self.fc2 = Lin(), Tanh(), Lin()

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        return self.fc2(self.act(self.fc1(*args, **kwargs)))


class Block(Part):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mlp = Lin(), Mlp()

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        h = blend(*args, **kwargs)
        return blend(h, self.mlp(self.norm(h), scale=0.5))


class Stack(Part):
    """Three levels, the middle one in a `ModuleList`."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.head = nn.ModuleList([Block(), Block()]), Lin()

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        h = blend(*args, **kwargs)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


class Nest(Part):
    def __init__(self, shared: nn.Module) -> None:
        super().__init__()
        self.shared = shared

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        return self.shared(*args, again=True, **kwargs)


class Tied(Part):
    """One module under three names, called three times, once from a level below."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.middle = Mlp(), Block()
        self.decode = self.encode
        self.nest = Nest(self.encode)

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        return self.nest(self.decode(self.middle(self.encode(*args, **kwargs))))


class Cell(Part):
    def __init__(self) -> None:
        super().__init__()
        self.lin = Lin()

    def compute(self, *args: Any, step: Any = None, **kwargs: Any) -> Any:
        return torch.tanh(blend(self.lin(*args, **kwargs), step))


class Loop(Part):
    """A submodule called three times, the count as a keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = Cell(), Lin()

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        h = blend(*args, **kwargs)
        for step in range(3):
            h = self.cell(h, step=step)
        return self.head(h)


class Split(Part):
    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = Lin(), Lin()

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        return self.low(*args, **kwargs), self.high(*args, **kwargs)


class Pair(Part):
    """Tuples and keywords between the parts, a mapping as the result."""

    def __init__(self) -> None:
        super().__init__()
        self.split, self.join = Split(), Mlp()

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        parts = self.split(*args, **kwargs)
        return {"joined": self.join(parts, whole=list(args)), "parts": parts}


class Fork(Part):
    """A branch that only the keyword `side=True` takes, and a part that nothing calls."""

    def __init__(self) -> None:
        super().__init__()
        self.front, self.straight, self.side, self.never = Lin(), Mlp(), Block(), Lin()

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        h = self.front(*args, **kwargs)
        return self.side(h) if kwargs.get("side") is True else self.straight(h)


class Washed(Part):
    """A captured `conv` is changed by what comes behind it, as with `ReLU(inplace=True)`."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.act, self.out = Lin(), InPlace(), Lin()

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        return self.out(self.act(self.conv(*args, **kwargs)))


class Fused(Part):
    """Raises half-way."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.fuse, self.after = Lin(), Bomb(), Lin()

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        return self.after(self.fuse(self.before(*args, **kwargs)))


class Guarded(Part):
    """Swallows what its body raises, as model code with a fallback does."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.rescue, self.tail = Fused(), Lin(), Lin()

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        try:
            h = self.body(*args, **kwargs)
        except Exception:
            h = self.rescue(*args, **kwargs)
        return self.tail(h)


class Toggled(Part):
    """Switches gradients off and on by hand, with no `finally`."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen, self.live = Mlp(), Lin()

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        torch.set_grad_enabled(False)
        h = self.frozen(*args, **kwargs)
        torch.set_grad_enabled(True)
        return self.live(h)


def doubling_pre_hook(module: nn.Module, args: Any, kwargs: Any) -> Any:
    return tuple(arg * 2.0 if isinstance(arg, Tensor) else arg for arg in args), {**kwargs, "hooked": 1.5}


def pairing_hook(module: nn.Module, args: Any, output: Any) -> Any:
    return output, 0.5


class Hooked(Part):
    """The user's own hooks on its parts change arguments and results."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.last = Block(), Lin()
        self.block.norm.register_forward_pre_hook(doubling_pre_hook, with_kwargs=True)
        self.block.mlp.register_forward_hook(pairing_hook)

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        return self.last(self.block(*args, **kwargs))


class Strict(nn.Module):
    """Torch's own modules, which refuse arguments that they don't know."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)).double()

    def forward(self, x: Tensor, scale: float = 1.0) -> Any:
        return self.net(x) * scale


class Dropping(Part):
    """In training: a part of what goes through is lost at random."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.last = Mlp(), nn.Dropout(0.5), Lin()

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        return self.last(self.drop(self.first(*args, **kwargs)), whole=self.drop(blend(*args, **kwargs)))


class Wrap(Part):
    """Another module of the same graph, inside."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.post = inner, Lin()

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        return self.post(self.inner(*args, **kwargs))


MODELS: dict[str, type[nn.Module]] = {
    "lin": Lin,
    "stack": Stack,
    "tied": Tied,
    "loop": Loop,
    "pair": Pair,
    "fork": Fork,
    "guarded": Guarded,
    "toggled": Toggled,
    "hooked": Hooked,
}
# Those that change something in place, raise or refuse arguments come only where a graph is meant to have the accident.
EVERY_MODEL: dict[str, type[nn.Module]] = MODELS | {"washed": Washed, "fused": Fused, "strict": Strict}


# Only where a graph is meant to draw random numbers (`vocabulary.NOISE`).
NOISY_MODELS: dict[str, type[nn.Module]] = {"dropping": Dropping}


def ports(module: nn.Module) -> dict[str, nn.Module]:
    """Every submodule that can be a port, by each of its names."""
    return {
        name: part for name, part in module.named_modules(remove_duplicate=False) if not isinstance(part, nn.ModuleList)
    }


def labelled(module: nn.Module, prefix: str) -> nn.Module:
    """The module, its parts labelled for the trace; those that have a label already keep it."""
    for name, part in module.named_modules():
        if isinstance(part, Part) and not part.label:
            part.label = f"{prefix}:{name}"
    return module
