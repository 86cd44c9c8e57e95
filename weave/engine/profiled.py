"""Nodes by name in `torch.profiler`: what a program is replaced by while a profiler is on.

A node that is awaited is shown for as long as it computes, step by step: shown from start to end, it would enclose
whatever else ran on the loop meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from torch.autograd import profiler
from torch.autograd.profiler import record_function

from weave.engine.program import Binding, Program


def profiling() -> bool:
    """Whether a profiler is on. Not torch's own question, which one that profiles all threads answers with no."""
    return bool(profiler._is_profiler_enabled)


def profiled(program: Program) -> Program:
    """The same program, with its nodes named for a profiler."""
    units = program.plan.units
    return program._replace(
        calls=tuple(
            None if call is None else _named(unit.node, call) for unit, call in zip(units, program.calls, strict=True)
        ),
        bindings=tuple(
            Binding(_Named(unit.node, bound.executor), bound.prepared, bound.outputs)
            for unit, bound in zip(units, program.bindings, strict=True)
        ),
    )


def _named(node: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def named(*args: Any, **kwargs: Any) -> Any:
        with record_function(node):
            result = call(*args, **kwargs)
        return _Steps(node, result) if hasattr(type(result), "__await__") else result

    return named


class _Named:
    __slots__ = ("_executor", "_node")

    def __init__(self, node: str, executor: Any) -> None:
        self._node = node
        self._executor = executor

    def fire(self, firing: Any) -> Any:
        with record_function(self._node):
            awaitable = self._executor.fire(firing)
        return None if awaitable is None else _Steps(self._node, awaitable)


class _Steps:
    """An awaitable, named in each of its steps."""

    __slots__ = ("_awaitable", "_node")

    def __init__(self, node: str, awaitable: Any) -> None:
        self._node = node
        self._awaitable = awaitable

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._awaitable.__await__()
        go_on: Callable[[], Any] = lambda: next(steps)  # noqa: E731 - replaced below
        while True:
            try:
                with record_function(self._node):
                    waits_for = go_on()
            except StopIteration as end:
                return end.value
            try:
                sent = yield waits_for
            except GeneratorExit:
                close = getattr(steps, "close", None)
                if close is not None:
                    close()
                raise
            except BaseException as error:
                if not hasattr(steps, "throw"):
                    raise
                go_on = _thrown(steps, error)
            else:
                go_on = _sent(steps, sent)

    def close(self) -> None:
        close = getattr(self._awaitable, "close", None)
        if close is not None:
            close()


def _sent(steps: Any, value: Any) -> Callable[[], Any]:
    return (lambda: next(steps)) if value is None else (lambda: steps.send(value))


def _thrown(steps: Any, error: BaseException) -> Callable[[], Any]:
    return lambda: steps.throw(error)
