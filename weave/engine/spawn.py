"""The tasks of one run: started by the loop's own means, cancelled by anyio's scopes.

anyio's task group would do, but starting one of its tasks costs three to four times the loop's own (measured: 55 against
14 µs on asyncio, 67 against 22 on trio), which is most of what a run of a thousand sleepers costs. So the tasks are the
loop's own. They are cancelled through anyio's scopes all the same, not by `Task.cancel()`: a shielded clean-up in an
async function must be left alone, and a cancelled one must stay cancelled at its next await.

On asyncio a task is made by its class, not by `loop.create_task`: an eager task factory would run it within its
starter's frame, which recurses with the graph. One thing is not as in a task group there: a node that asks for
`anyio.current_effective_deadline()` does not see the caller's. It is cancelled at that time all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Protocol, Self

import anyio
import anyio.lowlevel

Worker = Callable[..., Coroutine[Any, Any, None]]


class Tasks(Protocol):
    """Tasks that end before the block that opened them does. Where that ends by an exception, they are cancelled."""

    running: int

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool | None: ...

    def start(self, context: Context, worker: Worker, *args: Any) -> None:
        """Start a task that runs `await worker(*args)` in that context."""

    def cancel(self) -> None:
        """Cancel all that are under way."""


Ended = Callable[[BaseException | None], None]


def open_tasks(ended: Ended) -> Tasks:
    """Tasks on the running loop. `ended` hears of each task's end, and of an exception let out, which none should."""
    return _TrioTasks(ended) if hasattr(_token(), "run_sync_soon") else _AsyncioTasks(ended)


def call_soon() -> Callable[[Callable[[], None]], Any]:
    """A function that has the running loop call something soon, from any thread, waiting for nothing."""
    token = _token()
    return token.run_sync_soon if hasattr(token, "run_sync_soon") else token.call_soon_threadsafe  # type: ignore[no-any-return]


def _token() -> Any:
    return anyio.lowlevel.current_token().native_token


class _AsyncioTasks:
    def __init__(self, ended: Ended) -> None:
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        # Which class implements scopes here is looked up once, not once a task.
        self._scope_class: Callable[[], anyio.CancelScope] = type(anyio.CancelScope())
        self._scopes: set[anyio.CancelScope] = set()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself holds its tasks weakly
        self._cancelled = False
        self._over: anyio.Event | None = None
        self.running = 0

    def start(self, context: Context, worker: Worker, *args: Any) -> None:
        task = asyncio.Task(self._scoped(worker, args), loop=self._loop, context=context)
        self.running += 1
        self._tasks.add(task)
        # Not at the end of `_scoped`: a task that is cancelled before its first step runs no line of it.
        task.add_done_callback(self._done)

    async def _scoped(self, worker: Worker, args: tuple[Any, ...]) -> None:
        if self._cancelled:
            return
        with self._scope_class() as scope:
            self._scopes.add(scope)
            try:
                await worker(*args)
            finally:
                self._scopes.discard(scope)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.running -= 1
        self._ended(asyncio.CancelledError() if task.cancelled() else task.exception())
        if self._over is not None and not self.running:
            self._over.set()

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            # Not from a task: a scope's cancellation notes which task it came from, and a task's repr costs 200 µs.
            self._loop.call_soon(self._cancel_scopes)

    def _cancel_scopes(self) -> None:
        for scope in self._scopes:
            scope.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            self.cancel()
        again: asyncio.CancelledError | None = None
        while self.running:
            self._over = anyio.Event()
            try:
                with anyio.CancelScope(shield=True):
                    await self._over.wait()
            except asyncio.CancelledError as cancelled:  # by Task.cancel(), which knows no shield
                again = cancelled
                self.cancel()
        if again is not None:
            raise again


class _TrioTasks:
    def __init__(self, ended: Ended) -> None:
        import trio  # only a trio program gets here, and it has it

        self._trio = trio
        self._ended = ended
        self._manager = trio.open_nursery()
        self._over: Any = None
        self.running = 0

    def start(self, context: Context, worker: Worker, *args: Any) -> None:
        self.running += 1
        context.run(self._nursery.start_soon, self._contained, worker, args)

    async def _contained(self, worker: Worker, args: tuple[Any, ...]) -> None:
        # A nursery wraps what its tasks raise, cancellations too; whoever opened these has its own to go on with.
        raised: BaseException | None = None
        try:
            await worker(*args)
        except self._trio.Cancelled:
            pass
        except BaseException as error:
            raised = error
        self.running -= 1
        self._ended(raised)
        if self._over is not None and not self.running:
            self._over.set()

    def cancel(self) -> None:
        self._nursery.cancel_scope.cancel()

    async def __aenter__(self) -> Self:
        self._nursery = await self._manager.__aenter__()
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        # The nursery's scope is around the block too, so a cancellation in it may be our own, or not only.
        ours = isinstance(error, self._trio.Cancelled) and self._nursery.cancel_scope.cancel_called
        if error is not None:
            self.cancel()
        if self.running:
            self._over = self._trio.Event()
            with self._trio.CancelScope(shield=True):
                await self._over.wait()
        await self._manager.__aexit__(None, None, None)
        if ours:
            await self._trio.lowlevel.checkpoint_if_cancelled()
        return ours
