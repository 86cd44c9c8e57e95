"""What target types need opened: by `with stitched` and `async with stitched`, in order, and closed whatever happens."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from tests.small import EXT, knot
from weave import FunctionTarget, StitchedModule, StitchedModuleException
from weave.graph.targets import TargetWithNamedInputs, TargetWithNamedOutputs
from weave.plugins import TargetType, hookimpl
from weave.testing import Gate

pytestmark = pytest.mark.anyio


@dataclass(eq=False)
class Pump(TargetWithNamedInputs, TargetWithNamedOutputs):
    """Gives what was opened for it, with what it gets."""

    name: str


class Gives:
    def fire(self, firing: Any) -> None:
        firing.deliver("x", (firing.resources, *firing.inputs("x").args))


class GivesLater:
    async def fire(self, firing: Any) -> None:
        await anyio.lowlevel.checkpoint()
        firing.deliver("x", (await firing.blocking(lambda: firing.resources), *firing.inputs("x").args))


class Needs:
    """A plugin for pumps, whose resources are made by a function, and a log of what happened to them."""

    def __init__(self, make: Callable[[Needs, Pump], Any], executor: Any = None) -> None:
        self.make = make
        self.executor = executor or Gives()
        self.log: list[str] = []

    def resources(self, pump: Pump) -> Any:
        return self.make(self, pump)

    @hookimpl
    def weave_target_types(self) -> list[TargetType]:
        return [TargetType(name="pump", target=Pump, executor=self.executor, resources=self.resources)]


@contextlib.contextmanager
def plain(needs: Needs, pump: Pump) -> Iterator[str]:
    needs.log.append(f"open {pump.name}")
    try:
        yield f"pipe of {pump.name}"
    except BaseException as error:
        needs.log.append(f"{pump.name} sees {type(error).__name__}")
        raise
    finally:
        needs.log.append(f"close {pump.name}")


@contextlib.asynccontextmanager
async def asynchronous(needs: Needs, pump: Pump) -> AsyncIterator[str]:
    with plain(needs, pump) as pipe:
        await anyio.lowlevel.checkpoint()
        yield pipe


def mixed(needs: Needs, pump: Pump) -> Any:
    """Plain ones for names in capitals."""
    return (plain if pump.name.isupper() else asynchronous)(needs, pump)


def pipeline(needs: Needs, names: str = "a") -> StitchedModule:
    """A pump for each letter, one behind the other."""
    pumps = [Pump(name) for name in names]
    between = [(one.output("x"), next_.input("x")) for one, next_ in itertools.pairwise(pumps)]
    return knot(*between, (pumps[-1].output("x"), EXT.output("y")), plugins=[needs])


def due(names: str) -> Any:
    """What a pipeline gives."""
    value: tuple[Any, ...] = ()
    for name in names:
        value = (f"pipe of {name}", value) if value else (f"pipe of {name}",)
    return value


# --- opened and closed ---


@pytest.mark.parametrize("executor", [Gives, GivesLater])
@pytest.mark.parametrize(("make", "names"), [(plain, "ABC"), (asynchronous, "abc"), (mixed, "aBc")])
async def test_open_inside_async_with(make: Any, names: str, executor: Any) -> None:
    needs = Needs(make, executor())
    stitched = pipeline(needs, names)
    opened = [f"open {name}" for name in names]
    async with stitched as entered:
        assert entered is stitched
        assert needs.log == opened, "all of them, in the graph's order, before anything runs"
        for _ in range(2):
            assert (await stitched.run({}, {}))["y"] == due(names)
        assert needs.log == opened, "once, for all runs"
    assert needs.log[3:] == [f"close {name}" for name in reversed(names)]


def test_open_inside_with() -> None:
    needs = Needs(plain)
    stitched = pipeline(needs, "AB")
    with stitched:
        assert stitched({}, {})["y"] == due("AB")
    assert needs.log == ["open A", "open B", "close B", "close A"]


async def test_open_inside_with_and_run_on_a_loop() -> None:
    stitched = pipeline(Needs(plain), "AB")
    with stitched:
        assert (await stitched.run({}, {}))["y"] == due("AB")


async def test_a_synchronous_call_inside_async_with() -> None:
    stitched = pipeline(Needs(mixed), "aB")
    async with stitched:
        assert stitched({}, {})["y"] == due("aB")


async def test_opened_again() -> None:
    needs = Needs(asynchronous)
    stitched = pipeline(needs)
    for _ in range(2):
        async with stitched:
            assert (await stitched.run({}, {}))["y"] == due("a")
    assert needs.log == ["open a", "close a"] * 2


async def test_runs_at_once_share_what_is_open() -> None:
    needs, gate, got = Needs(asynchronous), Gate("gate"), []
    pump = Pump("a")
    stitched = knot(
        (EXT.input("x"), gate.input()),
        (gate.output(), pump.input("x")),
        (pump.output("x"), EXT.output("y")),
        plugins=[needs],
    )

    async def one(x: int) -> None:
        got.append((await stitched.run({"x": x}, {}))["y"])

    async with stitched, anyio.create_task_group() as group:
        for x in range(5):
            group.start_soon(one, x)
        await gate.until_arrived(5)
        gate.open()
    assert sorted(got) == [("pipe of a", x) for x in range(5)]
    assert needs.log == ["open a", "close a"]


class Both:
    """A context manager of both kinds, as some clients are."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def __enter__(self) -> str:
        self.log.append("entered")
        return "plain"

    def __exit__(self, *raised: object) -> None:
        self.log.append("left")

    async def __aenter__(self) -> str:
        self.log.append("awaited in")
        return "awaited"

    async def __aexit__(self, *raised: object) -> None:
        self.log.append("awaited out")


async def test_one_that_can_be_opened_either_way() -> None:
    needs = Needs(lambda needs, pump: Both(needs.log))
    stitched = pipeline(needs)
    with stitched:
        assert stitched({}, {})["y"] == ("plain",)
    async with stitched:
        assert stitched({}, {})["y"] == ("awaited",)
    assert needs.log == ["entered", "left", "awaited in", "awaited out"]


# --- nested ---


@pytest.mark.parametrize("inner", ["with", "async with"])
async def test_entered_twice_it_is_open_until_the_outer_one_ends(inner: str) -> None:
    needs = Needs(asynchronous)
    stitched = pipeline(needs)
    async with stitched:
        if inner == "with":
            with stitched:
                assert (await stitched.run({}, {}))["y"] == due("a")
        else:
            async with stitched:
                assert (await stitched.run({}, {}))["y"] == due("a")
        assert needs.log == ["open a"]
        assert (await stitched.run({}, {}))["y"] == due("a")
    assert needs.log == ["open a", "close a"]


async def test_async_with_inside_with() -> None:
    needs = Needs(plain)
    stitched = pipeline(needs, "A")
    with stitched:
        async with stitched:
            assert (await stitched.run({}, {}))["y"] == due("A")
        assert needs.log == ["open A"]
    assert needs.log == ["open A", "close A"]


async def test_two_graphs_with_the_same_targets_open_each_their_own() -> None:
    needs, pump = Needs(asynchronous), Pump("a")
    first, second = (knot((pump.output("x"), EXT.output("y")), plugins=[needs]) for _ in range(2))
    async with first:
        with pytest.raises(StitchedModuleException, match="not open"):
            await second.run({}, {})
        async with second:
            assert (await second.run({}, {}))["y"] == due("a")
        assert needs.log == ["open a", "open a", "close a"]
        assert (await first.run({}, {}))["y"] == due("a")


async def test_a_graph_that_needs_none() -> None:
    f = FunctionTarget("f", abs)
    async with knot((EXT.input("x"), f.input()), (f.output(), EXT.output("y"))) as stitched:
        assert (await stitched.run({"x": -1}, {}))["y"] == 1


# --- not open ---


async def test_needed_and_not_open() -> None:
    needs = Needs(asynchronous)
    stitched = pipeline(needs)
    for _ in range(2):  # before, and after it has been open
        with pytest.raises(StitchedModuleException, match=r"'a' needs resources that are not open.*with stitched"):
            await stitched.run({}, {})
        with pytest.raises(StitchedModuleException, match=r"'a' needs resources that are not open"):
            stitched({}, {})
        async with stitched:
            await stitched.run({}, {})
    assert needs.log == ["open a", "close a"] * 2


def test_asynchronous_ones_are_not_opened_by_with() -> None:
    needs = Needs(mixed)
    stitched = pipeline(needs, "Ab")
    with (
        pytest.raises(
            StitchedModuleException, match=r"a Pump opens its resources asynchronously: `async with stitched:`"
        ),
        stitched,
    ):
        pass
    assert needs.log == ["open A", "A sees StitchedModuleException", "close A"], "what was opened before is closed"
    with pytest.raises(StitchedModuleException, match="not open"):
        stitched({}, {})


async def test_what_is_no_context_manager_is_refused() -> None:
    needs = Needs(lambda needs, pump: plain(needs, pump) if pump.name == "A" else "a pipe")
    stitched = pipeline(needs, "Ab")
    why = r"the resources of a Pump must be a context manager, plain or asynchronous, .* gave a str"
    with pytest.raises(StitchedModuleException, match=why):
        async with stitched:
            pass
    with pytest.raises(StitchedModuleException, match=why), stitched:
        pass
    assert needs.log == ["open A", "A sees StitchedModuleException", "close A"] * 2


# --- what goes wrong ---


def failing(where: str, error: BaseException) -> Callable[[Needs, Pump], Any]:
    """Pumps that open, but for the one called c: it fails as it is made, opened or closed."""

    @contextlib.asynccontextmanager
    async def fails(needs: Needs, pump: Pump) -> AsyncIterator[str]:
        await anyio.lowlevel.checkpoint()
        if where == "opened":
            raise error
        yield f"pipe of {pump.name}"
        raise error

    def make(needs: Needs, pump: Pump) -> Any:
        if pump.name != "c":
            return mixed(needs, pump)
        if where == "made":
            raise error
        return fails(needs, pump)

    return make


@pytest.mark.parametrize("where", ["made", "opened"])
async def test_where_one_can_not_be_opened_those_before_are_closed(where: str) -> None:
    needs = Needs(failing(where, OSError("no water")))
    stitched = pipeline(needs, "aBcD")
    with pytest.raises(OSError, match="no water"):
        async with stitched:
            raise AssertionError("it is not open")
    assert needs.log == ["open a", "open B", "B sees OSError", "close B", "a sees OSError", "close a"]
    with pytest.raises(StitchedModuleException, match="not open"):
        await stitched.run({}, {})
    needs.make = mixed
    async with stitched:
        assert (await stitched.run({}, {}))["y"] == due("aBcD"), "it can be opened afterwards"


async def test_where_one_can_not_be_closed_the_others_are() -> None:
    needs = Needs(failing("closed", OSError("it leaks")))
    stitched = pipeline(needs, "aBcD")
    with pytest.raises(OSError, match="it leaks"):
        async with stitched:
            assert (await stitched.run({}, {}))["y"] == due("aBcD")
    assert [line for line in needs.log if line.startswith("close")] == ["close D", "close B", "close a"]
    with pytest.raises(StitchedModuleException, match="not open"):
        await stitched.run({}, {})


async def test_an_error_inside_is_seen_by_each_and_comes_out() -> None:
    needs = Needs(mixed)
    with pytest.raises(LookupError, match="mine"):
        async with pipeline(needs, "aB"):
            raise LookupError("mine")
    assert needs.log[2:] == ["B sees LookupError", "close B", "a sees LookupError", "close a"]


async def test_one_that_swallows_errors_does() -> None:
    @contextlib.asynccontextmanager
    async def swallows(needs: Needs, pump: Pump) -> AsyncIterator[str]:
        with contextlib.suppress(LookupError):
            yield "pipe"

    async with pipeline(Needs(swallows)):
        raise LookupError("mine")


async def test_cancelled_inside_everything_is_closed() -> None:
    needs, gate = Needs(mixed), Gate("gate")
    pump, second = Pump("a"), Pump("B")
    stitched = knot(
        (pump.output("x"), gate.input()),
        (gate.output(), second.input("x")),
        (second.output("x"), EXT.output("y")),
        plugins=[needs],
    )

    async def opens_and_runs() -> None:
        async with stitched:
            await stitched.run({}, {})

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(opens_and_runs)
            await gate.until_arrived()
            scope.cancel()
    assert scope.cancelled_caught
    name = anyio.get_cancelled_exc_class().__name__
    assert needs.log == ["open a", "open B", f"B sees {name}", "close B", f"a sees {name}", "close a"]
    with pytest.raises(StitchedModuleException, match="not open"):
        await stitched.run({}, {})


async def test_cancelled_while_they_are_opened() -> None:
    opening = anyio.Event()

    @contextlib.asynccontextmanager
    async def for_ever(needs: Needs, pump: Pump) -> AsyncIterator[str]:
        opening.set()
        await anyio.sleep_forever()
        yield "never"

    needs = Needs(lambda needs, pump: (for_ever if pump.name == "c" else mixed)(needs, pump))
    stitched = pipeline(needs, "aBc")

    async def opens() -> None:
        async with stitched:
            raise AssertionError("it is not open")

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(opens)
            await opening.wait()
            scope.cancel()
    assert [line for line in needs.log if "sees" not in line] == ["open a", "open B", "close B", "close a"]


async def test_opened_and_closed_in_the_callers_task() -> None:
    """What holds a task group or a cancel scope must be left by the task that entered it."""

    @contextlib.asynccontextmanager
    async def with_a_group(needs: Needs, pump: Pump) -> AsyncIterator[str]:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.lowlevel.checkpoint)
            yield f"pipe of {pump.name}"

    stitched = pipeline(Needs(with_a_group), "ab")
    async with stitched:
        assert (await stitched.run({}, {}))["y"] == due("ab")


# --- several tasks, several views ---


async def test_a_second_task_can_not_open_what_a_first_has() -> None:
    needs, refused = Needs(asynchronous), []
    stitched = pipeline(needs)

    async def again() -> None:
        try:
            async with stitched:
                pass
        except StitchedModuleException as error:
            refused.append(str(error))

    async with stitched, anyio.create_task_group() as group:
        group.start_soon(again)
        group.start_soon(stitched.run, {}, {})
    assert "another task's `async with stitched:`" in refused[0]
    assert needs.log == ["open a", "close a"]
    async with stitched:
        pass
    assert needs.log == ["open a", "close a"] * 2


async def test_two_tasks_at_once_open_it_once() -> None:
    needs, outcomes = Needs(asynchronous), []
    stitched = pipeline(needs)

    async def one() -> None:
        try:
            async with stitched:
                outcomes.append((await stitched.run({}, {}))["y"])
        except StitchedModuleException:
            outcomes.append("refused")

    async with anyio.create_task_group() as group:
        group.start_soon(one)
        group.start_soon(one)
    assert sorted(outcomes, key=str) == [due("a"), "refused"]
    assert needs.log == ["open a", "close a"]


def test_views_share_what_is_open() -> None:
    needs = Needs(plain)
    stitched = pipeline(needs)
    before = stitched.with_options(max_workers=1)
    with stitched:
        assert before({}, {})["y"] == due("a")
        during = stitched.with_options(max_workers=1)
    with pytest.raises(StitchedModuleException, match="not open"):
        during({}, {})


async def test_with_around_async_with_is_left_in_either_order() -> None:
    needs = Needs(plain)
    stitched = pipeline(needs)
    with stitched:
        async with stitched:
            pass
        assert needs.log == ["open a"]
    assert needs.log == ["open a", "close a"]
    await stitched.__aenter__()
    stitched.__enter__()
    await stitched.__aexit__(None, None, None)
    with pytest.raises(StitchedModuleException, match="must be left last"):
        stitched.__exit__(None, None, None)
    await stitched.__aexit__(None, None, None)
    assert needs.log == ["open a", "close a"] * 2
