"""A run with a recording: where its entries are appended.

In a synchronous call the recording stands between the driver and the calls that it iterates over (`Recording.ticking`):
the driver has no test for it. On a loop nodes overlap, so each call is wrapped; this is the wrapper, written for speed.
What executors fire is told by the general one of `engine.watch`, since it takes longer anyway.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from contextvars import Token
from threading import get_ident
from typing import Any

import anyio

from weave.device.versions import WITHOUT_TENSORS, Mark
from weave.engine.firing import Stopped
from weave.engine.frontier import Frontier
from weave.engine.run import Run
from weave.graph.plan import Exit
from weave.observe.describe import facts
from weave.observe.recording import EVENT, FINISHED, GIVEN, NODE, RAISED, STARTED, Recording, clock, said


class RecordedRun(Run):
    """A synchronous run with a recording."""

    __slots__ = ("recording",)

    def __init__(self, *args: Any) -> None:
        self.recording: Recording | None = None
        super().__init__(*args)

    def calls(self) -> Iterable[Any]:
        """The program's, with ticks between them where the recording has those."""
        calls = super().calls()
        return calls if self.recording is None or not self.recording.ticks else self.recording.ticking(calls)

    def fill(self, way: Exit, value: Any, known: Mark | None = None) -> Mark | None:
        """As in any run; what is handed on is recorded."""
        marked = super().fill(way, value, known)
        if self.recording is not None and self.plan.producers[way.slots[0]] >= 0:
            self.recording.append((GIVEN, way, clock(), facts(value)))
        return marked


class RecordedFrontier(Frontier):
    """A run on a loop with a recording."""

    __slots__ = ("recording",)

    def __init__(self, *args: Any) -> None:
        self.recording: Recording | None = None
        super().__init__(*args)

    def fill(self, way: Exit, value: Any, known: Mark | None = None) -> Mark | None:
        """As in any run; what an executor hands on is recorded. What a call returns, its wrapper has told."""
        marked = super().fill(way, value, known)
        producer = self.plan.producers[way.slots[0]]
        if self.recording is not None and producer >= 0 and self.program.calls[producer] is None:
            self.recording.append((GIVEN, way, clock(), facts(value)))
        return marked


class RecordingNotes:
    """Tells a recording of a run's nodes (see `engine.watch.Notes`)."""

    __slots__ = ("append", "bind", "loop", "tokens", "units")

    def __init__(self, recording: Recording) -> None:
        self.append = recording.append
        self.bind = recording.bind
        self.loop = get_ident()  # where coroutines are awaited: asking each time costs as much as the clock
        self.units = recording.info.plan.units
        self.tokens: dict[int, Token[Any]] = {}

    def started(self, index: int) -> None:
        """A unit fires."""
        if self.bind:
            self.tokens[index] = NODE.set(self.units[index].node)
        self.append((STARTED, index, clock(), get_ident()))

    def finished(self, index: int, result: Any = None, *, awaited: bool = False) -> None:
        """A unit has returned."""
        told = None if type(result) in WITHOUT_TENSORS else facts(result)
        self.append((FINISHED, index, clock(), awaited, told))
        if self.bind:
            put_back(self.tokens.pop(index, None))

    def raised(self, index: int, error: BaseException, *, awaited: bool = False) -> None:
        """A unit has raised."""
        status = "cancelled" if is_cancellation(error) else "failed"
        self.append((RAISED, index, clock(), awaited, status, *said(error)))
        if self.bind:
            put_back(self.tokens.pop(index, None))

    def delivered(self, index: int, port: str, exits: tuple[Exit, ...]) -> None:
        """The run's `fill` has told that."""

    def transfer(self, name: str, facts: dict[str, Any], error: BaseException | None = None) -> None:
        """An event of a transfer: "transfer.started", "transfer.finished" or "transfer.failed"."""
        if error is not None:
            kind, message = said(error)
            facts = {**facts, "error_type": kind, "error": message}
        self.append((EVENT, name, clock(), facts))


def recorded_call(
    index: int, call: Callable[..., Any], current: Callable[[], Any], general: Callable[..., Any]
) -> Callable[..., Any]:
    """A unit's call, told to the recording of the run that it belongs to. `general`: for what hands back an awaitable."""
    if inspect.iscoroutinefunction(call):
        return _recorded_coroutine(index, call, current)

    def recorded_call(*args: Any, **kwargs: Any) -> Any:
        notes = current()
        if notes is None:
            return call(*args, **kwargs)
        append = notes.append
        token = NODE.set(notes.units[index].node) if notes.bind else None
        append((STARTED, index, clock(), get_ident()))
        try:
            result = call(*args, **kwargs)
        except BaseException as error:
            notes.raised(index, error)
            put_back(token)
            raise
        if type(result) in WITHOUT_TENSORS:
            append((FINISHED, index, clock(), False, None))
        elif hasattr(type(result), "__await__"):
            notes.tokens[index] = token  # the name is bound while that is awaited, too
            return general(notes, index, result)
        else:
            append((FINISHED, index, clock(), False, facts(result)))
        if token is not None:
            NODE.reset(token)
        return result

    return recorded_call


def _recorded_coroutine(index: int, call: Callable[..., Any], current: Callable[[], Any]) -> Callable[..., Any]:
    async def recorded_call(*args: Any, **kwargs: Any) -> Any:
        notes = current()
        if notes is None:
            return await call(*args, **kwargs)
        append = notes.append
        token = NODE.set(notes.units[index].node) if notes.bind else None
        append((STARTED, index, clock(), notes.loop))
        try:
            result = await call(*args, **kwargs)
        except BaseException as error:
            notes.raised(index, error, awaited=True)
            put_back(token)
            raise
        append((FINISHED, index, clock(), True, None if type(result) in WITHOUT_TENSORS else facts(result)))
        if token is not None:
            put_back(token)
        return result

    return recorded_call


def put_back(token: Token[Any] | None) -> None:
    """Unbind a node's name where it was bound; a coroutine may be closed in another context, which has gone with it."""
    if token is not None:
        try:
            NODE.reset(token)
        except ValueError:
            return


def is_cancellation(error: BaseException) -> bool:
    """Whether a node ended because its run is being stopped."""
    if isinstance(error, Stopped | GeneratorExit):  # a coroutine that is closed isn't awaited to its end
        return True
    try:
        return isinstance(error, anyio.get_cancelled_exc_class())
    except Exception:  # no loop in this thread
        return False
