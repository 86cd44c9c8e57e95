"""torch's thread-local state: taken where a run begins, put on in the worker threads that compute for it.

What goes along: grad mode, inference mode, autocast (per device type: on, dtype; and its cache switch), the default
device, hooks for saved tensors, the current CUDA device and stream. Other modes on the caller's stack
(`TorchFunctionMode`, `TorchDispatchMode`) are objects made for one thread: they can't go along, and `TorchState.foreign`
names them. Default dtype, `sdpa_kernel` and the random generators belong to the whole process and need no carrying.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

_DEVICE_TYPES = ("cpu", "cuda", "xpu", "mps")


class TorchState:
    """The calling thread's state when this was made."""

    __slots__ = ("autocast", "cache", "cuda", "device", "foreign", "grad", "hooks", "inference")

    def __init__(self) -> None:
        self.grad = torch.is_grad_enabled()
        self.inference = torch.is_inference_mode_enabled()
        self.autocast: tuple[tuple[str, bool, torch.dtype], ...] = ()
        if torch._C._is_any_autocast_enabled():
            self.autocast = tuple(
                (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
                for kind in _DEVICE_TYPES
                if torch.is_autocast_enabled(kind)
            )
        self.cache = torch.is_autocast_cache_enabled()
        modes: list[Any] = []
        if torch._C._len_torch_function_stack():
            modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
        devices = [mode.device for mode in modes if isinstance(mode, DeviceContext)]
        self.device: torch.device | None = devices[-1] if devices else None
        others: list[Any] = [mode for mode in modes if not isinstance(mode, DeviceContext)]
        if torch._C._len_torch_dispatch_stack():
            others += _get_current_dispatch_mode_stack()
        self.foreign = tuple(type(mode).__name__ for mode in others)
        self.hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
        self.cuda: tuple[int, Any] | None = None
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            self.cuda = (torch.cuda.current_device(), torch.cuda.current_stream())

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Put it on in this thread, and take it off again."""
        with contextlib.ExitStack() as stack:
            if self.cuda is not None:
                stack.enter_context(torch.cuda.device(self.cuda[0]))
                stack.enter_context(torch.cuda.stream(self.cuda[1]))
            stack.enter_context(torch.inference_mode(self.inference))
            stack.enter_context(torch.set_grad_enabled(self.grad))
            for kind, on, dtype in self.autocast:
                stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=on, cache_enabled=self.cache))
            if self.device is not None:
                stack.enter_context(torch.device(self.device))
            if self.hooks is not None:
                stack.enter_context(torch.autograd.graph.saved_tensors_hooks(*self.hooks))
            yield

    def restore(self) -> None:
        """Put back what a node may have toggled by hand, before the next node runs in this thread."""
        if torch.is_grad_enabled() is not self.grad:
            torch.set_grad_enabled(self.grad)
