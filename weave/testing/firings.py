"""`Firings`: what a graph's runs did, written down in order."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any

import anyio

from weave.engine.program import Binding
from weave.graph.plan import OutPort
from weave.stitched import StitchedModule


@dataclass(frozen=True)
class Firing:
    """Something that a node did: `what` is "started", "delivered" (then `port` says where), "finished", "failed" or "cancelled".

    Only a target that may deliver before it has finished, such as a module, is seen to deliver; a function's value
    leaves as it finishes.
    """

    what: str
    node: str
    thread: str
    port: str = ""

    def __str__(self) -> str:
        return f"{self.node} {self.what}" + (f" {self.port}" if self.port else "")


class Firings:
    """A record of firings. Threads may append to it at once; the order is that in which they did.

    firings = Firings()
    await firings.watch(stitched).run({"x": x}, {})
    assert firings.order("student started", "teacher finished")
    """

    def __init__(self) -> None:
        self.all: list[Firing] = []

    def __str__(self) -> str:
        return "\n".join(f"{firing} ({firing.thread})" for firing in self.all)

    def watch(self, stitched: StitchedModule) -> StitchedModule:
        """The same graph, as a view whose runs are written down here. Runs of the original are not."""
        view = stitched.with_options()
        program = stitched._program
        nodes = [unit.node for unit in program.plan.units]
        view.__dict__["_program"] = program._replace(
            calls=tuple(call and self._watched(node, call) for node, call in zip(nodes, program.calls, strict=True)),
            bindings=tuple(
                Binding(_WatchedExecutor(self, node, bound.executor), bound.prepared, bound.outputs)
                for node, bound in zip(nodes, program.bindings, strict=True)
            ),
        )
        return view

    def nodes(self, what: str = "started") -> list[str]:
        """The nodes that did that, in order."""
        return [firing.node for firing in self.all if firing.what == what]

    def order(self, *events: str) -> bool:
        """Whether these happened in this order, e.g. `order("a finished", "b started")`.

        Of an event that happened several times, its first one after the previous counts.

        Raises:
            AssertionError: one of them did not happen at all; it shows what did.
        """
        said = [str(firing) for firing in self.all]
        for event in events:
            if event not in said:
                raise AssertionError(f"{event!r} did not happen. What did:\n{self}")
        at = -1
        for event in events:
            if event not in said[at + 1 :]:
                return False
            at = said.index(event, at + 1)
        return True

    def note(self, what: str, node: str, port: str = "") -> None:
        """Write something down."""
        self.all.append(Firing(what, node, threading.current_thread().name, port))

    def note_raised(self, node: str, error: BaseException) -> None:
        """Write down how a node ended that raised."""
        self.note("cancelled" if _is_cancellation(error) else "failed", node)

    def _watched(self, node: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.note("started", node)
            try:
                result = call(*args, **kwargs)
            except BaseException as error:
                self.note_raised(node, error)
                raise
            if hasattr(type(result), "__await__"):
                return _Watched(self, node, result)
            self.note("finished", node)
            return result

        return watched


class _Watched:
    """What a node gave to await, with its end written down. Closable, as a coroutine is, where nobody awaits it."""

    def __init__(self, firings: Firings, node: str, awaitable: Awaitable[Any]) -> None:
        self._firings = firings
        self._node = node
        self._awaitable: Any = awaitable

    def __await__(self) -> Generator[Any, Any, Any]:
        try:
            result = yield from self._awaitable.__await__()
        except BaseException as error:
            self._firings.note_raised(self._node, error)
            raise
        self._firings.note("finished", self._node)
        return result

    def close(self) -> None:
        close = getattr(self._awaitable, "close", None)
        if close is not None:
            close()


class _WatchedExecutor:
    """An executor whose firings are written down, and what they deliver."""

    def __init__(self, firings: Firings, node: str, executor: Any) -> None:
        self._firings = firings
        self._node = node
        self._executor = executor

    def fire(self, firing: Any) -> Any:
        self._firings.note("started", self._node)
        try:
            awaitable = self._executor.fire(_WatchedFiring(self._firings, firing))
        except BaseException as error:
            self._firings.note_raised(self._node, error)
            raise
        if awaitable is not None:
            return _Watched(self._firings, self._node, awaitable)
        self._firings.note("finished", self._node)
        return None


class _WatchedFiring:
    def __init__(self, firings: Firings, firing: Any) -> None:
        self._firings = firings
        self._firing = firing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._firing, name)

    def deliver(self, port: OutPort | str, value: Any) -> None:
        name = port if isinstance(port, str) else f"{port.kind} {port.name}".rstrip()
        self._firings.note("delivered", self._firing.node, name)
        self._firing.deliver(port, value)


def _is_cancellation(error: BaseException) -> bool:
    try:
        return isinstance(error, anyio.get_cancelled_exc_class())
    except Exception:  # no loop in this thread
        return False
