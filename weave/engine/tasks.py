"""The tasks driver: `await stitched.run(...)`, on asyncio and on trio.

A few tasks, *workers*, take ready units. There are two kinds, after the frontier's lanes. A loop worker awaits async
functions, one after another; where units are ready that nobody is about to take, more of them start, in doubling bursts,
so that a chain costs one task and a thousand sleepers cost a thousand. A thread worker is a task that waits for one hop
into a worker thread, and the thread computes modules and plain functions until none is ready for it.

Rules that the code below keeps:
- The loop never blocks. From a thread it is woken by a callback that nobody waits for.
- The caller's own task runs no node, so nothing a node does to its context reaches the caller. In a thread each node
  runs in a copy of the caller's context. A loop worker whose node changed its context hands over to a fresh task.
- The first failure stops what is in flight; everything has ended before the caller hears of it; cancellation is never
  turned into anything else. Exceptions of nodes are kept aside, because a task group would wrap them.
- The task that called `run` starts the workers, since anyio starts none from a loop's callback.
- A thread can't be interrupted: it stops between nodes, and a forward is left at its next port.

Rejected: a task a node (5 `create_task`s of anyio each, and a hop a module); anyio's default limiter (shared with the
application, 40 wide); `from_thread.run` for wake-ups (it blocks the thread until the loop has time).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from typing import Any, TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread

from weave.device.state import TorchState
from weave.engine.calls import gather, spread
from weave.engine.firing import InlineFiring
from weave.engine.frontier import Frontier
from weave.engine.inline import annotate
from weave.engine.program import LOOP, THREAD
from weave.errors import StitchedModuleException
from weave.graph.plan import Exit, Unit
from weave.graph.targets import Target

T = TypeVar("T")

# Between so many units that did not suspend a loop worker lets others have the loop.
_STRETCH = 100


class Stopped(BaseException):
    """The run is being stopped; a forward is left at a port."""


class TaskFiring(InlineFiring):
    """A firing under `run`: what it delivers goes on at once, and it can hop into a thread."""

    __slots__ = ("_crew", "_given")

    def __init__(self, crew: Crew, index: int, values: list[Any]) -> None:
        super().__init__(crew.frontier, index, values, crew.resources)
        self._crew = crew
        # Weak: a value is let go when its last consumer has it, also while its producer's forward goes on.
        self._given: list[tuple[int, weakref.ref[Any], int]] = []

    def _put_all(self, exits: Sequence[Exit], value: Any) -> None:
        frontier = self._crew.frontier
        for slot, marked in frontier.fill_all(exits, value):
            self._given += [(slot, weakref.ref(tensor), version) for tensor, version in marked.pairs]
        self._crew.pass_on(frontier.count([slot for way in exits for slot in way.slots]))

    def check_given(self) -> None:
        """What was delivered while the firing went on must be as it was then; its consumers may have it already."""
        for slot, reference, version in self._given:
            tensor = reference()
            if tensor is not None and tensor._version != version:
                raise self._crew.frontier.changed(slot, None, by=self.node)

    def check_cancelled(self) -> None:
        """Leave if the run is being stopped."""
        if self._crew.stopping:
            raise Stopped

    async def blocking(self, function: Callable[..., T], *args: Any) -> T:
        """Run a blocking function in a worker thread of the run, under the caller's torch state."""
        return await self._crew.hop(function, *args)


class Crew:
    """The workers of one run."""

    def __init__(
        self, frontier: Frontier, state: TorchState, most: int, resources: Mapping[Target, Any] | None
    ) -> None:
        self.frontier = frontier
        self.state = state
        self.resources = resources
        self.stopping = False
        self.failures: list[BaseException] = []
        self._calls = frontier.program.calls
        self._lanes = frontier.program.lanes
        self._bindings = frontier.program.bindings
        self._prefers_own = most > 1
        self._limiter = anyio.CapacityLimiter(most)
        self._base = copy_context()
        self._cancelled = anyio.get_cancelled_exc_class()
        self._tasks = 0
        self._loop_starting = 0
        self._burst = 1
        self._kicked = False
        self._woken = anyio.Event()
        self._soon = _call_soon()

    async def work(self) -> None:
        """Fire every unit. Raises what a node raised, or an `ExceptionGroup` where several failed."""
        try:
            async with anyio.create_task_group() as self._group:
                self._dispatch()
                try:
                    while self._tasks:
                        await self._woken.wait()
                        self._woken = anyio.Event()
                        self._kicked = False
                        self._dispatch()
                except BaseException:
                    self.stopping = True
                    raise
        except BaseExceptionGroup:
            if not self.failures:
                raise
        if len(self.failures) == 1:
            raise self.failures[0]
        if self.failures:
            raise BaseExceptionGroup(f"{len(self.failures)} nodes failed (run {self.frontier.id})", self.failures)
        waiting = self.frontier.waiting()
        if waiting:
            unit = self.frontier.plan.units[waiting[0]]
            raise self.frontier.starved(unit, self.frontier.unfilled(unit))

    # --- what is ready finds somebody ---

    def pass_on(self, became: Iterable[int]) -> None:
        """Units became ready while their feeder goes on: somebody else takes them. From any thread."""
        if became:
            self.frontier.queue(became)
            self._kick()

    def _keep_one(self, became: Sequence[int], lane: int) -> int | None:
        """Units became ready as their feeder ended: its worker goes on with one, the others are queued."""
        lanes = self._lanes
        kept = None
        if self._prefers_own or lane == LOOP:
            if len(became) == 1:
                if lanes[became[0]] == lane:
                    return became[0]
            else:
                own = [index for index in became if lanes[index] == lane]
                if own:
                    kept = min(own)
                    became = [index for index in became if index != kept]
        if became:
            self.frontier.queue(became)
            if lane == LOOP:
                if len(became) > 1 or lanes[became[0]] == THREAD:
                    self._dispatch()
            elif len(became) > 1 or lanes[became[0]] == LOOP or kept is not None:
                self._kick()
        return kept

    def _kick(self) -> None:
        """Have the run's own task look at what is ready, soon. One callback is enough for any number of kicks."""
        if not self._kicked:
            self._kicked = True
            self._soon(self._wake)

    def _wake(self) -> None:
        self._woken.set()

    def _dispatch(self) -> None:
        """Start workers for what is ready. On the loop."""
        if self.stopping:
            return
        for _ in range(self.frontier.wanted()):
            self._start(self._thread_worker)
        if not self._loop_starting:
            ready = self.frontier.ready(LOOP)
            if ready:
                more = min(self._burst, ready)
                self._burst *= 2
                self._loop_starting = more
                for _ in range(more):
                    self._start(self._loop_worker, None)

    def _start(self, worker: Callable[..., Any], *args: Any) -> None:
        self._tasks += 1
        # In a copy of the caller's context, whoever starts it.
        self._base.copy().run(self._group.start_soon, worker, *args)

    def _ended(self) -> None:
        self._tasks -= 1
        if not self._tasks:
            self._woken.set()

    def _failed(self, error: BaseException, unit: Unit) -> None:
        if isinstance(error, self._cancelled | StopIteration):
            what = "cancelled itself" if isinstance(error, self._cancelled) else "raised StopIteration"
            cause, error = (
                error,
                StitchedModuleException(
                    f"{unit.node!r} {what}: {type(error).__name__}: {error}. Nobody had cancelled it, and no coroutine can "
                    "raise this; let the function raise another exception"
                ),
            )
            error.__cause__ = cause
        if isinstance(error, Exception):
            annotate(error, self.frontier, unit)
        self.failures.append(error)
        self.stopping = True

    # --- threads ---

    async def _thread_worker(self) -> None:
        try:
            await anyio.to_thread.run_sync(self._drain, limiter=self._limiter)
            if self.failures:
                self._group.cancel_scope.cancel()
        finally:
            self._ended()

    def _drain(self) -> None:
        """In a worker thread: one unit after another until none is ready for it."""
        frontier = self.frontier
        base = copy_context()  # the caller's, less anyio's note that a loop runs here
        with self.state.applied():
            index = frontier.next_or_leave(first=True)
            while index is not None:
                if self.stopping:
                    frontier.leave()
                    return
                became: Sequence[int] = ()
                try:
                    became = base.copy().run(self._fire, index)
                except Stopped:
                    frontier.leave()
                    return
                except BaseException as error:
                    if not self._is_stop(error):
                        self._failed(error, frontier.plan.units[index])
                    frontier.leave()
                    return
                self.state.restore()
                index = self._keep_one(became, THREAD) if became else None
                if index is None:
                    index = frontier.next_or_leave(first=False)

    def _is_stop(self, error: BaseException) -> bool:
        """Whether a thread was called off (anyio raises that in a thread that waits for the loop)."""
        return self.stopping and isinstance(error, self._cancelled)

    def _fire(self, index: int) -> Sequence[int]:
        """Fire a unit of the thread lane, in its own context. Returns what became ready at its end."""
        frontier = self.frontier
        unit = frontier.plan.units[index]
        call = self._calls[index]
        if call is None:
            values, shared = frontier.take(unit, unit.entries)
            firing = TaskFiring(self, index, values)
            del values
            awaitable = self._bindings[index].executor.fire(firing)
            if awaitable is not None:
                self._hop_back(awaitable)
            frontier.fired.append(index)
            frontier.check(unit, shared)
            firing.check_given()
            return ()
        args, kwargs, shared = gather(frontier, unit)
        result = call(*args, **kwargs)
        if hasattr(type(result), "__await__"):
            result = self._hop_back(result)
        del args, kwargs
        became = spread(frontier, unit, result)
        frontier.fired.append(index)
        if shared:
            frontier.check(unit, shared)
        return became

    def _hop_back(self, awaitable: Any) -> Any:
        """A plain function gave something to await: it is awaited on the loop, while this thread waits."""

        async def wait() -> Any:
            try:
                return await awaitable
            except self._cancelled:
                self.stopping = self.stopping or _is_cancelled()
                raise

        return anyio.from_thread.run(wait)

    async def hop(self, function: Callable[..., T], *args: Any) -> T:
        """Run a function in a worker thread, under the caller's torch state."""

        def under() -> T:
            with self.state.applied():
                return function(*args)

        return await anyio.to_thread.run_sync(under, limiter=self._limiter)

    # --- the loop ---

    async def _loop_worker(self, index: int | None) -> None:
        """One unit of the loop lane after another. Started with a unit, it goes on for a worker with a spoilt context."""
        frontier = self.frontier
        units, calls, slow = frontier.plan.units, self._calls, frontier.program.adapting
        fired, queued = frontier.fired, frontier.queues[LOOP]
        mine = copy_context()
        stretch = 0
        try:
            if index is None:
                self._loop_starting -= 1
                index = frontier.next(LOOP)
            while index is not None and not self.stopping:
                if queued and not self._loop_starting:
                    self._dispatch()
                call, unit = calls[index], units[index]
                try:
                    if call is None or slow[index]:
                        became = await self._await(index)
                    else:
                        args, kwargs, shared = gather(frontier, unit)
                        result = call(*args, **kwargs)
                        if hasattr(type(result), "__await__"):
                            result = await result
                        became = spread(frontier, unit, result)
                        args = kwargs = result = None  # type: ignore[assignment] # no value outlives its node here
                        if shared:
                            frontier.check(unit, shared)
                        fired.append(index)
                except BaseException as error:
                    if isinstance(error, self._cancelled) and (self.stopping or _is_cancelled()):
                        raise
                    self._failed(error, unit)
                    self._group.cancel_scope.cancel()
                    return
                index = self._keep_one(became, LOOP) if became else None
                if index is None:
                    index = frontier.next(LOOP)
                if index is not None and copy_context() != mine:
                    self._start(self._loop_worker, index)
                    return
                stretch += 1
                if stretch == _STRETCH:
                    stretch = 0
                    await anyio.lowlevel.checkpoint()
        finally:
            self._ended()

    async def _await(self, index: int) -> Sequence[int]:
        """Fire a unit of the loop lane that is more than a call, or whose adapters (user code, maybe slow) need a thread."""
        frontier = self.frontier
        unit = frontier.plan.units[index]
        off = self.hop if frontier.program.adapting[index] else _here
        call = self._calls[index]
        if call is None:
            values, shared = await off(frontier.take, unit, unit.entries)
            firing = TaskFiring(self, index, values)
            del values
            awaitable: Any = self._bindings[index].executor.fire(firing)
            if awaitable is not None:
                await awaitable
            firing.check_given()
            became: Sequence[int] = ()
        else:
            args, kwargs, shared = await off(gather, frontier, unit)
            result = call(*args, **kwargs)
            if hasattr(type(result), "__await__"):
                result = await result
            del args, kwargs
            became = await off(spread, frontier, unit, result)
        frontier.fired.append(index)
        frontier.check(unit, shared)
        return became


async def _here(function: Callable[..., T], *args: Any) -> T:
    return function(*args)


def _is_cancelled() -> bool:
    """Whether somebody outside has cancelled the current task."""
    return anyio.current_effective_deadline() == float("-inf")


def _call_soon() -> Callable[[Callable[[], None]], None]:
    """A function that has the current loop call something soon, from any thread, waiting for nothing."""
    token: Any = anyio.lowlevel.current_token().native_token
    run_sync_soon = getattr(token, "run_sync_soon", None)
    if run_sync_soon is not None:  # trio
        return run_sync_soon  # type: ignore[no-any-return]
    return token.call_soon_threadsafe  # type: ignore[no-any-return]
