"""Reducers that are wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from weave import InputArgs, default_input_reducer_fn
from weave.plugins import ReducerDef, hookimpl
from weave.testing import ReducerSuite

BACKENDS = ("asyncio", "trio")


class Plugin:
    """Registers a function as the reducer "mine"."""

    def __init__(self, fn: Callable[..., Any], **more: Any) -> None:
        self.fn = fn
        self.more = {"kind": "output", **more}

    @hookimpl
    def weave_reducers(self) -> list[ReducerDef]:
        return [ReducerDef(name="mine", fn=self.fn, **self.more)]


class Misspelt(Plugin):
    @hookimpl
    def weave_reducer(self) -> list[ReducerDef]:
        return []


def longest(acc: Any, value: Any, original: Any, index: int, every: Any) -> Any:
    return value if index == 0 or len(value) > len(acc) else acc


def total(acc: Any, value: Any, original: Any, index: int, every: Any) -> Any:
    return value if index == 0 else acc + value


class Lists(ReducerSuite):
    backends = ("asyncio",)
    name = "mine"
    examples = [([[1], [1, 2]], [1, 2]), ([[3, 4, 5], [6]], [3, 4, 5])]
    plugin = Plugin(longest)


A, B = torch.tensor([1.0, 5.0]), torch.tensor([2.0, 3.0])


class Tensors(ReducerSuite):
    backends = ("asyncio",)
    name = "mine"
    examples = [([A, B], A + B)]
    plugin = Plugin(total)


class RightLists(Lists):
    backends = BACKENDS
    fails: set[str] = set()


class RightTensors(Tensors):
    backends = BACKENDS
    fails: set[str] = set()


class WrongHook(Lists):
    plugin = Misspelt(longest)
    fails = {"test_the_plugin_loads"}


class WrongName(Lists):
    name = "mien"
    fails = {"test_is_registered"}
    most = True


class WrongRecord(ReducerSuite):
    name = "mine"
    kind = "input"
    examples = [([1, 2], InputArgs(1, 2))]
    plugin = Plugin(lambda acc, value, *_: acc + value, kind="input", requires_original_output=True)
    fails = {"test_is_registered", "test_pickles"}


class WrongExamples(Lists):
    examples = []
    fails = {"test_there_are_examples"}


class WrongWithoutOriginal(Lists):
    examples = [([[1], [1, 2]], [1, 2])]
    plugin = Plugin(longest, requires_original_output=True)
    fails = {"test_there_are_examples"}


def shortest(acc: Any, value: Any, original: Any, index: int, every: Any) -> Any:
    return value if index == 0 or len(value) < len(acc) else acc


class WrongResult(Lists):
    plugin = Plugin(shortest)
    fails = {"test_reduces", "test_in_a_graph", "test_keeps_no_state", "test_many_runs_at_once", "test_pickles"}


def no_arguments(acc: Any, value: Any, original: Any, index: int, every: Any) -> Any:
    return [*acc.args, *value.args] if index else value


class WrongType(ReducerSuite):
    name = "mine"
    kind = "input"
    examples = [([1, 2], InputArgs(1, 2))]
    plugin = Plugin(no_arguments, kind="input")
    fails = {"test_reduces", "test_in_a_graph"}
    most = True


def half(acc: Any, value: Any, original: Any, index: int, every: Any) -> Any:
    return value / 2 if index == 0 else acc + value / 2


class WrongWithOneValue(Tensors):
    examples = [([A, B], (A + B) / 2)]
    plugin = Plugin(half)
    fails = {"test_one_value"}


class WrongWithoutOneValue(Tensors):
    passes_one_through = False
    fails = {"test_one_value"}


def extends(acc: Any, value: Any, original: Any, index: int, every: Any) -> Any:
    if index == 0:
        return value
    acc.extend(value)
    return acc


class WrongInPlace(Lists):
    examples = [([[1], [2]], [1, 2])]
    plugin = Plugin(extends)
    fails = {"test_changes_nothing_in_place"}


def takes(acc: Any, value: Any, original: Any, index: int, every: Any) -> Any:
    every.clear()
    return [*(acc or []), *value]


class WrongWithAllValues(WrongInPlace):
    plugin = Plugin(takes)


def adds(acc: Any, value: Any, original: Any, index: int, every: Any) -> Any:
    value.mul_(2).div_(2)
    return value if index == 0 else acc + value


class WrongWithVersions(Tensors):
    """The numbers are the same again; in a graph weave notices too."""

    plugin = Plugin(adds)
    fails = {"test_changes_nothing_in_place"}
    most = True


class Remembers:
    """Keeps what belongs into `acc`."""

    def __call__(self, acc: Any, value: Any, original: Any, index: int, every: Any) -> Any:
        self.so_far = value if index == 0 else [*self.so_far, *value]
        return self.so_far


class WrongState(Lists):
    examples = [([[1], [2]], [1, 2]), ([[3], [4]], [3, 4])]
    plugin = Plugin(Remembers())
    fails = {"test_keeps_no_state"}
    may = {"test_many_runs_at_once"}


def in_the_main_thread(acc: Any, value: Any, original: Any, index: int, every: Any) -> Any:
    return longest(acc, value, original, index, every) if threading.current_thread() is threading.main_thread() else []


class WrongThread(Lists):
    plugin = Plugin(in_the_main_thread)
    fails = {"test_in_a_graph", "test_many_runs_at_once"}


class WearsOut:
    """Good for thirty values a test, which is less than many runs need."""

    def __init__(self) -> None:
        self.left = 0

    def __call__(self, acc: Any, value: Any, original: Any, index: int, every: Any) -> Any:
        self.left -= 1
        return longest(acc, value, original, index, every) if self.left > 0 else []


class WrongInManyRuns(Lists):
    plugin = Plugin(WearsOut())
    fails = {"test_many_runs_at_once"}

    def setup_method(self) -> None:
        self.plugin.fn.left = 30


def cut_off(acc: Any, value: Any, original: Any, index: int, every: Any) -> Any:
    return total(acc, value, original, index, every).detach()


class WrongGradients(Tensors):
    plugin = Plugin(cut_off)
    fails = {"test_gradients"}


def half_cut_off(acc: Any, value: Any, original: Any, index: int, every: Any) -> Any:
    return value if index == 0 else acc.detach() + value


class WrongHalfGradients(WrongGradients):
    plugin = Plugin(half_cut_off)


def cut_off_in_threads(acc: Any, value: Any, original: Any, index: int, every: Any) -> Any:
    result = total(acc, value, original, index, every)
    return result if threading.current_thread() is threading.main_thread() else result.detach()


class WrongGradientsInThreads(WrongGradients):
    plugin = Plugin(cut_off_in_threads)


class Unpicklable(Plugin):
    def __init__(self, fn: Any) -> None:
        super().__init__(fn)
        self.lock = threading.Lock()


class WrongToPickle(Lists):
    plugin = Unpicklable(longest)
    fails = {"test_pickles"}


class WrongInThePlan(ReducerSuite):
    name = "mine"
    kind = "input"
    examples = [([1, 2], InputArgs(1, 2))]
    plugin = Plugin(default_input_reducer_fn, kind="input")
    fails = {"test_is_named_in_the_plan"}
