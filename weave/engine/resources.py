"""What target types need opened around runs: connections, files, processes. Opened once, closed in reverse order."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import anyio

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


class Resources:
    """The resources of one graph and of its views. The outermost block opens and closes; blocks within it only count.

    An `async with` is for one task: what was opened in a task must be closed there, so another task's is refused while
    it is open (or about to be). Runs may come from any task.
    """

    def __init__(self, targets: Iterable[Target], type_of: TypeOf) -> None:
        self._targets = tuple(targets)
        self._type_of = type_of
        self._lock = threading.Lock()
        self._entered = 0
        self._task: int | None = None  # whose `async with` it is
        self._stack: contextlib.ExitStack | contextlib.AsyncExitStack = contextlib.ExitStack()
        self.opened: dict[Target, Any] | None = None

    def enter(self) -> None:
        """`with`."""
        with self._lock:
            if not self._entered:
                if self._task is not None:
                    raise self._elsewhere()
                with contextlib.ExitStack() as stack:
                    opened: dict[Target, Any] = {}
                    for target, context in _contexts(self._targets, self._type_of):
                        if not hasattr(type(context), "__enter__"):
                            raise StitchedModuleException(
                                f"a {type(target).__name__} opens its resources asynchronously: `async with stitched:` in "
                                "an async function, instead of `with`"
                            )
                        opened[target] = stack.enter_context(context)
                    self._stack, self.opened = stack.pop_all(), opened
            self._entered += 1

    def leave(self, *raised: Any) -> bool | None:
        """Leave a `with`."""
        with self._lock:
            if self._entered == 1 and isinstance(self._stack, contextlib.AsyncExitStack):
                raise StitchedModuleException("the `async with stitched:` that opened the resources must be left last")
            self._entered -= 1
            if self._entered:
                return None
            self.opened = None
            return self._stack.__exit__(*raised)  # type: ignore[union-attr]

    async def aenter(self) -> None:
        """`async with`."""
        me = anyio.get_current_task().id
        with self._lock:
            if self._task not in (None, me):
                raise self._elsewhere()
            if self._entered:
                self._entered += 1
                return
            self._task = me
        try:
            async with contextlib.AsyncExitStack() as stack:
                opened: dict[Target, Any] = {}
                for target, context in _contexts(self._targets, self._type_of):
                    if hasattr(type(context), "__aenter__"):
                        opened[target] = await stack.enter_async_context(context)
                    else:
                        opened[target] = stack.enter_context(context)
                self._stack, self.opened = stack.pop_all(), opened
        except BaseException:
            self._task = None
            raise
        self._entered = 1

    async def aleave(self, *raised: Any) -> bool | None:
        """Leave an `async with`."""
        with self._lock:
            self._entered -= 1
            if self._entered:
                return None
            self.opened = None
        try:
            if isinstance(self._stack, contextlib.AsyncExitStack):
                return await self._stack.__aexit__(*raised)
            return self._stack.__exit__(*raised)
        finally:
            self._task = None

    def _elsewhere(self) -> StitchedModuleException:
        return StitchedModuleException(
            "the resources of this graph are opened by another task's `async with stitched:`; enter it once, around all "
            "the tasks that run it"
        )
