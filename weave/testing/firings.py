"""`Firings`: what a graph's runs did, written down in order."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from weave.engine.recorded import is_cancellation
from weave.engine.watch import watched
from weave.graph.plan import Exit
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
        notes = _Notes(self.all, [unit.node for unit in stitched.plan.units])
        view.__dict__["_program"] = watched(stitched._program, lambda: notes, "watched")
        view.__dict__["_others"] = {}
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


class _Notes:
    """Writes what units do into a list, by their nodes' names."""

    def __init__(self, all_: list[Firing], nodes: list[str]) -> None:
        self._all = all_
        self._nodes = nodes

    def _note(self, what: str, index: int, port: str = "") -> None:
        self._all.append(Firing(what, self._nodes[index], threading.current_thread().name, port))

    def started(self, index: int) -> None:
        self._note("started", index)

    def delivered(self, index: int, port: str, exits: tuple[Exit, ...]) -> None:
        self._note("delivered", index, port)

    def finished(self, index: int, result: object = None, *, awaited: bool = False) -> None:
        self._note("finished", index)

    def raised(self, index: int, error: BaseException, *, awaited: bool = False) -> None:
        self._note("cancelled" if is_cancellation(error) else "failed", index)
