"""A synchronous call of something asynchronous.

Without a running loop in this thread, one is run for the call (asyncio). Where one is running already (inside an async
function, in a notebook cell), this thread can't run another: the call goes to a kept thread with a loop of its own, the
*portal*, while this one waits. That blocks the running loop for as long, which a synchronous call does anyway; `await
stitched.run(...)` does not.

The portal's own loop must never wait for itself, so a synchronous call from there is refused. A forked child starts a
portal of its own: threads do not survive a fork.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import anyio
from anyio.from_thread import BlockingPortal
from anyio.lowlevel import current_token

from weave.errors import StitchedModuleException

T = TypeVar("T")

_lock = threading.Lock()
_kept: list[BlockingPortal] = []  # at most one
_inside = threading.local()


def call(function: Callable[[], Awaitable[T]], *, away: bool) -> T:
    """Run an async function to its end and return what it returns, with or without a running loop in this thread.

    `away`: in the portal's loop. Where this thread runs a loop it has to be; where many calls follow one another it is
    quicker, because the loop and its worker threads are kept.

    Raises:
        StitchedModuleException: this thread runs the portal's loop, which would wait for itself.
    """
    return wait_for(portal(), function) if away else anyio.run(function)


def wait_for(kept: BlockingPortal, function: Callable[[], Awaitable[T]]) -> T:
    """Wait for a call in the portal's loop. Whoever is interrupted while waiting has stopped it before it hears of that."""
    call = _Call(function)
    try:
        result: T = kept.start_task_soon(call.run).result()  # in a copy of this thread's context
    except BaseException as error:
        if call.ended.is_set() or not isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        # An interrupt may have come before the portal had the call; what it is asked for later, it does later.
        if kept.start_task_soon(call.stop).result():
            call.ended.wait()
        raise
    if call.raised:
        raise call.raised.pop()  # nothing here may hold it
    return result


class _Call:
    """A call in the portal's loop that can be stopped from another thread."""

    def __init__(self, function: Callable[[], Awaitable[T]]) -> None:
        self._function = function
        self._scope: anyio.CancelScope | None = None
        self.ended = threading.Event()
        # What it raised. A future that held it would be held by its traceback in turn, until the collector comes.
        self.raised: list[Exception] = []

    async def run(self) -> Any:
        try:
            with anyio.CancelScope() as self._scope:
                return await self._function()
        except Exception as error:
            self.raised.append(error)
            return None
        finally:
            self.ended.set()

    async def stop(self) -> bool:
        """Returns whether it had begun."""
        if self._scope is not None:
            self._scope.cancel()
        return self._scope is not None


def elsewhere() -> bool:
    """Whether a call would run in another thread, because this one runs a loop."""
    try:
        current_token()
    except Exception:  # anyio's NoEventLoopError, whose name differs between versions
        return False
    return True


def portal() -> BlockingPortal:
    """The portal, started if need be."""
    if getattr(_inside, "portal", False):
        raise StitchedModuleException(
            "a synchronous call of an asynchronous graph from inside another one would wait for itself: in an async "
            "function, `await stitched.run(...)` instead"
        )
    with _lock:
        if not _kept:
            started: Future[BlockingPortal] = Future()

            async def serve() -> None:
                _inside.portal = True
                async with BlockingPortal() as made:
                    started.set_result(made)
                    await made.sleep_until_stopped()

            # A daemon, so that a program ends although nobody closes it; anyio's own helper makes a thread that is joined.
            threading.Thread(target=anyio.run, args=(serve,), name="weave-portal", daemon=True).start()
            _kept.append(started.result())
        return _kept[0]


def _forget() -> None:
    """In a forked child: the portal's thread is not here, nor whoever held the lock."""
    global _lock
    _lock = threading.Lock()
    _kept.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
