"""torch's thread-local state: taken where a run begins, put on in the worker threads that compute for it.

What goes along: grad mode, inference mode, autocast (per device type: on, dtype; and its cache switch), the default
device, hooks for saved tensors, the current CUDA device and stream. Other modes on the caller's stack
(`TorchFunctionMode`, `TorchDispatchMode`) are objects made for one thread, and so are the levels of `torch.func`'s
transforms: they can't go along, and `TorchState.foreign` names them. Default dtype, `sdpa_kernel` and the random
generators belong to the whole process and need no carrying.

What a node leaves on is taken off before the next node of the same thread runs, and before the thread goes back to
anyio, which lends it to others. One thing can't be: inference mode that is entered and kept. It is covered for the next
nodes, and goes when the object that entered it does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Generator, Iterator
from typing import Any, Generic, TypeVar

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

T = TypeVar("T")

_DEVICE_TYPES = tuple(torch._C._autocast_supported_devices())


class TorchState:
    """The calling thread's state when this was made.

    `threads=False`: only `foreign`, where no thread will want the rest. `away`: the run's loop is in another thread than
    the caller's, so that what runs on the loop needs the state too.
    """

    __slots__ = ("autocast", "away", "cache", "cuda", "device", "foreign", "grad", "hooks", "inference")

    def __init__(self, *, threads: bool = True, away: bool = False) -> None:
        self.away = away
        modes: list[Any] = []
        if torch._C._len_torch_function_stack():
            modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
        devices = [mode.device for mode in modes if isinstance(mode, DeviceContext)]
        self.device: torch.device | None = devices[-1] if devices else None
        others: list[Any] = [mode for mode in modes if not isinstance(mode, DeviceContext)]
        if torch._C._len_torch_dispatch_stack():
            others += _get_current_dispatch_mode_stack()
        names = [type(mode).__name__ for mode in others]
        transform = torch._C._functorch.peek_interpreter_stack()
        if transform is not None:
            names.append(f"torch.func.{transform.key().name.lower()}")
        self.foreign = tuple(names)
        if not threads:
            return
        self.grad = torch.is_grad_enabled()
        self.inference = torch.is_inference_mode_enabled()
        # By device type even where none is on: a dtype may have been set for what a node turns on.
        self.autocast = _autocast()
        self.cache = torch.is_autocast_cache_enabled()
        self.hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
        self.cuda: tuple[int, Any] | None = None
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            self.cuda = (torch.cuda.current_device(), torch.cuda.current_stream())

    def under(self, coroutine: Coroutine[Any, Any, T]) -> Under[T]:
        """To be awaited instead of the coroutine: each of its steps runs with this state on."""
        return Under(self, coroutine)

    @contextlib.contextmanager
    def applied(self) -> Iterator[Applied]:
        """Put it on in this thread, and take it off again, with whatever nodes have left on."""
        before = _Levels()
        autocast, cache = _autocast(), torch.is_autocast_cache_enabled()
        with contextlib.ExitStack() as stack:
            if self.cuda is not None:
                stack.enter_context(torch.cuda.device(self.cuda[0]))
                stack.enter_context(torch.cuda.stream(self.cuda[1]))
            stack.callback(before.restore)
            stack.enter_context(torch.inference_mode(self.inference))
            stack.enter_context(torch.set_grad_enabled(self.grad))
            # One level of nesting, as `torch.autocast` makes: leaving the outermost drops the cache of cast weights.
            torch.autocast_increment_nesting()
            stack.callback(_leave_autocast)
            stack.callback(_set_autocast, autocast, cache)
            _set_autocast(self.autocast, self.cache)
            if self.device is not None:
                stack.enter_context(torch.device(self.device))
            if self.hooks is not None:
                stack.enter_context(torch.autograd.graph.saved_tensors_hooks(*self.hooks))
            applied = Applied(self)
            stack.callback(applied.leave)
            yield applied


class Under(Generic[T]):
    """A coroutine whose steps run under a state, which is off while it is suspended and others have the thread."""

    def __init__(self, state: TorchState, coroutine: Coroutine[Any, Any, T]) -> None:
        self._state = state
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, T]:
        raised: BaseException | None = None
        sent: Any = None
        while True:
            try:
                with self._state.applied():
                    if raised is None:
                        waiting = self._coroutine.send(sent)
                    else:
                        waiting = self._coroutine.throw(raised)
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                sent, raised = (yield waiting), None
            except BaseException as error:
                raised = error


class Applied:
    """A state that is on in this thread."""

    __slots__ = ("_covers", "_levels", "_state")

    def __init__(self, state: TorchState) -> None:
        self._state = state
        self._levels = _Levels()
        self._covers: list[Any] = []

    def restore(self) -> None:
        """Put back what a node has left on, before the next node runs in this thread."""
        state = self._state
        if torch.is_inference_mode_enabled() is not state.inference:
            self._covers.append(torch._C._InferenceMode(state.inference))
        if torch.is_grad_enabled() is not state.grad:
            torch.set_grad_enabled(state.grad)
        if self._levels.restore() or self._autocast_differs():
            _set_autocast(state.autocast, state.cache)

    def _autocast_differs(self) -> bool:
        # Each question costs as much as a small node, so of the device types one is asked for when none is on.
        if torch._C._is_any_autocast_enabled():
            return _autocast() != self._state.autocast or torch.is_autocast_cache_enabled() is not self._state.cache
        first = (_DEVICE_TYPES[0], False, torch.get_autocast_dtype(_DEVICE_TYPES[0]))
        return first != self._state.autocast[0] or torch.is_autocast_cache_enabled() is not self._state.cache

    def leave(self) -> None:
        """The last node has run."""
        self.restore()
        while self._covers:
            self._covers.pop()


class _Levels:
    """How deep this thread's stacks are: whatever stands above was left there."""

    __slots__ = ("default", "dispatch", "functions", "hooks", "nesting")

    def __init__(self) -> None:
        self.functions: list[Any] = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
        self.dispatch: int = torch._C._len_torch_dispatch_stack()
        self.hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
        self.nesting = _nesting()
        self.default: Any = getattr(
            torch._GLOBAL_DEVICE_CONTEXT, "device_context", None
        )  # what set_default_device put in

    def restore(self) -> bool:
        """Take off what stands above; returns whether autocast was among it."""
        # `set_default_device` puts its mode in below the others, so it is the modes themselves that are compared.
        size = torch._C._len_torch_function_stack()
        if size != len(self.functions) or (size and _get_current_function_mode_stack() != self.functions):  # type: ignore[no-untyped-call]
            for _ in range(size):
                torch._C._pop_torch_function_stack()
            for mode in self.functions:
                torch._C._push_on_torch_function_stack(mode)
            torch._GLOBAL_DEVICE_CONTEXT.device_context = self.default
        while torch._C._len_torch_dispatch_stack() > self.dispatch:
            torch._C._pop_torch_dispatch_stack(None)
        top = torch._C._autograd._top_saved_tensors_default_hooks(True)
        while top is not None and top != self.hooks:
            torch._C._autograd._pop_saved_tensors_default_hooks()
            top = torch._C._autograd._top_saved_tensors_default_hooks(True)
        deeper = _nesting() - self.nesting
        for _ in range(deeper):
            torch.autocast_decrement_nesting()
        return deeper > 0


def _nesting() -> int:
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


def _autocast() -> tuple[tuple[str, bool, torch.dtype], ...]:
    return tuple((kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in _DEVICE_TYPES)


def _set_autocast(settings: tuple[tuple[str, bool, torch.dtype], ...], cache: bool) -> None:
    for (kind, on, dtype), (_, is_on, is_dtype) in zip(settings, _autocast(), strict=True):
        if on is not is_on:
            torch.set_autocast_enabled(kind, on)
        if dtype is not is_dtype:
            torch.set_autocast_dtype(kind, dtype)
    if torch.is_autocast_cache_enabled() is not cache:
        torch.set_autocast_cache_enabled(cache)


def _leave_autocast() -> None:
    if torch.autocast_decrement_nesting() == 0:
        torch.clear_autocast_cache()
