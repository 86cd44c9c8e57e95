"""A run that somebody observes.

Nothing of this is on the path of a run that nobody observes: an observed run is driven with another program, whose calls
and executors say when a node starts and ends, by drivers that don't know. Rejected: a test in every node's loop, which
everybody would pay for, and a pluggy call an event (1 µs even with no plugin).

There are two ways to hear of a run. A *listener* (a trace, a log) is told off the run's path, from a recording, which is
cheap (`engine.recorded`). An *observer* is told in line, of each event as an object, by the program made here. It is
asked for once a run, and only the methods that it overrides are called. One that raises is reported once, by a warning
of the logger `weave`, and hears no more.
"""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, Literal, Protocol

from weave.engine.program import Binding, Program
from weave.engine.recorded import (
    RecordedFrontier,
    RecordedRun,
    RecordingNotes,
    is_cancellation,
    recorded_call,
)
from weave.engine.run import Run
from weave.errors import StitchedModuleException
from weave.graph.plan import Exit, OutPort
from weave.observe.recording import ENDED, NODE, RUN, Recording, clock, said
from weave.observe.rendering import Readiness
from weave.observe.scribe import Listener, scribe
from weave.spi.events import (
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeReady,
    NodeStarted,
    Observer,
    RunFinished,
    RunInfo,
    RunStarted,
    TransferFailed,
    TransferFinished,
    TransferStarted,
)

_TRANSFERS: dict[str, Any] = {
    "transfer.started": TransferStarted,
    "transfer.finished": TransferFinished,
    "transfer.failed": TransferFailed,
}

log = logging.getLogger("weave")

METHODS = tuple(name for name in vars(Observer) if not name.startswith("_"))
Way = Literal["plain", "watched", "recorded"]


class Notes(Protocol):
    """Whom an observed program tells."""

    def started(self, index: int) -> None:
        """A unit fires."""

    def delivered(self, index: int, port: str, exits: tuple[Exit, ...]) -> None:
        """A unit gave a value before its end."""

    def finished(self, index: int, result: Any = None, *, awaited: bool = False) -> None:
        """A unit has returned; `result` where it is nothing but a call."""

    def raised(self, index: int, error: BaseException, *, awaited: bool = False) -> None:
        """A unit has raised."""

    def transfer(self, name: str, facts: dict[str, Any], error: BaseException | None = None) -> None:
        """Something happened to a value on its way between ranks."""


class Watch:
    """Whoever hears of one run.

    `way`: the program that the run is to be driven with: the plain one, or one of those that `watched` makes.
    """

    def __init__(
        self,
        run: Run,
        driver: Literal["inline", "tasks"],
        asked: Iterable[tuple[str, Any]],
        listeners: Sequence[Listener] = (),
        *,
        bind: bool = False,
    ) -> None:
        """`asked`: owners, with an `Observer` or what returns one (or `None`, or a list) for a `RunInfo`.

        `bind`: whether the run's id and the node's name are bound round user code, for its log lines.
        """
        self.info = RunInfo(run=run.id, plan=run.plan, driver=driver, started_at=time.time(), time_ns=clock())
        self._bind = bind
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
        self._readiness = Readiness(run.plan) if "node_ready" in self._hearing else None
        self._readying = threading.Lock()
        self._listeners = tuple(listeners)
        self._run = run
        in_line = any(name.startswith(("node_", "transfer_")) for name in self._hearing)
        self.way: Way = "watched" if in_line else "plain"
        self._recording: Recording | None = None
        self._notes: Notes | None = self if in_line else None
        self._recorded: RecordingNotes | None = None
        if listeners:
            self._recording = Recording(self.info, bind=bind)
            if in_line or driver == "tasks":
                self.way = "watched" if in_line else "recorded"
                self._recorded = RecordingNotes(self._recording)
                self._notes = self._notes or self._recorded
            else:
                self._recording.ticks = True

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
        before = watching.set(self._notes)
        bound = [(RUN, RUN.set(self.info.run)), (NODE, NODE.set(...))] if self._bind else []
        try:
            self._begin()  # an observer may let an interrupt through
            try:
                yield
            except BaseException as error:
                self._end(error)
                raise
            else:
                self._end(None)
        finally:
            for variable, token in reversed(bound):
                variable.reset(token)
            watching.reset(before)

    def _begin(self) -> None:
        if self._recording is not None and isinstance(self._run, RecordedRun | RecordedFrontier):
            self._recording.context = copy_context()
            self._run.recording = self._recording
            scribe.open(self._recording, self._listeners)
        if "run_started" in self._hearing:
            self._tell("run_started", RunStarted(run=self.info, time_ns=clock()))
        if self._readiness is not None:
            self._became(self._readiness.at_start(), "")

    def _end(self, error: BaseException | None) -> None:
        now = clock()
        status: Any = "ok" if error is None else "cancelled" if is_cancellation(error) else "failed"
        if self._recording is not None:
            self._recording.append((ENDED, now, status, *(said(error) if error is not None else ("", ""))))
        if "run_finished" in self._hearing:
            event = RunFinished(
                run=self.info,
                time_ns=now,
                status=status,
                duration_ms=(now - self.info.time_ns) / 1e6,
                nodes=len(self._run.fired),
                error=error,
            )
            self._tell("run_finished", event)

    # --- nodes ---

    def _facts(self, index: int, now: int) -> dict[str, Any]:
        thread = threading.current_thread().name
        return {"run": self.info, "time_ns": now, "node": self._units[index].node, "unit": index, "thread": thread}

    def _over(self, index: int, now: int) -> dict[str, Any]:
        return {**self._facts(index, now), "duration_ms": (now - self._since[index]) / 1e6}

    def started(self, index: int) -> None:
        """A unit fires."""
        if self._recorded is not None:
            self._recorded.started(index)
        if "node_started" in self._hearing:
            self._tell("node_started", NodeStarted(**self._facts(index, clock())))
        self._since[index] = clock()  # after the observers: what they take is not the node's time

    def delivered(self, index: int, port: str, exits: tuple[Exit, ...]) -> None:
        """A unit gave a value before its end."""
        if self._readiness is not None:
            for way in exits:
                self._became(self._readiness.handed_on(way.slots), self._units[index].node)

    def finished(self, index: int, result: Any = None, *, awaited: bool = False) -> None:
        """A unit has returned."""
        if self._recorded is not None:
            self._recorded.finished(index, result, awaited=awaited)
        if "node_finished" in self._hearing:
            self._tell("node_finished", NodeFinished(**self._over(index, clock()), awaited=awaited))
        if self._readiness is not None:
            self._became(self._readiness.ended(index), self._units[index].node)

    def raised(self, index: int, error: BaseException, *, awaited: bool = False) -> None:
        """A unit has raised."""
        if self._recorded is not None:
            self._recorded.raised(index, error, awaited=awaited)
        now = clock()
        if is_cancellation(error):
            if "node_cancelled" in self._hearing:
                self._tell("node_cancelled", NodeCancelled(**self._over(index, now), awaited=awaited))
        elif "node_failed" in self._hearing:
            self._tell("node_failed", NodeFailed(**self._over(index, now), error=error, awaited=awaited))

    def transfer(self, name: str, facts: dict[str, Any], error: BaseException | None = None) -> None:
        """An event of a transfer: "transfer.started", "transfer.finished" or "transfer.failed"."""
        if self._recorded is not None:
            self._recorded.transfer(name, facts, error)
        method = name.replace(".", "_")
        if method in self._hearing:
            failed = {} if error is None else {"error": error}
            self._tell(method, _TRANSFERS[name](run=self.info, time_ns=clock(), **facts, **failed))

    def _became(self, units: Iterator[int], by: str) -> None:
        with self._readying:
            ready = list(units)
        for index in ready:
            event = NodeReady(run=self.info, time_ns=clock(), node=self._units[index].node, unit=index, by=by)
            self._tell("node_ready", event)


# The notes of the run that this code belongs to.
watching: ContextVar[Any] = ContextVar("weave_watch", default=None)


def watched(program: Program, current: Callable[[], Any], way: Way) -> Program:
    """The same program, whose units tell `current()`. "recorded": which is a recording's, so that calls are told faster."""

    def told(index: int, call: Callable[..., Any]) -> Callable[..., Any]:
        if way == "recorded":
            return recorded_call(index, call, current, _Watched)
        return _watched_call(index, call, current)

    return program._replace(
        calls=tuple(None if call is None else told(index, call) for index, call in enumerate(program.calls)),
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
        notes.finished(index, result)
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
            self._notes.raised(self._index, error, awaited=True)
            raise
        self._notes.finished(self._index, result, awaited=True)
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
        # What is no port at all is the firing's to judge, as where nobody watches.
        name = f"{port.kind} {port.name}".rstrip() if isinstance(port, OutPort) else str(port)
        self._notes.delivered(self._index, name, self._firing.exits_at(port))
        self._firing.deliver(port, value)
