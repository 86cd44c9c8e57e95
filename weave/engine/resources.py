"""What target types need opened around runs: connections, files, processes. Opened once, closed in reverse order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from weave.errors import StitchedModuleException
from weave.graph.targets import Target
from weave.spi.records import TargetType

TypeOf = Callable[[Target], TargetType]


def _contexts(targets: Iterable[Target], type_of: TypeOf) -> Iterator[tuple[Target, Any]]:
    for target in targets:
        make = type_of(target).resources
        if make is not None:
            context: Any = make(target)
            kind = type(context)
            if not (hasattr(kind, "__enter__") or hasattr(kind, "__aenter__")):
                raise StitchedModuleException(
                    f"the resources of a {type(target).__name__} must be a context manager, plain or asynchronous, and "
                    f"its target type's resources= gave a {kind.__name__}"
                )
            yield target, context


def open_resources(
    targets: Iterable[Target], type_of: TypeOf
) -> tuple[dict[Target, Any], contextlib.ExitStack | contextlib.AsyncExitStack]:
    """Enter each target's context manager; what they gave, and the stack that leaves them."""
    with contextlib.ExitStack() as stack:
        opened: dict[Target, Any] = {}
        for target, context in _contexts(targets, type_of):
            if not hasattr(type(context), "__enter__"):
                raise StitchedModuleException(
                    f"a {type(target).__name__} opens its resources asynchronously: `async with stitched:` in an async "
                    "function, instead of `with`"
                )
            opened[target] = stack.enter_context(context)
        return opened, stack.pop_all()


async def aopen_resources(
    targets: Iterable[Target], type_of: TypeOf
) -> tuple[dict[Target, Any], contextlib.ExitStack | contextlib.AsyncExitStack]:
    """`open_resources`, with asynchronous context managers too."""
    async with contextlib.AsyncExitStack() as stack:
        opened: dict[Target, Any] = {}
        for target, context in _contexts(targets, type_of):
            if hasattr(type(context), "__aenter__"):
                opened[target] = await stack.enter_async_context(context)
            else:
                opened[target] = stack.enter_context(context)
        return opened, stack.pop_all()
