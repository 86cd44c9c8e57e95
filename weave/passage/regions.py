"""What lies between a module and its ports, now: wrappers that must finish, and compiled regions.

Looked at anew in every run along the paths of the ports only (a handful of dictionary look-ups), because people wrap and
compile after the knot too.

- A wrapper that must finish (DDP, FSDP, accelerate's hooks) does its work after the inner forward. Leaving through it
  left gradients unreduced, silently.
- Inside a compiled region dynamo inlines submodules, mostly without asking for `_compiled_call_impl` (it asks where they
  have hooks), so a port there would never be reached: the region runs eagerly for that call. A port on its boundary is
  outside and leaves it compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar
from weakref import WeakKeyDictionary

from torch import nn

from weave.passage.touch import ATTRIBUTE, Touch

_C = TypeVar("_C", bound=type)

# By name: nothing is imported to look, and FSDP2 makes a class for each class it shards.
_MUST_FINISH = {"DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule"}
_verdicts: WeakKeyDictionary[type, bool] = WeakKeyDictionary()


def must_finish(cls: _C) -> _C:
    """Say that a wrapper class works after its inner forward, so that no passage may leave through it."""
    _MUST_FINISH.add(cls.__qualname__)
    _verdicts.clear()
    return cls


def finishes(module: nn.Module) -> bool:
    """Whether a passage may not leave through this module's forward."""
    if "_hf_hook" in module.__dict__:
        return True
    cls = type(module)
    verdict = _verdicts.get(cls)
    if verdict is None:
        verdict = _verdicts[cls] = any(c.__qualname__ in _MUST_FINISH for c in cls.__mro__)
    return verdict


def is_optimized(module: nn.Module) -> bool:
    """Whether this is what `torch.compile(module)` returns."""
    return type(module).__name__ == "OptimizedModule" and "_orig_mod" in module._modules


def is_compiled(module: nn.Module) -> bool:
    """Whether calling this module enters a compiled region."""
    if is_optimized(module):
        return True
    call = module.__dict__.get(ATTRIBUTE)
    if type(call) is Touch:
        return callable(call.previous)
    return call is not None


class Survey:
    """The special modules on the way to the ports of one module."""

    __slots__ = ("compiled", "finishing", "stands_for")

    def __init__(self) -> None:
        self.finishing: dict[int, nn.Module] = {}
        self.compiled: dict[int, nn.Module] = {}
        # A port on `_orig_mod` is a port on the OptimizedModule around it: id of the inner one -> the outer one.
        self.stands_for: dict[int, nn.Module] = {}

    def add(self, module: nn.Module) -> None:
        """Note a module that a port lies in."""
        if finishes(module):
            self.finishing[id(module)] = module
        if is_compiled(module):
            self.compiled[id(module)] = module

    def __bool__(self) -> bool:
        return bool(self.finishing or self.compiled or self.stands_for)


def survey(root: nn.Module, routes: Iterable[tuple[nn.Module, Sequence[str]]]) -> Survey:
    """Walk from `root` to each port's module along its path (its parts); a path that no longer exists just ends."""
    found = Survey()
    around: dict[int, list[nn.Module | None]] = {}
    ports = set[int]()
    for goal, parts in routes:
        ports.add(id(goal))
        module: nn.Module | None = root
        above: list[nn.Module] = []
        for part in parts:
            while module is not None and is_optimized(module) and part not in module._modules:
                above.append(module)  # compiled after the knot: the path goes on inside
                module = module._modules["_orig_mod"]
            if module is None:
                break
            above.append(module)
            module = module._modules.get(part)
        while module is not None and module is not goal and is_optimized(module):
            above.append(module)
            module = module._modules["_orig_mod"]
        if module is goal:
            around.setdefault(id(goal), []).append(above.pop() if above and is_optimized(above[-1]) else None)
        for passed in above:
            found.add(passed)
    for goal_id, outer in around.items():
        wrappers = {id(w): w for w in outer if w is not None}
        if len(wrappers) == 1 and None not in outer and not ports & wrappers.keys():
            found.stands_for[goal_id] = next(iter(wrappers.values()))
        else:
            for wrapper in wrappers.values():
                found.add(wrapper)
    return found
