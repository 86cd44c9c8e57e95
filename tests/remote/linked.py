"""Ranks as threads, each with a loop of its own, that wait for one another by flags."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import anyio

from weave import ExternalTarget, FunctionTarget, Needle, RemoteTarget, RunOptions, StitchedModule
from weave.plugins import Observer
from weave.remote import LinkOptions, run_local
from weave.testing.condition import Condition

LIMIT = 60.0
EXT = ExternalTarget()
OPTIONS = LinkOptions(timeout=LIMIT)


def on_ranks(
    size: int, main: Callable[[int], Any], backend: str, options: LinkOptions = OPTIONS, **how: Any
) -> list[Any]:
    """What `await main(rank)` returns, by rank. A hang is a failure."""
    ended: list[Any] = []

    def go() -> None:
        try:
            ended.append(run_local(size, lambda rank: anyio.run(main, rank, backend=backend), options=options, **how))
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    thread.join(LIMIT)
    assert ended, "the ranks hang"
    if isinstance(ended[0], BaseException):
        raise ended[0]
    result: list[Any] = ended[0]
    return result


class Flags:
    """Words that ranks say, and wait for."""

    def __init__(self) -> None:
        self._said: set[Any] = set()
        self._condition = Condition()

    def say(self, word: Any) -> None:
        with self._condition.lock:
            self._said.add(word)
            self._condition.changed()

    async def until(self, *words: Any) -> None:
        assert await self._condition.until(lambda: self._said.issuperset(words), LIMIT), f"nobody said {words}"

    def wait(self, *words: Any) -> None:
        assert self._condition.wait(lambda: self._said.issuperset(words), LIMIT), f"nobody said {words}"


class Transfers(Observer):
    """Says which transfers have started and finished, and counts them."""

    def __init__(self) -> None:
        self.started: list[Any] = []
        self.finished: list[Any] = []
        self._condition = Condition()

    def _tell(self, of: list[Any], event: Any) -> None:
        with self._condition.lock:
            of.append(event)
            self._condition.changed()

    def transfer_started(self, event: Any) -> None:
        self._tell(self.started, event)

    def transfer_finished(self, event: Any) -> None:
        self._tell(self.finished, event)

    async def until(self, started: int, finished: int = 0) -> None:
        there = await self._condition.until(
            lambda: len(self.started) >= started and len(self.finished) >= finished, LIMIT
        )
        assert there, (len(self.started), len(self.finished))


def sew(*stitches: Any) -> Needle:
    needle = Needle()
    for source, destination in stitches:
        needle.stitch(source, destination)
    return needle


def knot(*stitches: Any, **options: Any) -> StitchedModule:
    return sew(*stitches).knot(**options)


def one_way(
    rank: int, function: Any = None, *, key: str = "h", blocking: bool = True, **options: Any
) -> StitchedModule:
    """From the caller of rank 0 to that of rank 1, by a function on either."""
    f = FunctionTarget(f"f{rank}", function or (lambda x: x + 1))
    if rank == 0:
        there = RemoteTarget(1, blocking=blocking)
        return knot((EXT.input("x"), f.input()), (f.output(), there.value(key)), **options)
    return knot((RemoteTarget(0).value(key), f.input()), (f.output(), EXT.output("y")), **options)


def chain(rank: int, size: int, function: Any, **options: Any) -> StitchedModule:
    """From rank to rank, from the caller of the first to that of the last."""
    f = FunctionTarget(f"f{rank}", function)
    before = EXT.input("x") if rank == 0 else RemoteTarget(rank - 1).value(f"to {rank}")
    after = EXT.output("y") if rank == size - 1 else RemoteTarget(rank + 1).value(f"to {rank + 1}")
    return knot((before, f.input()), (f.output(), after), **options)


def given(rank: int, x: Any) -> dict[str, Any]:
    """What a rank's caller brings: rank 0's alone something."""
    return {"x": x} if rank == 0 else {}


def watched(*observers: Any, **changes: Any) -> RunOptions:
    return RunOptions(observers=observers, **changes)


def values(outs: Sequence[Any], name: str = "y") -> list[Any]:
    return [out[name] for out in outs]
