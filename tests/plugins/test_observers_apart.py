"""What an observer can't do to a run: mix runs up, break one, or cost something where nobody asked for it."""

from __future__ import annotations

import itertools
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import weave.engine.watch
import weave.stitched
from tests.plugins.hearing import Ear, Listens, chain, drive, driver, plus, plus_later
from tests.plugins.packages import Packages
from tests.small import EXT, knot
from weave import FunctionTarget, RunOptions
from weave.engine.watch import METHODS
from weave.plugins import Observer, PluginSet, hookimpl
from weave.spi.events import RunInfo
from weave.testing import Gate

# --- runs beside and inside runs ---


@pytest.mark.anyio
async def test_runs_at_once_do_not_mix() -> None:
    """One graph, an observer a run. All are under way before the first goes on; threads and tasks of each are in play."""
    count, ears, gate = 8, dict[str, Ear](), Gate("gate")

    def another(run: RunInfo) -> Ear:
        return ears.setdefault(run.run, Ear())

    stitched = chain(plus, gate, plus_later, plus, plugins=[Listens(another)])
    got: dict[int, Any] = {}

    async def one(x: int) -> None:
        got[x] = (await stitched.run({"x": x}, {}))["y"]

    async with anyio.create_task_group() as group:
        for x in range(count):
            group.start_soon(one, x)
        await gate.until_arrived(count)
        gate.open()
    assert got == {x: x + 3 for x in range(count)}
    assert len(ears) == count
    nodes = ["f0", "gate", "f2", "f3"]
    due = [said for node in nodes for said in (f"node_started {node}", f"node_finished {node}")]
    for run, ear in ears.items():
        assert ear.said == ["run_started", *due, "run_finished"]
        assert {event.run.run for _, event in ear.events} == {run}


@driver
@pytest.mark.parametrize("inner_observed", [True, False])
def test_a_graph_inside_a_node(driver: str, inner_observed: bool) -> None:
    """Each hears of its own. The outer one's next nodes are heard again."""
    outer_ear, inner_ear = Ear(), Ear()
    inner = chain(plus, plus, observers=[inner_ear] if inner_observed else [])

    def nested(x: Any) -> Any:
        return inner({"x": x}, {})["y"]

    async def nested_later(x: Any) -> Any:
        return (await inner.run({"x": x}, {}))["y"]

    outer = chain(plus, nested if driver == "inline" else nested_later, plus, observers=[outer_ear])
    assert drive(driver, outer, x=0)["y"] == 4
    nodes = [f"node_{what} f{index}" for index in range(3) for what in ("started", "finished")]
    assert outer_ear.said == ["run_started", *nodes, "run_finished"]
    assert inner_ear.said == (["run_started", *nodes[:4], "run_finished"] if inner_observed else [])


@driver
def test_a_graph_inside_itself(driver: str) -> None:
    ears: list[Ear] = []

    def another(run: RunInfo) -> Ear:
        ears.append(Ear())
        return ears[-1]

    def down(x: int) -> int:
        return stitched({"x": x - 1}, {})["y"] + 1 if x else 0

    stitched = chain(plus_one_less, down, plugins=[Listens(another)])
    assert drive(driver, stitched, x=3)["y"] == 1
    due = ["run_started", *[f"node_{w} f{i}" for i in (0, 1) for w in ("started", "finished")], "run_finished"]
    assert [ear.said for ear in ears] == [due] * 2


def plus_one_less(x: int) -> int:
    return max(x - 1, 0)


@driver
def test_who_observes_a_run_may_run_graphs(driver: str) -> None:
    """From inside an event: a graph that is observed by nobody, or by another."""
    ear, results = Ear(), []
    inner, watched_inner = chain(plus), chain(plus, observers=[ear])

    class Runs(Observer):
        def node_finished(self, event: Any) -> None:
            results.extend(graph({"x": 1}, {})["y"] for graph in (inner, watched_inner))

    assert drive(driver, chain(plus, plus, observers=[Runs()]), x=1)["y"] == 3
    assert results == [2, 2, 2, 2]
    assert len(ear.events) == 8


# --- observers that are in the way ---


def raising(method: str, error: Exception, calls: list[str]) -> Observer:
    def note(self: Any, event: Any) -> None:
        calls.append(method)
        raise error

    return type("Raises", (Ear,), {"__getattribute__": Observer.__getattribute__, **every(calls), method: note})()


def every(calls: list[str]) -> dict[str, Any]:
    return {name: lambda self, event, name=name: calls.append(name) for name in METHODS}


@driver
@pytest.mark.parametrize("method", ["run_started", "node_started", "node_finished", "run_finished"])
@pytest.mark.parametrize("source", ["plugin", "options"])
def test_one_that_raises_is_dropped_for_the_run_and_named_once(
    driver: str, method: str, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    bad, ear = raising(method, ValueError("not my day"), calls), Ear()
    stitched = chain(
        plus,
        plus,
        plugins=[Listens(lambda run: bad)] if source == "plugin" else [],
        observers=[ear] if source == "plugin" else [bad, ear],
    )
    due = ["run_started", *["node_ready", "node_started", "node_finished"] * 2, "run_finished"]
    for _ in range(2):  # a new run hears it again
        calls.clear()
        caplog.clear()
        ear.events.clear()
        with caplog.at_level(logging.WARNING, logger="weave"):
            assert drive(driver, stitched, x=1)["y"] == 3
        assert calls == due[: due.index(method) + 1]
        others = [name for name in due if name != "node_ready"]
        assert [name for name, _ in ear.events] == others, "the other one hears everything"
        (line,) = caplog.records
        assert (line.name, line.levelname) == ("weave", "WARNING")
        owner = "'Listens'" if source == "plugin" else "RunOptions (Raises)"
        for words in (owner, method, "not my day", ear.end.run.run):
            assert words in line.getMessage()
        assert line.exc_info


@driver
@pytest.mark.parametrize("method", ["node_failed", "node_started", "run_finished"])
def test_one_that_raises_does_not_hide_what_a_node_raised(
    driver: str, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(x: Any) -> Any:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        drive(driver, chain(fails, observers=[raising(method, ValueError("theirs"), [])]), x=1)
    assert len(caplog.records) == 1


@pytest.mark.anyio
async def test_one_that_raises_in_two_threads_at_once_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    together = threading.Barrier(2)

    class Raises(Observer):
        def node_started(self, event: Any) -> None:
            together.wait(60)
            raise ValueError("in both")

    targets = [FunctionTarget(name, plus) for name in "ab"]
    stitches = [pair for t in targets for pair in ((EXT.input("x"), t.input()), (t.output(), EXT.output(t.name)))]
    stitched = knot(*stitches, options=RunOptions(observers=[Raises()], max_workers=2), plugins=())
    out = await stitched.run({"x": 1}, {})
    assert out.captured_outputs == {"a": 2, "b": 2}
    assert len(caplog.records) == 1


@driver
def test_a_hook_that_raises(driver: str, caplog: pytest.LogCaptureFixture) -> None:
    def fails(run: RunInfo) -> Any:
        raise ValueError("nobody here")

    ear = Ear()
    stitched = chain(plus, plugins=[Listens(fails), Listens(lambda run: ear)])
    assert drive(driver, stitched, x=1)["y"] == 2
    assert len(ear.events) == 4
    (line,) = caplog.records
    for words in ("'Listens'", "weave_observer", "nobody here"):
        assert words in line.getMessage()


class AsyncOne(Observer):
    async def node_started(self, event: Any) -> None: ...

    def node_finished(self, event: Any) -> None:
        raise AssertionError("it was refused")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Ear, "an observer is an object"),
        ("me", "an observer is an object"),
        ([Ear()], "an observer is an object"),
        (AsyncOne(), "node_started is an async function"),
    ],
    ids=["class", "string", "list", "async"],
)
def test_an_answer_that_is_no_observer(answer: Any, said: str, caplog: pytest.LogCaptureFixture) -> None:
    assert chain(plus, plugins=[Listens(lambda run: answer)])({"x": 1}, {})["y"] == 2
    (line,) = caplog.records
    assert said in line.getMessage()


def test_the_logger_is_silent_until_somebody_listens(packages: Packages) -> None:
    """A warning of the logger `weave` must not end up on somebody's terminal by itself."""
    done = packages.program(
        """
        from weave import ConstantTarget, ExternalTarget, Needle, RunOptions
        from weave.plugins import Observer
        class Raises(Observer):
            def run_started(self, event):
                1 / 0
        needle = Needle().stitch(ConstantTarget("c", 1).output(), ExternalTarget().output("y"))
        print(needle.knot(options=RunOptions(observers=[Raises()]))({}, {})["y"])
        """
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


# --- what it costs ---


def frames_in(folder: str, work: Callable[[], Any]) -> int:
    """How many Python functions of a package are called, in whatever threads are started meanwhile."""
    count = itertools.count()

    def profile(frame: Any, event: str, arg: Any) -> None:
        if event == "call" and folder in frame.f_code.co_filename:
            next(count)

    before = sys.getprofile()
    sys.setprofile(profile)
    threading.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return next(count)


@driver
def test_pluggy_is_called_per_run_and_never_per_node(driver: str) -> None:
    plugins = PluginSet(Listens(lambda run: Ear()), Listens(lambda run: None))
    counts = []
    for nodes in (2, 40):
        stitched = chain(*[plus] * nodes, plugins=plugins)
        drive(driver, stitched, x=0)
        counts.append(frames_in("pluggy", lambda graph=stitched: drive(driver, graph, x=0)))
    assert counts[0] == counts[1]
    assert 0 < counts[0] <= 2 * 10, "one call a plugin, of a few frames"
    stitched = chain(plus, plugins=PluginSet(Mute()))
    assert frames_in("pluggy", lambda: drive(driver, stitched, x=0)) == 0, "who has no such hook is not asked"


class Mute:
    @hookimpl
    def weave_adapters(self) -> list[Any]:
        return []


@driver
def test_the_hook_is_asked_once_a_run(driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for nodes in (1, 30):
        plugin = Listens(lambda run: Ear())
        drive(driver, chain(*[plus] * nodes, plugins=[plugin]), x=0)
        assert len(plugin.asked) == 1


@driver
def test_a_run_that_nobody_observes_calls_nothing_of_this(driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **more: Any) -> Any:
        raise AssertionError("somebody watches")

    graphs = [chain(plus, plus, plugins=plugins) for plugins in ((), [Mute()])]
    for name in ("Watch", "watched", "watching"):
        monkeypatch.setattr(weave.stitched, name, fails)
    for name in (
        "Watch",
        "watched",
        "_watched_call",
        "_Watched",
        "_WatchedExecutor",
        "_WatchedFiring",
        "is_cancellation",
    ):
        monkeypatch.setattr(weave.engine.watch, name, fails)
    for stitched in graphs:
        where = weave.engine.watch.__file__
        assert frames_in(where, lambda graph=stitched: drive(driver, graph, x=1)) == 0
    with pytest.raises(AssertionError, match="somebody watches"):
        drive(driver, chain(plus, observers=[Ear()]), x=1)
