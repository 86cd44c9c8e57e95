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
- Workers are started by the task that called `run` or by another worker, never from a thread or a loop's callback.
- A thread can't be interrupted: it stops between nodes, and a forward is left at its next port.

Rejected: a task a node (a task costs as much as four plain nodes, and a module a hop more); anyio's default limiter
(shared with the application, 40 wide); `from_thread.run` for wake-ups (it blocks the thread until the loop has time).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import Context, copy_context
from types import CoroutineType
from typing import Any, TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread

from weave.device.state import TorchState
from weave.device.versions import WITHOUT_TENSORS
from weave.engine.calls import gather, plain_arguments, spread
from weave.engine.firing import Stopped, TaskFiring
from weave.engine.frontier import Frontier
from weave.engine.inline import annotate
from weave.engine.program import LOOP, THREAD
from weave.engine.spawn import call_soon, open_tasks
from weave.errors import StitchedModuleException
from weave.graph.plan import Unit
from weave.graph.targets import Target

T = TypeVar("T")

# Between so many units that did not suspend a loop worker lets others have the loop.
_STRETCH = 100


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
        self._lanes = frontier.lanes
        self._bindings = frontier.program.bindings
        self._prefers_own = most > 1
        self._most = most
        self._base = copy_context()
        self._cancelled = anyio.get_cancelled_exc_class()
        self._loop_starting = 0
        self._resting = 0  # workers that are back in a moment
        self._burst = 1
        self._kicked = False
        self._woken = anyio.Event()
        self._soon = call_soon()

    @functools.cached_property
    def limiter(self) -> anyio.CapacityLimiter:
        """The run's own; a run that needs no thread makes none."""
        return anyio.CapacityLimiter(self._most)

    async def work(self) -> None:
        """Fire every unit. Raises what a node raised, or an `ExceptionGroup` where several failed."""
        # Neither the tasks nor an exception may be held from here when this ends: a cycle of crew, frames and values
        # would keep the run's arguments alive until the collector comes.
        try:
            async with open_tasks(self._ended) as self._group:
                try:
                    self._dispatch()
                    while self._group.running:
                        await self._woken.wait()
                        self._woken = anyio.Event()
                        self._kicked = False
                        self._dispatch()
                except BaseException:
                    self.stopping = True
                    raise
        finally:
            del self._group
        if self.failures:
            raise self._failure()
        if len(self.frontier.fired) < len(self.frontier.plan.units):
            # A cancellation may have ended the workers just as this task was about to go on.
            await anyio.lowlevel.checkpoint_if_cancelled()
            waiting = self.frontier.waiting()
            if waiting:
                unit = self.frontier.plan.units[waiting[0]]
                raise self.frontier.starved(unit, self.frontier.unfilled(unit))

    def _failure(self) -> BaseException:
        failures, self.failures = self.failures, []
        if len(failures) == 1:
            return failures[0]
        return BaseExceptionGroup(f"{len(failures)} nodes failed (run {self.frontier.id})", failures)

    # --- what is ready finds somebody ---

    def pass_on(self, became: Iterable[int]) -> None:
        """Units became ready while their feeder goes on: somebody else takes them. From any thread."""
        if became:
            self.frontier.queue(became)
            self._kick()

    def _keep_one(self, became: Sequence[int], lane: int) -> int | None:
        """Units became ready as their feeder ended: its worker goes on with one, the others are queued."""
        kept = None
        if self._prefers_own or lane == LOOP:
            own = [index for index in became if self._lanes[index] == lane]
            if own:
                kept = min(own)
                became = [index for index in became if index != kept]
        if became:
            self.frontier.queue(became)
            if lane == THREAD and (kept is not None or len(became) > 1 or self._lanes[became[0]] == LOOP):
                self._kick()
        return kept

    def _kick(self) -> None:
        """Have the run's own task look at what is ready, soon. One callback is enough for any number of kicks."""
        if not self._kicked:
            self._kicked = True
            self._soon(self._wake)

    def _kick_here(self) -> None:
        """`_kick` from the loop's own thread. The run's own task looks as soon as this one suspends."""
        self._kicked = True
        self._woken.set()

    def _wake(self) -> None:
        self._woken.set()

    def _dispatch(self) -> None:
        """Start workers for what is ready. On the loop."""
        if self.stopping:
            return
        for _ in range(self.frontier.wanted()):
            self._start(self._thread_worker)
        if not self._loop_starting and not self._resting:
            ready = self.frontier.ready(LOOP)
            if ready:
                more = min(self._burst, ready)
                self._burst *= 2
                self._loop_starting = more
                for _ in range(more):
                    self._start(self._loop_worker, None)

    def _start(self, worker: Callable[..., Any], *args: Any) -> None:
        if self.state.away and worker != self._thread_worker:
            worker, args = self._under_state, (worker, *args)
        self._group.start(self._base.copy(), worker, *args)  # the caller's context, whoever starts it

    async def _under_state(self, worker: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        await self.state.under(worker(*args))

    def _ended(self, error: BaseException | None) -> None:
        """A worker has ended. By an exception: a bug of ours, or its task was cancelled by somebody who found it."""
        if error is not None and not self.stopping:
            if isinstance(error, self._cancelled):
                error = self._cut_off()
            self.failures.append(error)
            self.stopping = True
            self._group.cancel()
        if not self._group.running:
            self._woken.set()

    def _cut_off(self) -> StitchedModuleException:
        return StitchedModuleException(f"a task of run {self.frontier.id} was cancelled from outside the run")

    def call_off(self, error: BaseException) -> None:
        """Something outside the graph ends the run, with this exception. From any thread; does not wait for it."""
        try:
            self._soon(functools.partial(self._called_off, error))
        except RuntimeError:  # the loop has gone, and the run with it
            return

    def _called_off(self, error: BaseException) -> None:
        if not self.stopping:
            self.stopping = True
            self.failures.append(error)
            if hasattr(self, "_group"):
                self._group.cancel()
            self._woken.set()

    def _failed(self, error: BaseException, unit: Unit) -> None:
        if any(error is known for known in self.failures):  # several may hear of one and the same lost peer
            return
        if isinstance(error, self._cancelled | StopIteration):
            said = f"{type(error).__name__}({', '.join(map(repr, error.args))})"
            why = "no coroutine can raise that" if isinstance(error, StopIteration) else "nobody had cancelled it"
            cause, error = (
                error,
                StitchedModuleException(
                    f"{unit.node!r} raised {said}, and {why}; let the function raise another exception"
                ),
            )
            error.__cause__ = cause
        if isinstance(error, Exception):
            annotate(error, self.frontier, unit)
        self.frontier.failed_at = self.frontier.failed_at or unit.node
        self.failures.append(error)
        self.stopping = True

    # --- threads ---

    async def _thread_worker(self) -> None:
        await self._in_thread(self._drain)
        if self.failures:
            self._group.cancel()

    def _drain(self) -> None:
        """In a worker thread: one unit after another until none is ready for it."""
        frontier = self.frontier
        base = copy_context()  # the caller's, less anyio's note that a loop runs here
        with self.state.applied() as applied:
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
                applied.restore()
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
                return await (self.state.under(_awaited(awaitable)) if self.state.away else awaitable)
            except self._cancelled:
                self.stopping = self.stopping or _is_cancelled()
                raise

        return anyio.from_thread.run(wait)

    async def aside(self, function: Callable[..., T], *args: Any) -> T:
        """`hop` for the run's own task, which may be cancelled natively: it waits for the thread all the same."""
        over, got, raised = anyio.Event(), [], []

        async def hop() -> None:
            try:
                got.append(await self.hop(function, *args))
            except BaseException as error:  # exits and interrupts too, which would end asyncio's loop from a task
                raised.append(error)

        async with open_tasks(lambda error: over.set()) as tasks:
            tasks.start(self._base.copy(), hop)
            await over.wait()
        if raised and not isinstance(raised[0], self._cancelled):
            raise raised.pop()  # nothing here may hold it, see `work`
        if not got:
            raise self._cut_off()
        return got[0]

    async def hop(self, function: Callable[..., T], *args: Any) -> T:
        """Run a function in a worker thread, under the caller's torch state."""

        def under() -> T:
            with self.state.applied():
                return function(*args)

        return await self._in_thread(under)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        """Wait for a worker thread, to its end even if this task is cancelled natively, which anyio's shield lets pass."""
        begun, ended = threading.Event(), anyio.Event()
        got: list[T] = []
        raised: list[BaseException] = []

        def inside() -> None:
            begun.set()
            try:
                got.append(function())
            except BaseException as error:
                raised.append(error)
            finally:
                self._soon(ended.set)

        try:
            await anyio.to_thread.run_sync(inside, limiter=self.limiter)
        except self._cancelled:
            self.stopping = True
            while begun.is_set() and not ended.is_set():
                try:
                    with anyio.CancelScope(shield=True):
                        await ended.wait()
                except self._cancelled:
                    continue
            raise
        if raised:
            raise raised.pop()  # nothing here may hold it, see `work`
        return got[0]

    # --- the loop ---

    async def _loop_worker(self, index: int | None) -> None:
        """One unit of the loop lane after another. Started with a unit, it goes on for a worker with a spoilt context."""
        frontier = self.frontier
        units, calls, fired = frontier.plan.units, self._calls, frontier.fired
        steps, slow = frontier.program.steps, frontier.program.adapting
        for_loop, for_threads = frontier.queues[LOOP], frontier.queues[THREAD]
        hand_on = frontier.hand_on_alone if frontier.program.alone else frontier.hand_on
        mine = copy_context()
        result: Any
        args = kwargs = shared = result = None
        stretch = 0
        if index is None:
            self._loop_starting -= 1
            index = frontier.next(LOOP)
        while index is not None and not self.stopping:
            if (for_loop or for_threads) and not self._kicked:
                self._kick_here()  # others are wanted if this unit suspends
            call, unit = calls[index], units[index]
            became: Sequence[int] = ()
            following = None
            try:
                if call is None or slow[index]:
                    became = await self._await(index)
                else:
                    step = steps[index]
                    args = plain_arguments(frontier, step[0]) if step is not None else None
                    if args is not None:
                        result = call(*args)
                    else:
                        args, kwargs, shared = gather(frontier, unit)
                        result = call(*args, **kwargs)
                        kwargs = None
                    if type(result) is CoroutineType or hasattr(type(result), "__await__"):
                        result = await result
                    if step is not None and type(result) in WITHOUT_TENSORS:
                        following = hand_on(step[1], result, LOOP)
                    else:
                        became = spread(frontier, unit, result)
                    args = result = None  # no value outlives its node here
                    if shared:
                        frontier.check(unit, shared)
                        shared = None
                    fired.append(index)
            except BaseException as error:
                if isinstance(error, self._cancelled) and (self.stopping or _is_cancelled()):
                    raise
                self._failed(error, unit)
                self._group.cancel()
                return
            if became:
                following = self._keep_one(became, LOOP)
            index = frontier.next(LOOP) if following is None else following
            if index is not None and _changed(mine):
                self._start(self._loop_worker, index)
                return
            stretch += 1
            if stretch == _STRETCH:
                stretch = 0
                self._resting += 1
                await anyio.lowlevel.checkpoint()
                self._resting -= 1
        if for_threads and not self._kicked:
            self._kick_here()

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


def _changed(before: Context) -> bool:
    """Whether a node has left context variables changed. One set to a value that equals the old one has not."""
    try:
        return copy_context() != before
    except Exception:  # values that can't be compared, such as two tensors
        return True


async def _awaited(awaitable: Any) -> Any:
    return await awaitable


async def _here(function: Callable[..., T], *args: Any) -> T:
    return function(*args)


def _is_cancelled() -> bool:
    """Whether somebody outside has cancelled the current task."""
    return anyio.current_effective_deadline() == float("-inf")
