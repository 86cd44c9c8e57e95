"""Observed runs: what is told, in which order, who asked for it, and how a run ends."""

from __future__ import annotations

import sys
import threading
from typing import Any

import anyio
import pytest
import torch
from torch import nn

import weave.stitched
from tests.plugins.hearing import DRIVERS, Ear, Listens, chain, drive, driver, plus, plus_later
from tests.plugins.packages import Packages
from tests.small import EXT, knot
from weave import FunctionTarget, ModuleTarget, RunOptions, StitchedModule, StitchedModuleException
from weave.engine.watch import watching
from weave.plugins import Observer, PluginSet
from weave.spi.events import NodeEvent, RunInfo
from weave.testing import Gate

# --- what is told ---


@driver
def test_events_in_order(driver: str) -> None:
    ear = Ear()
    assert drive(driver, chain(plus, plus, observers=[ear]), x=1)["y"] == 3
    assert ear.said == [
        "run_started",
        "node_started f0",
        "node_finished f0",
        "node_started f1",
        "node_finished f1",
        "run_finished",
    ]


def test_one_observer_by_itself_is_refused_with_the_remedy() -> None:
    with pytest.raises(TypeError, match=r"observers=\(Ear\(\.\.\.\),\)"):
        RunOptions(observers=Ear())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="call the class"):
        RunOptions(observers=(Ear,))  # type: ignore[arg-type]


@driver
def test_facts(driver: str) -> None:
    ear, threads = Ear(), []

    def here(x: Any) -> Any:
        threads.append(threading.current_thread().name)
        return x

    stitched = chain(plus, here, observers=[ear])
    drive(driver, stitched, x=1)
    (run,) = {id(event.run): event.run for _, event in ear.events}.values()
    assert run.plan is stitched.plan
    assert run.driver == ("inline" if driver == "inline" else "tasks")
    assert len(run.run) == 12
    assert int(run.run, 16) >= 0
    assert abs(run.started_at - 1.8e9) < 1e9, "seconds since the epoch"
    times = [run.time_ns, *(event.time_ns for _, event in ear.events)]
    assert times == sorted(times)
    started, finished = [e for _, e in ear.events if isinstance(e, NodeEvent) and e.node == "f1"]
    assert (started.unit, finished.unit) == (1, 1)
    assert [started.thread, finished.thread] == threads * 2
    # What the observers take at the start is between the two times, and not in the duration.
    assert 0 <= finished.duration_ms * 1e6 <= finished.time_ns - started.time_ns
    assert (ear.end.status, ear.end.error) == ("ok", None)
    assert ear.end.duration_ms == (ear.end.time_ns - run.time_ns) / 1e6
    with pytest.raises(AttributeError):
        ear.end.status = "failed"  # type: ignore[misc]


@driver
def test_modules_constants_and_nodes_that_are_not_plain(driver: str) -> None:
    """Executors, reducers, adapters: each node starts and ends once, and values are the same as without."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

    def graph(*observers: Observer) -> StitchedModule:
        m, f, g = ModuleTarget("m", net), FunctionTarget("f", lambda x: x), FunctionTarget("g", torch.add)
        return knot(
            (EXT.input("x"), m.input("")),
            (m.output("0"), f.input(adapter=lambda call: call)),
            (m.output(""), g.input()),
            (f.output(adapter="clone"), g.input()),
            (g.output(), EXT.output("y", reducer="sum")),
            (m.output("0"), EXT.output("y", reducer="sum")),
            options=RunOptions(observers=observers),
            plugins=PluginSet(),
        )

    ear, x = Ear(), torch.ones(1, 2)
    assert torch.equal(drive(driver, graph(ear), x=x)["y"], drive(driver, graph(), x=x)["y"])
    for node in ("m", "f", "g"):
        assert ear.of(node) == ["node_started", "node_finished"]
    assert len(ear.events) == 8


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_async_nodes_end_when_they_were_awaited(backend: str) -> None:
    ear, said_inside = Ear(), []

    async def inside(x: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        said_inside.extend(ear.said)
        return x

    assert drive(backend, chain(plus_later, inside, plus, observers=[ear]), x=1)["y"] == 3
    assert said_inside == ["run_started", "node_started f0", "node_finished f0", "node_started f1"]
    assert ear.said[4:] == ["node_finished f1", "node_started f2", "node_finished f2", "run_finished"]
    ear.events.clear()
    assert chain(plus_later, observers=[ear])({"x": 1}, {})["y"] == 2, "a synchronous call of an asynchronous graph"
    assert ear.end.run.driver == "tasks"


class Nothing(nn.Sequential):
    """A callable of which `bool()` is false."""


@driver
def test_a_function_that_is_empty_is_a_function(driver: str) -> None:
    ear, empty = Ear(), Nothing()
    assert not empty
    assert drive(driver, chain(FunctionTarget("f0", empty), observers=[ear]), x=1)["y"] == 1
    assert ear.of("f0") == ["node_started", "node_finished"]


# --- who asks for it ---


@driver
def test_from_a_plugin_and_from_options(driver: str) -> None:
    ears = [Ear() for _ in range(4)]
    plugins = [Listens(lambda run: ears[0]), Listens(lambda run: ears[1]), Listens(lambda run: None)]
    stitched = chain(plus, plugins=PluginSet(*plugins), observers=ears[2:])
    assert drive(driver, stitched, x=1)["y"] == 2
    for ear in ears:
        assert ear.said == ["run_started", "node_started f0", "node_finished f0", "run_finished"]
        assert ear.end.run is plugins[0].asked[0]
    drive(driver, stitched, x=1)
    assert [len(plugin.asked) for plugin in plugins] == [2, 2, 2], "once a run"
    assert plugins[0].asked[0].run != plugins[0].asked[1].run


def test_from_an_installed_package(packages: Packages) -> None:
    packages.install(
        "hears",
        """
        from weave.plugins import Observer, hookimpl
        said = []
        class Hears(Observer):
            def node_finished(self, event):
                said.append(event.node)
        @hookimpl
        def weave_observer():
            return Hears()
        """,
    )
    drive("inline", chain(plus, plugins=None), x=1)
    assert sys.modules["hears"].said == ["f0"]


def test_options_of_a_view() -> None:
    ear = Ear()
    stitched = chain(plus)
    view = stitched.with_options(observers=[ear])
    stitched({"x": 1}, {})
    assert ear.events == []
    view({"x": 1}, {})
    assert len(ear.events) == 4
    view.with_options(observers=())({"x": 1}, {})
    assert len(ear.events) == 4


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_each_run_of_a_stream(backend: str) -> None:
    ears: list[Ear] = []

    def another(run: RunInfo) -> Ear:
        ears.append(Ear())
        return ears[-1]

    stitched = chain(plus_later, plugins=[Listens(another)])

    async def main() -> list[Any]:
        async with stitched.stream([{"x": x} for x in range(5)], in_flight=3) as results:
            return [out["y"] async for out in results]

    assert anyio.run(main, backend=backend) == [1, 2, 3, 4, 5]
    assert [ear.said for ear in ears] == [["run_started", "node_started f0", "node_finished f0", "run_finished"]] * 5


def test_methods_that_are_not_overridden_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody hears of nodes: the run is driven as one that nobody observes."""
    heard: list[Any] = []

    class Ends(Observer):
        def run_finished(self, event: Any) -> None:
            heard.append(event.status)

    def fails(*args: Any) -> Any:
        raise AssertionError("nodes are watched")

    monkeypatch.setattr(weave.stitched, "watched", fails)
    for how in DRIVERS:
        drive(how, chain(plus, observers=[Ends(), Observer()]), x=1)
    assert heard == ["ok"] * 3
    with pytest.raises(AssertionError, match="nodes are watched"):
        chain(plus, observers=[Ear()])({"x": 1}, {})


# --- how it ends ---


@driver
def test_a_node_that_fails(driver: str) -> None:
    ear, error = Ear(), ValueError("mine")

    def fails(x: Any) -> Any:
        raise error

    with pytest.raises(ValueError, match="mine") as raised:
        drive(driver, chain(plus, fails, plus, observers=[ear]), x=1)
    assert raised.value is error
    assert "node 'f1'" in error.__notes__[0]
    assert ear.said[-3:] == ["node_started f1", "node_failed f1", "run_finished"]
    assert ear.events[-2][1].error is ear.end.error is error
    assert ear.events[-2][1].duration_ms >= 0
    assert ear.end.status == "failed"
    assert ear.of("f2") == []
    assert watching.get() is None


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_several_that_fail(backend: str) -> None:
    ear = Ear()
    together = threading.Barrier(2)

    def failing(name: str) -> FunctionTarget:
        def fail() -> None:
            together.wait(60)
            raise ValueError(name)

        return FunctionTarget(name, fail)

    ends = [(failing(name).output(), EXT.output(name)) for name in "ab"]
    stitched = knot(*ends, options=RunOptions(observers=[ear], max_workers=2), plugins=())
    with pytest.raises(ExceptionGroup):
        drive(backend, stitched)
    assert ear.of("a") == ear.of("b") == ["node_started", "node_failed"]
    assert ear.end.status == "failed"
    assert isinstance(ear.end.error, ExceptionGroup)


@pytest.mark.anyio
async def test_a_run_that_is_cancelled() -> None:
    ear, gate = Ear(), Gate("gate")
    stitched = chain(plus, gate, plus, observers=[ear])
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(stitched.run, {"x": 1}, {})
            await gate.until_arrived()
            scope.cancel()
    assert ear.said[-3:] == ["node_started gate", "node_cancelled gate", "run_finished"]
    assert ear.end.status == "cancelled"
    assert isinstance(ear.end.error, anyio.get_cancelled_exc_class())
    assert watching.get() is None


@pytest.mark.anyio
async def test_a_run_that_takes_too_long() -> None:
    ear = Ear()
    stitched = chain(Gate("gate"), observers=[ear]).with_options(timeout=0.01)
    with pytest.raises(TimeoutError):
        await stitched.run({"x": 1}, {})
    assert ear.of("gate") == ["node_started", "node_cancelled"]
    assert (ear.end.status, type(ear.end.error)) == ("failed", TimeoutError)


@pytest.mark.anyio
async def test_who_waits_while_another_fails_is_cancelled() -> None:
    ear, gate = Ear(), Gate("gate")

    async def fails(x: Any) -> None:
        await gate.until_arrived()
        raise ValueError("mine")

    f = FunctionTarget("f", fails)
    ends = [(EXT.input("x"), target.input()) for target in (f, gate)]
    stitched = knot(*ends, options=RunOptions(observers=[ear]), plugins=())
    with pytest.raises(ValueError, match="mine"):
        await stitched.run({"x": 1}, {})
    assert ear.of("f") == ["node_started", "node_failed"]
    assert ear.of("gate") == ["node_started", "node_cancelled"]
    assert ear.end.status == "failed"


@pytest.mark.anyio
async def test_a_module_that_is_left_at_a_port_is_cancelled() -> None:
    """A thread can't be interrupted: a forward is left at its next port, when a node beside it has failed."""
    ear, inside = Ear(), anyio.Event()
    failed = threading.Event()

    class Waits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Identity(), nn.Identity()

        def forward(self, x: Any) -> Any:
            x = self.first(x)
            anyio.from_thread.run_sync(inside.set)
            assert failed.wait(60)
            return self.second(x)

    async def fails(x: Any) -> None:
        await inside.wait()
        raise ValueError("mine")

    async def until_stopped(x: Any) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            failed.set()  # somebody was cancelled: the run is being stopped

    m, f, g = ModuleTarget("m", Waits()), FunctionTarget("f", fails), FunctionTarget("g", until_stopped)
    stitched = knot(
        (EXT.input("x"), m.input("")),
        (m.output("second"), EXT.output("y")),
        *[(EXT.input("x"), target.input()) for target in (f, g)],
        options=RunOptions(observers=[ear], max_workers=2),
        plugins=(),
    )
    with pytest.raises(ValueError, match="mine"):
        await stitched.run({"x": 1}, {})
    assert ear.of("m") == ["node_started", "node_cancelled"]


def test_a_node_whose_awaitable_nobody_can_await() -> None:
    """A plain function that gives a coroutine, in a synchronous call: the node has an end, and it is not a good one."""
    ear = Ear()
    with pytest.raises(StitchedModuleException, match="can't await"):
        chain(lambda x: plus_later(x), observers=[ear])({"x": 1}, {})
    assert ear.said == ["run_started", "node_started f0", "node_failed f0", "run_finished"]
    assert ear.end.status == "failed"


@driver
def test_a_run_that_is_refused_is_none(driver: str) -> None:
    ear, plugin = Ear(), Listens(lambda run: None)
    with pytest.raises(StitchedModuleException):
        drive(driver, chain(plus, observers=[ear], plugins=[plugin]), z=1)
    assert (ear.events, plugin.asked) == ([], [])


def test_an_interrupt_ends_a_run_too() -> None:
    ear = Ear()

    def interrupted(x: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        chain(interrupted, observers=[ear])({"x": 1}, {})
    assert ear.said == ["run_started", "node_started f0", "node_failed f0", "run_finished"]
