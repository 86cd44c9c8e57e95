"""One run of a graph that reaches other ranks: its identity, and how it fails."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from weave.remote.waiter import Waiter
from weave.remote.wire import RunKey

if TYPE_CHECKING:
    from weave.remote.graph import RemoteGraph


class Session:
    """A run under way. Its fields are guarded by the link's lock.

    `failure`: what ended it from outside: a peer's word, a lost peer. `told`: peers that know that it failed.
    """

    __slots__ = ("_call_off", "failed_at", "failure", "graph", "key", "link", "told", "waiters")

    def __init__(self, graph: RemoteGraph, key: RunKey) -> None:
        self.graph = graph
        self.link: Any = None
        self.key = key
        self.failure: BaseException | None = None
        self.told: set[int] = set()
        self.waiters: set[Waiter] = set()
        self._call_off: Callable[[BaseException], None] | None = None
        self.failed_at: Callable[[], str] = str  # nowhere

    def joins(self, call_off: Callable[[BaseException], None], failed_at: Callable[[], str]) -> None:
        """The run's nodes are about to fire. How it is stopped, from any thread; where it failed, once it has."""
        self._call_off = call_off
        self.failed_at = failed_at
        if self.failure is not None:
            call_off(self.failure)

    def fail(self, error: BaseException) -> list[Waiter]:
        """The run fails by what came from outside, unless it has already. Returns whom to wake."""
        if self.failure is None:
            self.failure = error
            if self._call_off is not None:
                self._call_off(error)
        return list(self.waiters)

    def transfer(self, edge: tuple[int, int, str]) -> str:
        """What events call the way of a value on an edge: alike on both ranks."""
        peer = edge[1] if edge[0] == self.graph.rank else edge[0]
        pair = self.graph.pairs[peer]
        key = "" if self.key.key is None else f"{self.key.key}."
        index = "" if self.key.index is None else f".{self.key.index}"
        return f"{pair.name}/{edge[0]}-{edge[1]}/{pair.channels[edge]}/{key}{self.key.nth}{index}"

    def raise_failure(self) -> None:
        """Raise what ended the run."""
        if self.failure is not None:
            raise self.failure


# The session of the run that this code belongs to.
session_here: ContextVar[Session | None] = ContextVar("weave_session", default=None)


def text(key: RunKey) -> str:
    """A run's identity, for messages."""
    if key.index is not None:
        return f"item {key.index} of stream {key.nth}"
    return f"run {key.nth}" if key.key is None else f"run_key={key.key!r}" + (f" ({key.nth})" if key.nth else "")
