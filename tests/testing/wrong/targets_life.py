"""Target types that are wrong where something fails, is cancelled or is opened."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel

from tests.testing.wrong.targets import BACKENDS, Lasts, Plugin, Right, RightAsync, Suite, named, x_of

# --- failure ---


class Converts:
    def fire(self, firing: Any) -> None:
        try:
            Right().fire(firing)
        except TypeError as error:
            raise LookupError from error


class WrongFailure(Suite):
    plugin = Plugin(Converts(), prepare=named)
    fails = {"test_failures"}


class Swallows:
    def fire(self, firing: Any) -> None:
        x = x_of(firing)
        if not isinstance(x, int):
            raise TypeError(x)
        for name, value in (("same", x), ("double", x * 2)):
            with contextlib.suppress(Exception):
                firing.deliver(name, value)


class WrongBehindIt(Suite):
    plugin = Plugin(Swallows(), prepare=named)
    fails = {"test_an_error_behind_it"}
    most = True


# --- cancellation ---


class LeavesTasks(RightAsync):
    async def fire(self, firing: Any) -> None:
        task = asyncio.get_running_loop().create_task(asyncio.Event().wait())
        firing.target.part = task
        await super().fire(firing)


class WrongTasks(Lasts):
    plugin = Plugin(LeavesTasks(), prepare=named)
    fails = {"test_cancelled_behind_it", "test_cancelled_midway", "test_a_siblings_failure_stops_it"}


NEVER = threading.Event()


class Early(Lasts):
    limit = 1.0
    most = True  # a second may be too short for what is right


class LeavesThreads(RightAsync):
    async def fire(self, firing: Any) -> None:
        threading.Thread(target=NEVER.wait, daemon=True, name="left").start()
        await super().fire(firing)


class WrongThreads(Early):
    plugin = Plugin(LeavesThreads(), prepare=named)
    fails = {"test_cancelled_behind_it", "test_cancelled_midway", "test_a_siblings_failure_stops_it"}


class CannotBeStopped(RightAsync):
    async def fire(self, firing: Any) -> None:
        x = x_of(firing)
        firing.deliver("same", x)
        with anyio.CancelScope(shield=x == -1):
            await super().fire(firing)


class WrongToStop(Early):
    """Shielded, for ever. The loop that it runs on stays behind in a daemon thread."""

    plugin = Plugin(CannotBeStopped(), prepare=named)
    fails = {"test_cancelled_midway", "test_a_siblings_failure_stops_it"}
    most = True


class Late(RightAsync):
    async def fire(self, firing: Any) -> None:
        x = x_of(firing)
        if not isinstance(x, int):
            raise TypeError(x)
        await (anyio.sleep_forever() if x < 0 else anyio.lowlevel.checkpoint())
        firing.deliver("same", x)
        firing.deliver("double", x * 2)


class WrongTime(Early):
    """What should leave early does not."""

    plugin = Plugin(Late(), prepare=named)
    fails = {"test_cancelled_midway", "test_a_siblings_failure_stops_it"}


class ConvertsCancellation(RightAsync):
    async def fire(self, firing: Any) -> None:
        try:
            await super().fire(firing)
        except BaseException as error:
            if isinstance(error, Exception):
                raise
            raise RuntimeError("stopped") from error


class WrongCancellation(Lasts):
    plugin = Plugin(ConvertsCancellation(), prepare=named)
    fails = {"test_a_siblings_failure_stops_it"}


# --- resources ---


@dataclass(eq=False)
class Line:
    """Something that is opened."""

    open: bool = True


@dataclass(eq=False)
class Lines:
    """Opens and keeps book."""

    all: list[Line] = field(default_factory=list)

    @property
    def left(self) -> list[Line]:
        return [line for line in self.all if line.open]

    def add(self) -> Line:
        self.all.append(Line())
        return self.all[-1]

    @contextlib.contextmanager
    def opened(self, target: Any) -> Iterator[Line]:
        line = self.add()
        try:
            yield line
        finally:
            line.open = False

    @contextlib.asynccontextmanager
    async def aopened(self, target: Any) -> AsyncIterator[Line]:
        line = self.add()
        try:
            await anyio.lowlevel.checkpoint()
            yield line
        finally:
            line.open = False


LINES = Lines()


class Uses(Right):
    def line(self, firing: Any) -> Line:
        return firing.resources  # type: ignore[no-any-return]

    def fire(self, firing: Any) -> None:
        if not self.line(firing).open:
            raise ConnectionError("the line is closed")
        super().fire(firing)


class Open(Suite):
    plugin = Plugin(Uses(), prepare=named, resources=LINES.opened)

    def setup_method(self) -> None:
        LINES.all.clear()

    def unfinished(self) -> Sequence[Any]:
        return LINES.left


class RightResources(Open):
    backends = BACKENDS


class RightAsyncResources(Open):
    backends = BACKENDS
    plugin = Plugin(Uses(), prepare=named, resources=LINES.aopened)


class KeepsTheFirst(Uses):
    first: Line | None = None

    def line(self, firing: Any) -> Line:
        if self.first is None:
            self.first = super().line(firing)
        return self.first


class WrongResourcesAgain(Open):
    plugin = Plugin(KeepsTheFirst(), prepare=named, resources=LINES.opened)
    fails = {"test_resources_are_opened_anew"}
    most = True

    def setup_method(self) -> None:
        super().setup_method()
        self.plugin.executor.first = None


class OpensMore(Uses):
    def line(self, firing: Any) -> Line:
        firing.target.part = LINES.add()
        return super().line(firing)


@contextlib.contextmanager
def closes_all(target: Any) -> Iterator[Line]:
    with LINES.opened(target) as line:
        yield line
    for each in LINES.left:
        each.open = False


class WrongResourcesGrow(Open):
    plugin = Plugin(OpensMore(), prepare=named, resources=closes_all)
    fails = {"test_resources_stay_as_many"}
    most = True


class WrongResourcesShared(Open):
    """Whoever closes closes for all."""

    plugin = Plugin(Uses(), prepare=named, resources=closes_all)
    fails = {"test_resources_belong_to_a_graph"}


@contextlib.contextmanager
def carelessly(target: Any) -> Iterator[Line]:
    line = LINES.add()
    yield line
    line.open = False


class WrongResourcesLeft(Open):
    plugin = Plugin(Uses(), prepare=named, resources=carelessly)
    fails = {"test_resources_are_closed_after_an_error"}
    most = True


@contextlib.contextmanager
def quietly(target: Any) -> Iterator[Line]:
    with contextlib.suppress(Exception), LINES.opened(target) as line:
        yield line


class WrongResourcesQuiet(Open):
    plugin = Plugin(Uses(), prepare=named, resources=quietly)
    fails = {"test_resources_are_closed_after_an_error"}
    most = True


class Hides(Uses):
    def line(self, firing: Any) -> Line:
        try:
            return super().line(firing)
        except Exception:
            return Line(open=False)


class WrongResourcesMissing(Open):
    plugin = Plugin(Hides(), prepare=named, resources=LINES.opened)
    fails = {"test_resources_missing"}
