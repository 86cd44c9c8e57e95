"""Adapters that are wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from weave import InputArgs
from weave.plugins import AdapterDef, hookimpl
from weave.testing import AdapterSuite

BACKENDS = ("asyncio", "trio")


class Plugin:
    """Registers a function as the adapter "mine"."""

    def __init__(self, fn: Callable[..., Any], **more: Any) -> None:
        self.fn = fn
        self.more = more

    @hookimpl
    def weave_adapters(self) -> list[AdapterDef]:
        return [AdapterDef(name="mine", fn=self.fn, **self.more)]


class Misspelt(Plugin):
    @hookimpl
    def weave_adaptors(self) -> list[AdapterDef]:
        return []


def doubled(value: Any) -> Any:
    return InputArgs(value.args[0] * 2) if isinstance(value, InputArgs) else value * 2


A = torch.tensor([1.0, 5.0])


class Suite(AdapterSuite):
    backends = ("asyncio",)
    name = "mine"
    examples = [(3, 6), (A, A * 2), (InputArgs(3), InputArgs(6)), (InputArgs(4), InputArgs(8))]
    plugin = Plugin(doubled)
    fails: set[str] = set()


class Each(Suite):
    each_call = True
    plugin = Plugin(doubled, each_call=True)


class RightSuite(Suite):
    backends = BACKENDS


class RightEach(Each):
    backends = BACKENDS


class WrongHook(Suite):
    plugin = Misspelt(doubled)
    fails = {"test_the_plugin_loads"}


class WrongName(Suite):
    name = "mien"
    fails = {"test_is_registered"}
    most = True


class WrongKind(Suite):
    kind = "output"
    examples = [(3, 6)]
    fails = {"test_is_registered"}


class WrongExamples(Suite):
    examples = []
    fails = {"test_there_are_examples"}


class WrongWithoutInputs(Suite):
    examples = [(3, 6)]
    fails = {"test_there_are_examples"}


class WrongResult(Suite):
    plugin = Plugin(lambda value: doubled(doubled(value)))
    fails = {"test_adapts", "test_in_a_graph", "test_keeps_no_state", "test_many_runs_at_once"}
    most = True


def appends(value: list[Any]) -> list[Any]:
    value.append(0)
    return value


class WrongInPlace(Suite):
    kind = "output"
    examples = [([1], [1, 0])]
    plugin = Plugin(appends, kind="output")
    fails = {"test_changes_nothing_in_place", "test_many_runs_at_once"}


class Once:
    """Right the first time."""

    def __init__(self) -> None:
        self.left = 0

    def __call__(self, value: Any) -> Any:
        self.left -= 1
        return doubled(value) if self.left >= 0 else value


class WrongState(Suite):
    plugin = Plugin(Once())
    fails = {"test_keeps_no_state"}
    most = True

    def setup_method(self) -> None:
        self.plugin.fn.left = 1


def in_the_main_thread(value: Any) -> Any:
    return doubled(value) if threading.current_thread() is threading.main_thread() else value


class WrongThread(Suite):
    plugin = Plugin(in_the_main_thread)
    fails = {"test_in_a_graph", "test_many_runs_at_once", "test_gradients"}


class WrongInManyRuns(Suite):
    plugin = Plugin(Once())
    fails = {"test_many_runs_at_once"}

    def setup_method(self) -> None:
        self.plugin.fn.left = 15


class WrongEach(Each):
    plugin = Plugin(doubled)
    fails = {"test_is_registered", "test_each_call"}


class OfOneOnly:
    """Two calls of one forward are too many."""

    def __call__(self, value: Any) -> Any:
        value = doubled(value)
        if isinstance(value, int):
            self.left -= 1
            return value if self.left >= 0 else -1
        return value


class WrongLaterCalls(Each):
    examples = [(3, 6), (4, 8), (InputArgs(A), InputArgs(A * 2))]
    plugin = Plugin(OfOneOnly(), each_call=True)
    fails = {"test_each_call"}
    most = True

    def setup_method(self) -> None:
        self.plugin.fn.left = 1


def cut_off(value: Any) -> Any:
    return torch.Tensor.detach(doubled(value)) if isinstance(value, torch.Tensor) else doubled(value)


class WrongGradients(Suite):
    plugin = Plugin(cut_off)
    fails = {"test_gradients"}


class Skewed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def skewed(value: Any) -> Any:
    return Skewed.apply(value) if isinstance(value, torch.Tensor) else doubled(value)


class WrongSlope(WrongGradients):
    plugin = Plugin(skewed)


class Unpicklable(Plugin):
    def __init__(self, fn: Any) -> None:
        super().__init__(fn)
        self.lock = threading.Lock()


class WrongToPickle(Suite):
    plugin = Unpicklable(doubled)
    fails = {"test_pickles"}


def default_output_adapter_fn(value: Any) -> Any:
    """Named as weave's own."""
    return doubled(value)


class WrongInThePlan(Suite):
    """weave leaves out of a plan what is nothing but the identity."""

    kind = "output"
    examples = [(3, 3)]
    name = "default_output_adapter_fn"
    fails = {"test_is_named_in_the_plan"}

    class plugin:
        @hookimpl
        def weave_adapters(self) -> list[AdapterDef]:
            return [AdapterDef(name="default_output_adapter_fn", fn=lambda value: value, kind="output")]
