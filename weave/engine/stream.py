"""A stream of runs: inputs from a source, results in order, so many under way at once.

`async with stitched.stream(source, in_flight=4) as results: async for out in results: ...`; with plain `with` and `for` it
goes through the facade's portal. A class with `__aenter__` and `__aexit__` rather than an async generator: a generator
that yields inside a task group leaves it in whoever drops the generator.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Self

import anyio
import anyio.to_thread

from weave.device.state import TorchState
from weave.engine import facade
from weave.engine.run import note
from weave.errors import StitchedModuleException

Source = Iterable[Any] | AsyncIterable[Any]
_END: Any = object()


class Stream:
    """Runs of one graph over a source of inputs. Made by `StitchedModule.stream`; enter it, then iterate over it.

    An item of the source is a mapping (the input overrides) or a tuple (the positional arguments of `run`). At most
    `in_flight` items have been pulled whose results have not been taken. A plain iterable is pulled in a worker thread.
    An error names the index of its input, and comes in its place: the results before it come first. Leaving the `with`
    block stops what is under way.
    """

    def __init__(self, run: Callable[..., Awaitable[Any]], source: Source, in_flight: int) -> None:
        if in_flight < 1:
            raise ValueError(f"in_flight={in_flight}: at least one input must be under way")
        if not isinstance(source, Iterable | AsyncIterable):
            raise TypeError(f"a stream's source is an iterable or an async iterable, not a {type(source).__name__}")
        self._run = run
        self._source = source
        self._in_flight = in_flight
        self._results: dict[int, Any] = {}
        self._errors: dict[int, BaseException] = {}
        self._taken = 0
        self._end: int | None = None  # how many inputs there are, once the source has ended
        self._entered = False
        self._sync: AbstractContextManager[Any] | None = None
        self._pulled: Any = None  # the iterator of an async source
        self._state: TorchState | None = None  # of the thread that a plain `with` was entered in

    async def __aenter__(self) -> Self:
        if self._entered:
            raise StitchedModuleException("a stream can be entered once; make another with stitched.stream(...)")
        self._entered = True
        self._cancelled = anyio.get_cancelled_exc_class()
        self._room = anyio.Semaphore(self._in_flight)
        self._news = anyio.Event()
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self._pull)
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        self._group.cancel_scope.cancel()
        try:
            await self._group.__aexit__(kind, error, trace)
        except BaseException:
            # The group wraps what left the body; the body's own exception goes on as it is.
            if error is None:
                raise
        finally:
            self._results.clear()
        return False

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        """The next input's result. Raises what its run raised, with the input's index in a note."""
        if not self._entered:
            raise StitchedModuleException(
                "enter a stream before iterating over it: `async with stitched.stream(...) as s`"
            )
        index = self._taken
        while index not in self._results:
            if index in self._errors:
                raise self._errors[index]
            if self._end is not None and index >= self._end:
                raise StopAsyncIteration
            self._news = anyio.Event()
            await self._news.wait()
        self._taken = index + 1
        self._room.release()
        return self._results.pop(index)

    async def _pull(self) -> None:
        """Start a run for each input, when there is room for one."""
        index = 0
        try:
            pull = self._puller()
            while True:
                await self._room.acquire()
                if self._errors:
                    return
                item = await pull()
                if item is _END:
                    break
                self._group.start_soon(self._one, index, item)
                index += 1
        except BaseException as error:
            if isinstance(error, self._cancelled):
                raise
            note(error, f"weave: raised by the source of a stream, for input {index}")
            self._errors[index] = error
        finally:
            await self._close_source()
        self._end = index
        self._news.set()

    async def _close_source(self) -> None:
        """An async generator that was begun ends here, in the task that pulled it, not when it is collected."""
        close = getattr(self._pulled, "aclose", None)
        if close is not None:
            with anyio.CancelScope(shield=True):
                await close()

    def _puller(self) -> Callable[[], Awaitable[Any]]:
        source = self._source
        if isinstance(source, AsyncIterable):
            asynchronous = self._pulled = aiter(source)

            async def pull() -> Any:
                return await anext(asynchronous, _END)

            return pull
        plain = iter(source)
        limiter = anyio.CapacityLimiter(1)

        async def pull_in_thread() -> Any:
            return await anyio.to_thread.run_sync(next, plain, _END, limiter=limiter)

        return pull_in_thread

    async def _one(self, index: int, item: Any) -> None:
        try:
            if isinstance(item, Mapping):
                item = (item, {})
            if not isinstance(item, tuple):
                raise TypeError(
                    f"an item of a stream is a mapping (the input overrides) or a tuple (the arguments of run), not a "
                    f"{type(item).__name__}"
                )
            self._results[index] = await self._run(index, self._state, *item)
        except BaseException as error:
            if isinstance(error, self._cancelled):
                raise
            if isinstance(error, StopAsyncIteration | StopIteration):  # which would end the loop over the results
                cause, error = (
                    error,
                    StitchedModuleException(
                        f"a node raised {type(error).__name__}, which would end the loop over the results in silence; let it "
                        "raise another exception"
                    ),
                )
                error.__cause__ = cause
                for text in getattr(cause, "__notes__", ()):
                    note(error, text)
            # Exits and interrupts too: whoever waits for this result is to hear of them, not the task group.
            note(error, f"weave: input {index} of a stream")
            self._errors[index] = error
        self._news.set()

    # --- for a plain `with` and `for` ---

    def __enter__(self) -> Self:
        self._portal = facade.portal()
        self._state = TorchState(away=True)
        self._sync = self._portal.wrap_async_context_manager(self)
        self._sync.__enter__()
        return self

    def __exit__(self, *raised: Any) -> bool | None:
        if self._sync is None:
            return None
        return self._sync.__exit__(*raised)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._sync is None:
            raise StitchedModuleException("enter a stream before iterating over it: `with stitched.stream(...) as s`")
        result = facade.wait_for(self._portal, lambda: anext(self, _END))
        if result is _END:
            raise StopIteration
        return result
