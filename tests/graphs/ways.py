"""The ways in which a graph may be given a function: as it is, declared cheap, `async def`, or giving something to await.

What the function computes is defined once and is synchronous (`Materials.function`), which is what the naive evaluator
calls. A way is only about who calls it, where, and when.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from anyio.lowlevel import checkpoint

Computes = Callable[..., Any]

PLAIN = "plain"
# Synchronous calls know these for asynchronous: the function is an `async def`, however it is dressed.
AWAITED = ("async", "suspending", "partial", "object")
# Plain functions whose result is awaited where there is a loop. A synchronous call of a graph with nothing of the
# above has none, and refuses.
GIVES_AWAITABLE = ("given", "inline_given")
SYNCHRONOUS = (PLAIN, "inline")
INLINE = ("inline", "inline_given")
WAYS = (*SYNCHRONOUS, *AWAITED, *GIVES_AWAITABLE)


async def suspended(function: Computes, /, *args: Any, **kwargs: Any) -> Any:
    """Others may run between the taking of the arguments and the computing, and before the result is delivered."""
    await checkpoint()
    result = function(*args, **kwargs)
    await checkpoint()
    return result


class AsyncObject:
    """An object with an `async def __call__`, which suspends twice before it computes."""

    def __init__(self, function: Computes) -> None:
        self.function = function

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        await checkpoint()
        return await suspended(self.function, *args, **kwargs)


def given_in(way: str, function: Computes) -> Computes:
    """What a `FunctionTarget` is made of."""
    match way:
        case "plain" | "inline":
            return function
        case "async":

            async def at_once(*args: Any, **kwargs: Any) -> Any:
                return function(*args, **kwargs)

            return at_once
        case "suspending":

            async def later(*args: Any, **kwargs: Any) -> Any:
                return await suspended(function, *args, **kwargs)

            return later
        case "partial":
            return functools.partial(suspended, function)
        case "object":
            return AsyncObject(function)
        case "given" | "inline_given":
            return lambda *args, **kwargs: suspended(function, *args, **kwargs)
    raise AssertionError(way)
