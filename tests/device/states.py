"""torch's thread-local state: what it is in this thread, ways to change it, and functions that remember it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

KINDS = ("cpu", "xpu", "mps", "hpu", "mtia")  # device types whose autocast can be on without such a device


def snapshot() -> dict[str, Any]:
    """This thread's state, as torch tells it."""
    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        **{f"autocast {k}": (torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in KINDS},
        "autocast cache": torch.is_autocast_cache_enabled(),
        "device": str(torch.get_default_device()),
        "hooks": torch._C._autograd._top_saved_tensors_default_hooks(True),
        "modes": {type(mode).__name__ for mode in torch.overrides._get_current_function_mode_stack()},
        "a new tensor": str(torch.empty(0).device),
    }


PLAIN = snapshot()


def packs(value: Any) -> Any:
    return value


def packs_too(value: Any) -> Any:
    return value


@contextlib.contextmanager
def default_device(name: str) -> Iterator[None]:
    torch.set_default_device(name)
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextlib.contextmanager
def by_hand(switch: Callable[[Any], Any], value: Any, back: Any) -> Iterator[None]:
    switch(value)
    try:
        yield
    finally:
        switch(back)


hooks = torch.autograd.graph.saved_tensors_hooks
amp = torch.autocast
STATES: dict[str, Callable[[], list[AbstractContextManager[Any]]]] = {
    "nothing": list,
    "no_grad": lambda: [torch.no_grad()],
    "enable_grad in no_grad": lambda: [torch.no_grad(), torch.enable_grad()],
    "inference_mode": lambda: [torch.inference_mode()],
    "inference_mode off in inference_mode": lambda: [torch.inference_mode(), torch.inference_mode(False)],
    "no_grad in inference_mode off": lambda: [torch.inference_mode(), torch.inference_mode(False), torch.no_grad()],
    "enable_grad in inference_mode": lambda: [torch.inference_mode(), torch.enable_grad()],
    "autocast": lambda: [amp("cpu")],
    "autocast to half": lambda: [amp("cpu", dtype=torch.float16)],
    "autocast without a cache": lambda: [amp("cpu", cache_enabled=False)],
    "autocast with a cache in one without": lambda: [amp("cpu", cache_enabled=False), amp("cpu", cache_enabled=True)],
    "autocast off in autocast": lambda: [amp("cpu"), amp("cpu", enabled=False)],
    "autocast of two device types": lambda: [amp("cpu"), amp("xpu", dtype=torch.float16)],
    "autocast of two, the first off again": lambda: [amp("cpu"), amp("xpu"), amp("cpu", enabled=False)],
    "autocast of another device type": lambda: [amp("xpu", dtype=torch.float16)],
    "a device": lambda: [torch.device("meta")],
    "a device in a device": lambda: [torch.device("cpu"), torch.device("meta")],
    "the default device": lambda: [default_device("meta")],
    "a device in the default device": lambda: [default_device("meta"), torch.device("cpu")],
    "hooks": lambda: [hooks(packs, packs)],
    "hooks in hooks": lambda: [hooks(packs, packs), hooks(packs_too, packs_too)],
    "everything": lambda: [
        torch.no_grad(),
        amp("cpu", dtype=torch.float16, cache_enabled=False),
        torch.device("meta"),
        hooks(packs, packs),
    ],
    # --- what is on for nothing yet, and would be for what a node turns on ---
    "another dtype, and autocast off": lambda: [amp("cpu", dtype=torch.float16, enabled=False)],
    "a dtype set by hand": lambda: [
        by_hand(lambda d: torch.set_autocast_dtype("cpu", d), torch.float16, torch.bfloat16)
    ],
    "the cache turned off by hand": lambda: [by_hand(torch.set_autocast_cache_enabled, False, True)],
    # --- device types that only some builds know; torch's own "is any on" leaves one of them out ---
    "autocast on mps": lambda: [amp("mps")],
    "autocast on hpu": lambda: [amp("hpu")],
    "autocast on mtia": lambda: [amp("mtia")],
}


@contextlib.contextmanager
def state(name: str) -> Iterator[dict[str, Any]]:
    """The state of that name, on in this thread."""
    with ExitStack() as stack:
        for context in STATES[name]():
            stack.enter_context(context)
        yield snapshot()
    assert snapshot() == PLAIN


class Looks:
    """Remembers what state it was called in, by place, and in which thread."""

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}
        self.threads: set[int] = set()

    def at(self, place: str) -> Callable[..., Any]:
        def look(value: Any = None, *more: Any) -> Any:
            self.seen[place] = snapshot()
            self.threads.add(threading.get_ident())
            return value

        return look

    def reducing(self, place: str) -> Callable[..., Any]:
        def look(acc: Any, value: Any, *more: Any) -> Any:
            return self.at(place)(value)

        return look


# --- modes that are made for one thread ---


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.threads.append(threading.get_ident())
        return function(*args, **(kwargs or {}))


class Dispatches(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.threads.append(threading.get_ident())
        return function(*args, **(kwargs or {}))


MODES: dict[str, Callable[[], Any]] = {
    "Functions": Functions,
    "Dispatches": Dispatches,
    "FakeTensorMode": FakeTensorMode,
}
