"""A run that somebody observes.

Nothing of this is on the path of a run that nobody observes: an observed run is driven with another program, whose calls
and executors say when a node starts and ends, by drivers that don't know. Rejected: a test in every node's loop, which
everybody would pay for, and a pluggy call an event (1 µs even with no plugin).

Observers are asked for once a run. Of each, only the methods that it overrides are called. One that raises is reported
once, by a warning of the logger `weave`, and hears no more of that run.
"""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, Protocol

import anyio

from weave.engine.firing import Stopped
from weave.engine.program import Binding, Program
from weave.engine.run import Run
from weave.errors import StitchedModuleException
from weave.graph.plan import OutPort
from weave.spi.events import (
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeStarted,
    Observer,
    RunFinished,
    RunInfo,
    RunStarted,
)

log = logging.getLogger("weave")
log.addHandler(logging.NullHandler())

METHODS = tuple(name for name in vars(Observer) if not name.startswith("_"))
_clock = time.perf_counter_ns


class Notes(Protocol):
    """Whom an observed program tells."""

    def started(self, index: int) -> None:
        """A unit fires."""

    def delivered(self, index: int, port: str) -> None:
        """A unit gave a value at a port before its end."""

    def finished(self, index: int) -> None:
        """A unit has returned."""

    def raised(self, index: int, error: BaseException) -> None:
        """A unit has raised."""


class Watch:
    """The observers of one run. `any`: whether somebody wants to hear of its nodes."""

    def __init__(self, run: Run, driver: Literal["inline", "tasks"], asked: Iterable[tuple[str, Any]]) -> None:
        """`asked`: owners, with an `Observer` or what returns one (or `None`, or a list) for a `RunInfo`."""
        self.info = RunInfo(run=run.id, plan=run.plan, driver=driver, started_at=time.time(), time_ns=_clock())
        self._units = run.plan.units
        self._since: dict[int, int] = {}
        self._hearing: dict[str, list[tuple[str, Callable[[Any], Any], Observer]]] = {}
        self._dropped: set[int] = set()
        self._dropping = threading.Lock()
        for owner, found in asked:
            try:
                answer = found if isinstance(found, Observer) else found(run=self.info)
            except Exception as error:
                self._report(owner, "weave_observer", error)
                continue
            for observer in answer if isinstance(answer, list) else [answer]:
                if observer is not None:
                    try:
                        self._index(owner, observer)
                    except Exception as error:
                        self._report(owner, "weave_observer", error)
        self.any = any(name.startswith("node_") for name in self._hearing)

    def _index(self, owner: str, observer: Any) -> None:
        if isinstance(observer, type) or not any(hasattr(observer, name) for name in METHODS):
            raise TypeError(f"an observer is an object with some of the methods of Observer, and not {observer!r}")
        heard = [
            (name, getattr(observer, name))
            for name in METHODS
            if hasattr(observer, name) and getattr(type(observer), name, None) is not getattr(Observer, name)
        ]
        for name, method in heard:
            if inspect.iscoroutinefunction(method):
                raise TypeError(f"{name} is an async function, and an observer is called in line: make it a plain one")
        for name, method in heard:
            self._hearing.setdefault(name, []).append((owner, method, observer))

    def _tell(self, name: str, event: Any) -> None:
        for owner, method, observer in self._hearing[name]:
            if id(observer) not in self._dropped:
                try:
                    method(event)
                except Exception as error:
                    with self._dropping:  # nodes in two threads may be told at once
                        first = id(observer) not in self._dropped
                        self._dropped.add(id(observer))
                    if first:
                        self._report(owner, name, error)

    def _report(self, owner: str, name: str, error: Exception) -> None:
        log.warning(
            "run %s: the observer of %s raised in %s and hears no more of this run: %r",
            self.info.run,
            owner,
            name,
            error,
            exc_info=error,
        )

    # --- the run ---

    @contextmanager
    def around(self) -> Iterator[None]:
        """Tell the run's beginning and end; meanwhile this context's nodes tell theirs."""
        before = watching.set(self if self.any else None)
        try:
            self.begin()  # an observer may let an interrupt through
            try:
                yield
            except BaseException as error:
                self.end(error)
                raise
            else:
                self.end(None)
        finally:
            watching.reset(before)

    def begin(self) -> None:
        """The run begins."""
        if "run_started" in self._hearing:
            self._tell("run_started", RunStarted(run=self.info, time_ns=_clock()))

    def end(self, error: BaseException | None) -> None:
        """The run is over."""
        if "run_finished" in self._hearing:
            now = _clock()
            status: Any = "ok" if error is None else "cancelled" if is_cancellation(error) else "failed"
            event = RunFinished(
                run=self.info, time_ns=now, status=status, duration_ns=now - self.info.time_ns, error=error
            )
            self._tell("run_finished", event)

    # --- nodes ---

    def _facts(self, index: int, now: int) -> dict[str, Any]:
        thread = threading.current_thread().name
        return {"run": self.info, "time_ns": now, "node": self._units[index].node, "unit": index, "thread": thread}

    def started(self, index: int) -> None:
        """A unit fires."""
        if "node_started" in self._hearing:
            self._tell("node_started", NodeStarted(**self._facts(index, _clock())))
        self._since[index] = _clock()  # after the observers: what they take is not the node's time

    def delivered(self, index: int, port: str) -> None:
        """A unit gave a value at a port before its end."""

    def finished(self, index: int) -> None:
        """A unit has returned."""
        if "node_finished" in self._hearing:
            now = _clock()
            self._tell("node_finished", NodeFinished(**self._facts(index, now), duration_ns=now - self._since[index]))

    def raised(self, index: int, error: BaseException) -> None:
        """A unit has raised."""
        now = _clock()
        if is_cancellation(error):
            if "node_cancelled" in self._hearing:
                event = NodeCancelled(**self._facts(index, now), duration_ns=now - self._since[index])
                self._tell("node_cancelled", event)
        elif "node_failed" in self._hearing:
            failed = NodeFailed(**self._facts(index, now), duration_ns=now - self._since[index], error=error)
            self._tell("node_failed", failed)


def is_cancellation(error: BaseException) -> bool:
    """Whether a node ended because its run is being stopped."""
    if isinstance(error, Stopped | GeneratorExit):  # a coroutine that is closed isn't awaited to its end
        return True
    try:
        return isinstance(error, anyio.get_cancelled_exc_class())
    except Exception:  # no loop in this thread
        return False


# The watch of the run that this code belongs to.
watching: ContextVar[Watch | None] = ContextVar("weave_watch", default=None)


def watched(program: Program, current: Callable[[], Notes | None]) -> Program:
    """The same program, whose units tell `current()`."""
    return program._replace(
        calls=tuple(
            None if call is None else _watched_call(index, call, current) for index, call in enumerate(program.calls)
        ),
        bindings=tuple(
            Binding(_WatchedExecutor(index, bound.executor, current), bound.prepared, bound.outputs)
            for index, bound in enumerate(program.bindings)
        ),
    )


def _watched_call(index: int, call: Callable[..., Any], current: Callable[[], Notes | None]) -> Callable[..., Any]:
    def watched_call(*args: Any, **kwargs: Any) -> Any:
        notes = current()
        if notes is None:
            return call(*args, **kwargs)
        notes.started(index)
        try:
            result = call(*args, **kwargs)
        except BaseException as error:
            notes.raised(index, error)
            raise
        if hasattr(type(result), "__await__"):
            return _Watched(notes, index, result)
        notes.finished(index)
        return result

    return watched_call


class _Watched:
    """What a node gave to await, with its end told. Closable, as a coroutine is, where nobody awaits it."""

    __slots__ = ("_awaitable", "_index", "_notes")

    def __init__(self, notes: Notes, index: int, awaitable: Awaitable[Any]) -> None:
        self._notes = notes
        self._index = index
        self._awaitable: Any = awaitable

    def __await__(self) -> Generator[Any, Any, Any]:
        try:
            result = yield from self._awaitable.__await__()
        except BaseException as error:
            self._notes.raised(self._index, error)
            raise
        self._notes.finished(self._index)
        return result

    def close(self) -> None:
        close = getattr(self._awaitable, "close", None)
        if close is not None:
            close()
        self._notes.raised(
            self._index, StitchedModuleException("it gave something to await, and nobody awaits it here")
        )


class _WatchedExecutor:
    __slots__ = ("_current", "_executor", "_index")

    def __init__(self, index: int, executor: Any, current: Callable[[], Notes | None]) -> None:
        self._index = index
        self._executor = executor
        self._current = current

    def fire(self, firing: Any) -> Any:
        notes = self._current()
        if notes is None:
            return self._executor.fire(firing)
        notes.started(self._index)
        try:
            awaitable = self._executor.fire(_WatchedFiring(notes, self._index, firing))
        except BaseException as error:
            notes.raised(self._index, error)
            raise
        if awaitable is not None:
            return _Watched(notes, self._index, awaitable)
        notes.finished(self._index)
        return None


class _WatchedFiring:
    """A firing whose deliveries are told."""

    def __init__(self, notes: Notes, index: int, firing: Any) -> None:
        self._notes = notes
        self._index = index
        self._firing = firing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._firing, name)

    def deliver(self, port: OutPort | str, value: Any) -> None:
        name = port if isinstance(port, str) else f"{port.kind} {port.name}".rstrip()
        self._notes.delivered(self._index, name)
        self._firing.deliver(port, value)
