"""Observers that are wrong."""

from __future__ import annotations

import contextvars
import logging
import sys
import threading
from collections.abc import Sequence
from typing import Any

from weave.plugins import Observer, hookimpl
from weave.spi.events import Event
from weave.testing import ObserverSuite

BACKENDS = ("asyncio", "trio")


class Plugin:
    """Gives its observer, or `None`, for every run."""

    def __init__(self, observer: Any) -> None:
        self.given = observer

    @hookimpl
    def weave_observer(self, run: Any) -> Any:
        return self.given


class Misspelt(Plugin):
    @hookimpl
    def weave_observers(self, run: Any) -> Any:
        return None


class Ends(Observer):
    """Right."""

    def __init__(self) -> None:
        self.open: list[Any] = []

    def node_started(self, event: Any) -> Any:
        self.open.append((event.run.run, event.unit))

    def _ended(self, event: Any) -> Any:
        self.open.remove((event.run.run, event.unit))

    node_finished = node_failed = node_cancelled = _ended


class Suite(ObserverSuite):
    backends = ("asyncio",)
    plugin = Plugin(Ends())
    fails: set[str] = set()

    def setup_method(self) -> None:
        given = getattr(self.plugin, "given", None)
        if isinstance(given, Ends):
            given.open.clear()

    def unfinished(self) -> Sequence[Any]:
        return getattr(self.plugin.given, "open", ())


class RightHook(Suite):
    backends = BACKENDS


class RightByHand(Suite):
    backends = BACKENDS
    plugin = None

    def observer(self) -> Observer:
        return Ends()

    def unfinished(self) -> Sequence[Any]:
        return ()


class WrongHook(Suite):
    plugin = Misspelt(Ends())
    fails = {"test_the_plugin_loads"}


class WrongNone(Suite):
    plugin = Plugin(None)
    fails = {"test_is_asked"}


class WrongClass(Suite):
    """The class, not an object of it."""

    plugin = Plugin(Ends)
    fails = {"test_is_asked"}
    most = True


class Typo(Ends):
    def node_finnished(self, event: Any) -> Any:
        """Never called."""


class WrongMethod(Suite):
    plugin = Plugin(Typo())
    fails = {"test_is_asked"}


def raises(self: Observer, event: Event) -> None:
    raise RuntimeError("mine")


def raising(method: str) -> Any:
    return Plugin(type("Raises", (Observer,), {method: raises})())


class Async(Observer):
    async def run_started(self, event: Any) -> None:
        """Never awaited."""


class WrongAsync(Suite):
    plugin = Plugin(Async())
    fails = {"test_is_asked"}
    most = True


class WrongInFailures(Suite):
    plugin = raising("node_failed")
    fails = {"test_hears_of_failures"}


class WrongInCancellation(Suite):
    plugin = raising("node_cancelled")
    fails = {"test_hears_of_cancellation"}


class WrongAlways(Suite):
    plugin = raising("node_finished")
    fails = {
        "test_hears_of_runs",
        "test_hears_of_failures",
        "test_hears_of_cancellation",
        "test_many_runs_at_once",
        "test_calls_in_threads",
        "test_runs_inside_runs",
        "test_another_observer_that_raises",
        "test_keeps_no_values",
    }


class Leaves(Ends):
    """Forgets that nodes fail."""

    def node_failed(self, event: Any) -> None:
        pass


class WrongUnfinished(Suite):
    plugin = Plugin(Leaves())
    fails = {"test_hears_of_failures"}


class WrongCheck(Suite):
    fails = {"test_hears_of_cancellation"}

    def check(self, events: Sequence[Event]) -> None:
        assert not any(type(event).__name__ == "NodeCancelled" for event in events)


class TooMany(Ends):
    def __init__(self) -> None:
        super().__init__()
        self.runs: set[str] = set()

    def node_started(self, event: Any) -> None:
        super().node_started(event)
        self.runs.add(event.run.run)
        if len(self.runs) > 20:
            raise RuntimeError("too many")


class WrongInManyRuns(Suite):
    plugin = Plugin(TooMany())
    fails = {"test_many_runs_at_once"}

    def setup_method(self) -> None:
        super().setup_method()
        self.plugin.given.runs.clear()

    def unfinished(self) -> Sequence[Any]:
        return ()


class InTheMainThread(Observer):
    def run_started(self, event: Any) -> None:
        if event.run.driver == "inline" and threading.current_thread() is not threading.main_thread():
            raise RuntimeError("another thread")


class WrongInThreads(Suite):
    plugin = Plugin(InTheMainThread())
    fails = {"test_calls_in_threads", "test_runs_inside_runs"}


INSIDE = contextvars.ContextVar("inside", default=False)


class NotInside(Observer):
    """Takes a run inside a run for a mistake."""

    def run_started(self, event: Any) -> None:
        if INSIDE.get():
            raise RuntimeError("a run inside a run")
        INSIDE.set(True)

    def run_finished(self, event: Any) -> None:
        INSIDE.set(False)


class WrongInside(Suite):
    plugin = Plugin(NotInside())
    fails = {"test_runs_inside_runs"}


class Strict(logging.Handler):
    def emit(self, record: Any) -> None:
        raise RuntimeError("a warning is an error here")


class MakesStrict(Observer):
    """Has every warning of weave's raise, so that another observer's mistake ends the run."""

    def run_started(self, event: Any) -> None:
        logging.getLogger("weave").addHandler(STRICT)

    def run_finished(self, event: Any) -> None:
        logging.getLogger("weave").removeHandler(STRICT)


STRICT = Strict()


class WrongWithOthers(Suite):
    plugin = Plugin(MakesStrict())
    fails = {"test_another_observer_that_raises"}

    def teardown_method(self) -> None:
        logging.getLogger("weave").removeHandler(STRICT)


class Keeps(Observer):
    """Has the frames of all nodes, and so what was in their variables."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def node_finished(self, event: Any) -> None:
        frame = sys._getframe()
        while frame is not None:
            self.kept.append(frame)
            frame = frame.f_back  # type: ignore[assignment]


class WrongToKeep(Suite):
    fails = {"test_keeps_no_values"}

    @property
    def plugin(self) -> Any:
        return KEEPS


KEEPS = Plugin(Keeps())
