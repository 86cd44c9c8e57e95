"""Target types that are wrong."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
import torch

from weave import InputArgs, UnknownPortException
from weave.graph.targets import TargetWithNamedInputs, TargetWithNamedOutputs
from weave.plugins import TargetType, hookimpl
from weave.testing import TargetExample, TargetTypeSuite

BACKENDS = ("asyncio", "trio")


@dataclass(eq=False)
class Board(TargetWithNamedInputs, TargetWithNamedOutputs):
    """Takes "x"; gives "same" and "double"."""

    name: Any = "board"
    now: Any = None
    part: Any = None


class Plugin:
    """Registers `Board` with an executor and whatever else a case wants."""

    def __init__(self, executor: Any, **more: Any) -> None:
        self.executor = executor
        self.more = more

    @hookimpl
    def weave_target_types(self) -> list[TargetType]:
        return [TargetType(name="board", target=Board, executor=self.executor, **self.more)]


class Misspelt(Plugin):
    @hookimpl
    def weave_target_type(self) -> list[TargetType]:
        return []


def x_of(firing: Any) -> Any:
    [x] = firing.inputs("x").args
    return x


class Right:
    def fire(self, firing: Any) -> None:
        x = x_of(firing)
        if not isinstance(x, int):
            raise TypeError(x)
        firing.deliver("same", x)
        firing.deliver("double", x * 2)


class RightAsync:
    """With an input below zero it goes on for ever."""

    async def fire(self, firing: Any) -> None:
        x = x_of(firing)
        if not isinstance(x, int):
            raise TypeError(x)
        firing.deliver("same", x)
        await (anyio.sleep_forever() if x < 0 else anyio.lowlevel.checkpoint())
        firing.deliver("double", x * 2)


def named(node: Any) -> None:
    for port in (*node.inputs, *node.outputs):
        if port.name not in ("x" if port.kind == "input" else "same double"):
            raise UnknownPortException("no such port", node=node.node, port=port.name)


class Suite(TargetTypeSuite):
    plugin = Plugin(Right(), prepare=named)
    backends = ("asyncio",)
    examples = [({"x": 1}, {"same": 1, "double": 2}), ({"x": 2}, {"same": 2, "double": 4})]
    failures = [TargetExample(inputs={"x": "text"}, raises=TypeError)]
    refused = [("input", "z"), ("output", "triple")]
    fails: set[str] = set()

    def target(self) -> Board:
        return Board()


class Lasts(Suite):
    lasting = TargetExample(inputs={"x": -1}, outputs={"same": -1})
    plugin = Plugin(RightAsync(), prepare=named)


class RightBoard(Suite):
    backends = BACKENDS


class RightLasting(Lasts):
    backends = BACKENDS


class RightInline(Suite):
    class Inline(Right):
        def lane(self, target: Any) -> str:
            return "inline"

    plugin = Plugin(Inline(), prepare=named)


class Calls:
    """Gives calls: what they are made of would be the arguments of whatever is stitched from it."""

    async def fire(self, firing: Any) -> None:
        x = x_of(firing)
        firing.deliver("same", InputArgs(x, [x], k=x))
        await (anyio.sleep_forever() if x < 0 else anyio.lowlevel.checkpoint())
        firing.deliver("double", InputArgs(x * 2))


class RightCalls(Suite):
    plugin = Plugin(Calls(), prepare=named)
    examples = [
        ({"x": 1}, {"same": InputArgs(1, [1], k=1), "double": InputArgs(2)}),
        ({"x": 2}, {"same": InputArgs(2, [2], k=2), "double": InputArgs(4)}),
    ]
    lasting = TargetExample(inputs={"x": -1}, outputs={"same": InputArgs(-1, [-1], k=-1)})


# --- the record ---


class WrongHook(Suite):
    plugin = Misspelt(Right(), prepare=named)
    fails = {"test_the_plugin_loads"}


class WrongClass(Suite):
    fails = {"test_is_registered"}
    most = True

    def target(self) -> Any:
        return TargetWithNamedOutputs()


class WrongExecutor(Suite):
    plugin = Plugin(None, prepare=named)
    fails = {"test_is_registered"}
    most = True


class WrongLane(Suite):
    class Fast(Right):
        def lane(self, target: Any) -> str:
            return "fast"

    plugin = Plugin(Fast(), prepare=named)
    fails = {"test_is_registered"}


class WrongExamples(Suite):
    examples = []
    fails = {"test_there_are_examples"}
    most = True


class WrongSources(Suite):
    """It says that its inputs can be captured, and no example has one."""

    plugin = Plugin(Right(), prepare=named, sources=("input", "output"))
    fails = {"test_there_are_examples"}


class WrongPorts(Suite):
    plugin = Plugin(Right())
    fails = {"test_ports_that_it_does_not_have"}


class WrongParts(Suite):
    plugin = Plugin(Right(), prepare=named, owns=lambda target: [torch.zeros(1)])
    fails = {"test_owns"}
    most = True


# --- values ---


class Counts:
    """Right once."""

    fired = 0

    def fire(self, firing: Any) -> None:
        self.fired += 1
        x = x_of(firing)
        if not isinstance(x, int):
            raise TypeError(x)
        firing.deliver("same", x)
        firing.deliver("double", x * 2 if self.fired == 1 else 0)


class WrongTheSecondTime(Suite):
    plugin = Plugin(Counts(), prepare=named)
    fails = {"test_values"}
    most = True

    def setup_method(self) -> None:
        self.plugin.executor.fired = 0


def both(node: Any) -> None:
    named(node)
    if len(node.outputs) == 1:
        raise UnknownPortException("stitch both", node=node.node)


class WrongAlone(Suite):
    plugin = Plugin(Right(), prepare=both)
    fails = {"test_each_port_alone"}


def some(node: Any) -> None:
    named(node)
    if node.inputs and not node.outputs:
        raise UnknownPortException("stitch something", node=node.node)


class WrongWithoutStitches(Suite):
    plugin = Plugin(Right(), prepare=some)
    failures = []
    fails = {"test_nothing_stitched_from_it"}


class Streams:
    """Gives an iterator, which the first who looks exhausts."""

    def fire(self, firing: Any) -> None:
        x = x_of(firing)
        if not isinstance(x, int):
            raise TypeError(x)
        firing.deliver("same", iter([x]))
        firing.deliver("double", iter([x * 2]))


class WrongForTwo(Suite):
    plugin = Plugin(Streams(), prepare=named)
    fails = {"test_several_stitches_from_a_port"}

    def same(self, got: Any, expected: Any) -> bool:
        return list(got) == [expected]


class InPlace(Right):
    def fire(self, firing: Any) -> None:
        x = x_of(firing)
        firing.deliver("same", x.append(1) or len(x))


class WrongInPlace(Suite):
    plugin = Plugin(InPlace(), prepare=named)
    examples = [({"x": []}, {"same": 1})]
    failures = []
    fails = {"test_changes_nothing_in_place"}


# --- many at once ---


class Remembers:
    """Keeps a firing's value where all firings keep theirs."""

    def fire(self, firing: Any) -> None:
        self.now = x_of(firing)
        if not isinstance(self.now, int):
            raise TypeError(self.now)
        firing.deliver("same", self.now)
        firing.deliver("double", self.now * 2)


class WrongInThreads(Suite):
    plugin = Plugin(Remembers(), prepare=named)
    fails = {"test_calls_in_threads"}
    may = {"test_many_runs_at_once"}


class RemembersAcross:
    async def fire(self, firing: Any) -> None:
        self.now = x_of(firing)
        if not isinstance(self.now, int):
            raise TypeError(self.now)
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        firing.deliver("same", self.now)
        firing.deliver("double", self.now * 2)


class WrongInManyRuns(Suite):
    backends = BACKENDS
    plugin = Plugin(RemembersAcross(), prepare=named)
    fails = {"test_many_runs_at_once", "test_calls_in_threads"}


# --- copies, pictures ---


class WrongToCopy(Suite):
    fails = {"test_copies", "test_pickles"}

    def target(self) -> Board:
        return Board(part=threading.Lock())


class WrongToPickle(Suite):
    fails = {"test_pickles"}

    def target(self) -> Board:
        return Board(part=lambda: None)


class Bytes(Right):
    def fire(self, firing: Any) -> None:
        firing.deliver(b"same", x_of(firing))


class WrongToDraw(Suite):
    """A port's name is text."""

    plugin = Plugin(Bytes())
    examples = [({"x": 1}, {b"same": 1})]
    failures = ()
    refused = ()
    fails = {"test_is_drawn"}
    may = {"test_cancelled_behind_it"}
