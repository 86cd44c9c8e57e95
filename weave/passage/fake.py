"""Fake tensors (shape, stride, dtype, device; no data) and the cache of what submodules return for them.

A rank of a pipeline calls its model with fake inputs and computes only its own blocks. The blocks in front of the first
real one run once a shape on fakes; after that they are skipped, and answer with fakes of what they returned then.

`FakeTensorMode` is not made for threads (one mode shared by four failed 670 of 1 200 calls), so each passage has a mode
of its own: fakes that come from elsewhere are made anew at its entry, and the cache stores specs, not tensors. A mode is
never *entered* while user code runs: fakes carry it themselves, and what a model makes of real data stays real.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from weave.graph.args import InputArgs
from weave.graph.structure import leaves, map_leaves

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.memory_format)
_MOST_LEAVES = 500
_local = threading.local()


@dataclasses.dataclass(frozen=True, slots=True)
class Spec:
    """What a fake knows of a tensor. No tuple: those are looked into, and this is a leaf."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def make(self, mode: FakeTensorMode) -> torch.Tensor:
        """A fake of this spec."""
        with mode:
            return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)


class _Unsayable(Exception):
    """Something in a call that a cache key can't say."""


def new_mode() -> FakeTensorMode:
    """A mode whose fakes mix with real weights."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def fake_tensor(
    *size: int | Sequence[int], dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> torch.Tensor:
    """A tensor without data, to call a model with where only shapes matter: `fake_tensor(1, 128, dtype=torch.long)`.

    Args:
        size: numbers, or one sequence of them.
        dtype: by default torch's default dtype.
        device: what its `device` says, by default torch's default device. Never `meta`; needs no such hardware.
    """
    shape: Any = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    mode = getattr(_local, "mode", None)
    if mode is None:
        mode = _local.mode = new_mode()
    with mode:
        return torch.empty(tuple(shape), dtype=dtype, device=device)


def is_fake(value: Any) -> bool:
    """Whether this is a fake tensor."""
    return isinstance(value, FakeTensor)


def holds_fakes(value: Any) -> bool:
    """Whether there is a fake tensor in a value (list, tuple, dict and `InputArgs` are looked into)."""
    return any(isinstance(leaf, FakeTensor) for leaf in leaves(value))


def without_fakes(value: Any) -> Any:
    """The value itself, or, where fakes are in it, a copy with `None` in their place."""
    if not holds_fakes(value):
        return value
    return map_leaves(lambda leaf: None if isinstance(leaf, FakeTensor) else leaf, value)


def rehome(value: Any, mode: FakeTensorMode) -> Any:
    """The value with every fake of another mode made anew in `mode`."""
    if not holds_fakes(value):
        return value

    def own(leaf: Any) -> Any:
        if not isinstance(leaf, FakeTensor) or leaf.fake_mode is mode:
            return leaf
        return spec_of(leaf).make(mode)

    return map_leaves(own, value)


def spec_of(tensor: torch.Tensor) -> Spec:
    """A tensor's spec. Raises `_Unsayable` for what a strided fake can't stand for."""
    if tensor.layout != torch.strided:
        raise _Unsayable
    return Spec(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.device)


class FakeCache:
    """What the submodules of one target returned, by submodule and call. Belongs to one `StitchedModule`."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, Any] = {}
        self._locks: dict[Hashable, threading.RLock] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def one_at_a_time(self, key: Hashable) -> Iterator[None]:
        """Hold off other threads that would compute the same answer; the thread that computes it may come back."""
        with self._lock:
            lock = self._locks.setdefault(key, threading.RLock())
        with lock:
            yield

    def answer(self, key: Hashable, mode: FakeTensorMode) -> tuple[bool, Any]:
        """Whether an answer is known, and a new copy of it."""
        if key not in self._answers:
            return False, None
        return True, map_leaves(lambda leaf: leaf.make(mode) if type(leaf) is Spec else leaf, self._answers[key])

    def keep(self, key: Hashable, value: Any, *, called_with_fakes: bool) -> None:
        """Remember a call's result, if a fake copy can stand for it."""
        if key in self._answers:
            return
        # Real tensors out of a call on fakes (position tables, say) can't be answered by fakes: not kept, so not skipped.
        if called_with_fakes and any(isinstance(x, torch.Tensor) and not is_fake(x) for x in leaves(value)):
            return
        with contextlib.suppress(_Unsayable):
            self._answers[key] = map_leaves(_said_output, value)


def call_key(index: int, module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> Hashable | None:
    """The cache's key of a call: which submodule, specs of tensors, values of the rest. `None` where it can't be said."""
    budget = [_MOST_LEAVES]
    try:
        said = (
            tuple(_said(a, budget) for a in args),
            tuple((k, _said(kwargs[k], budget)) for k in sorted(kwargs)),
        )
    except _Unsayable:
        return None
    weight = next(module.parameters(), None)
    weights = None if weight is None else (weight.dtype, weight.device)
    autocast = tuple((d, torch.get_autocast_dtype(d)) for d in ("cpu", "cuda") if torch.is_autocast_enabled(d))
    return index, module.training, weights, autocast, said


def _said(value: Any, budget: list[int]) -> Hashable:
    budget[0] -= 1
    if budget[0] < 0:
        raise _Unsayable
    if isinstance(value, torch.Tensor):
        return spec_of(value)
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, InputArgs):
        return _said((value.args, value.kwargs), budget)
    if isinstance(value, dict):
        return type(value), tuple((repr(k), _said(v, budget)) for k, v in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return type(value), tuple(_said(v, budget) for v in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value), tuple(_said(getattr(value, f.name), budget) for f in dataclasses.fields(value))
    if callable(getattr(value, "get_seq_length", None)) and callable(getattr(value, "update", None)):
        # A key/value cache: it grows as layers run (and does not where they are skipped), and shapes no layer's output.
        return f"{type(value).__module__}.{type(value).__qualname__}"
    state = getattr(value, "__dict__", None)
    if state is None or isinstance(value, nn.Module) or callable(value):
        try:
            return value if hash(value) is not None else None
        except TypeError:
            raise _Unsayable from None
    return type(value), tuple((k, _said(v, budget)) for k, v in sorted(state.items()))


def _said_output(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return spec_of(leaf)
    if isinstance(leaf, _PLAIN):
        return leaf
    if callable(getattr(leaf, "get_seq_length", None)) or getattr(leaf, "__dict__", None) is not None:
        raise _Unsayable  # an object with a life of its own: handing one call's to another would tie them together
    return leaf
