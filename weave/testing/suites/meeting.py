"""Waiting for what nodes do, and holding firings until all of them are under way: orders that checks force."""

from __future__ import annotations

from typing import Any

from weave.engine.program import Binding
from weave.spi.events import NodeFinished, NodeStarted, Observer
from weave.stitched import StitchedModule
from weave.testing.condition import Condition
from weave.testing.suites.base import expect


class Signals(Observer):
    """Lets a task wait for what nodes do."""

    def __init__(self) -> None:
        self._condition = Condition()
        self._said: set[tuple[str, str]] = set()

    def _say(self, what: str, node: str) -> None:
        with self._condition.lock:
            self._said.add((what, node))
            self._condition.changed()

    def node_started(self, event: NodeStarted) -> None:
        """Note it."""
        self._say("started", event.node)

    def node_finished(self, event: NodeFinished) -> None:
        """Note it."""
        self._say("finished", event.node)

    async def until(self, all_of: list[tuple[str, str]], limit: float) -> None:
        """Wait until all of it has happened."""
        came = await self._condition.until(lambda: self._said.issuperset(all_of), limit)
        missing = [f"{node!r} {what}" for what, node in all_of if (what, node) not in self._said]
        expect(came, f"within {limit:g} s it did not happen that {', '.join(missing)}")


class Meeting:
    """Threads that wait for one another, once each. Where not all come soon, because a lock is held, nobody waits."""

    def __init__(self, due: int, patience: float = 5.0) -> None:
        self._due = due
        self._patience = patience
        self._here = 0
        self._condition = Condition()

    def meet(self) -> None:
        """Be there, and wait for the others."""
        with self._condition.lock:
            self._here += 1
            self._condition.changed()
        if not self._condition.wait(lambda: self._here >= self._due, self._patience):
            with self._condition.lock:
                self._here = self._due
                self._condition.changed()


def held(stitched: StitchedModule, meeting: Meeting) -> StitchedModule:
    """A view of a graph, whose firings meet before each delivers its first value."""
    view = stitched.with_options()
    program = stitched._program
    bindings = tuple(Binding(_Held(b.executor, meeting), b.prepared, b.outputs) for b in program.bindings)
    view.__dict__["_program"] = program._replace(bindings=bindings)
    return view


class _Held:
    def __init__(self, executor: Any, meeting: Meeting) -> None:
        self._executor = executor
        self._meeting = meeting

    def fire(self, firing: Any) -> Any:
        return self._executor.fire(_HeldFiring(firing, self._meeting))


class _HeldFiring:
    def __init__(self, firing: Any, meeting: Meeting) -> None:
        self._firing = firing
        self._meeting: Meeting | None = meeting

    def __getattr__(self, name: str) -> Any:
        return getattr(self._firing, name)

    def deliver(self, port: Any, value: Any) -> None:
        meeting, self._meeting = self._meeting, None
        if meeting is not None and self._firing.node != "beside":
            meeting.meet()
        self._firing.deliver(port, value)
