"""The built-in target types and their executors."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Generator, Iterable
from types import FunctionType
from typing import Any

from torch import nn

from weave.graph.targets import ConstantTarget, ExternalTarget, FunctionTarget, ModuleTarget, RemoteTarget
from weave.passage.passage import Passage
from weave.passage.table import prepare
from weave.remote.executor import Prepared, RemoteExecutor
from weave.spi.executor import Firing
from weave.spi.hooks import hookimpl
from weave.spi.records import TargetType

_MARKS = sys.version_info >= (3, 12)  # inspect.markcoroutinefunction is that new


def is_async(function: Any) -> bool:
    """Whether calling it gives something to await, as far as can be told without calling it."""
    if type(function) is FunctionType and not (_MARKS and hasattr(function, "_is_coroutine_mark")):  # the common case
        return bool(function.__code__.co_flags & inspect.CO_COROUTINE)
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


class ModuleExecutor:
    """Runs one passage."""

    def fire(self, firing: Firing) -> None:
        """Call the module; its ports deliver while the forward goes on."""
        Passage(firing.prepared, firing).run()


class FunctionExecutor:
    """Calls the function. Under `run`, on the loop where it is `async def` or declared `inline`, else in a thread."""

    def lane(self, target: FunctionTarget) -> str:
        """Where to fire."""
        function = target.function
        if type(function) is FunctionType and not _MARKS:  # what nearly every target has
            waits = function.__code__.co_flags & inspect.CO_COROUTINE
        else:
            waits = is_async(function)
        return "await" if waits else "inline" if target.inline else "thread"

    def function(self, target: FunctionTarget) -> Callable[..., Any]:
        """What to call."""
        return target.function

    def fire(self, firing: Firing) -> Awaitable[None] | None:
        """Call it with the reduced arguments of its one input."""
        target: Any = firing.target
        call = firing.inputs()
        result = target.function(*call.args, **call.kwargs)
        if hasattr(type(result), "__await__"):
            return Later(firing, result)
        firing.deliver("", result)
        return None


class Later:
    """What a function gave to await, to be delivered when it has been. Closed unawaited, it leaves no warning behind."""

    def __init__(self, firing: Firing, awaitable: Any) -> None:
        self.firing = firing
        self.awaitable = awaitable

    def __await__(self) -> Generator[Any, Any, None]:
        value = yield from self.awaitable.__await__()
        self.firing.deliver("", value)

    def close(self) -> None:
        """Give up waiting before it began."""
        close = getattr(self.awaitable, "close", None)
        if close is not None:
            close()


class ConstantExecutor:
    """Gives the value as it is now; also one that could be awaited, which a function's result would be."""

    def lane(self, target: ConstantTarget) -> str:
        """Where to fire: reading an attribute is no work."""
        return "inline"

    def fire(self, firing: Firing) -> None:
        """Deliver it."""
        target: Any = firing.target
        firing.deliver("", target.value)


def _module(target: ModuleTarget) -> Iterable[Any]:
    return (target.module,)


def _function(target: FunctionTarget) -> Iterable[Any]:
    return (target.function,) if isinstance(target.function, nn.Module) else ()


def _constant(target: ConstantTarget) -> Iterable[Any]:
    return (target.value,) if isinstance(target.value, nn.Module | nn.Parameter) else ()


@hookimpl
def weave_target_types() -> list[TargetType]:
    """Modules, functions, constants, the external boundary and other ranks."""
    both = ("input", "output")
    return [
        TargetType(
            name="module",
            target=ModuleTarget,
            executor=ModuleExecutor(),
            sources=both,
            destinations=both,
            prepare=prepare,
            owns=_module,
        ),
        TargetType(name="function", target=FunctionTarget, executor=FunctionExecutor(), owns=_function),
        TargetType(
            name="constant", target=ConstantTarget, executor=ConstantExecutor(), destinations=(), owns=_constant
        ),
        TargetType(name="external", target=ExternalTarget, executor=None, sources=both, destinations=both),
        TargetType(
            name="remote",
            target=RemoteTarget,
            executor=RemoteExecutor(),
            sources=("output",),
            destinations=("output",),
            prepare=Prepared,
        ),
    ]
