"""What a run costs, counted rather than timed: tasks started, hops into threads, copies of contexts, by shape of graph."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.to_thread
import pytest
import trio

from weave import ExternalTarget, FunctionTarget, Needle, RunOptions, StitchedModule

EXT = ExternalTarget()
N = 300
pytestmark = pytest.mark.anyio


async def plain(*values: int) -> int:
    return 1 + values[0]


async def suspends(*values: int) -> int:
    await anyio.lowlevel.checkpoint()
    return 1 + values[0]


def computes(*values: int) -> int:
    return 1 + values[0]


def layered(layers: int, width: int, function: Callable[[int], Any], **options: Any) -> StitchedModule:
    """Each node takes the node above it and that one's neighbour. One layer: a fan. Width 1: a chain."""
    needle = Needle()
    above: list[FunctionTarget] = []
    for layer in range(layers):
        row = [FunctionTarget(f"f{layer}.{place}", function(layer)) for place in range(width)]
        for place, target in enumerate(row):
            feeders = {place, (place + 1) % width} if above else set()
            for feeder in sorted(feeders):
                needle.stitch(above[feeder].output(), target.input())
            if not above:
                needle.stitch(EXT.input("x"), target.input())
        above = row
    for place, target in enumerate(above):
        needle.stitch(target.output(), EXT.output(f"y{place}"))
    return needle.knot(options=RunOptions(**options))


class Spawned(trio.abc.Instrument):
    def __init__(self, counts: Counter[str]) -> None:
        self.counts = counts

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.counts["tasks"] += 1


@contextmanager
def counting(backend: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    counts: Counter[str] = Counter()
    into_thread = anyio.to_thread.run_sync

    async def run_sync(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        counts["hops"] += 1

        def profiled() -> Any:  # not threading.setprofile: worker threads are kept, and have begun long ago
            sys.setprofile(profile)
            try:
                return function(*args)
            finally:
                sys.setprofile(None)

        return await into_thread(profiled, **kwargs)

    class CountedTask(asyncio.Task):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            counts["tasks"] += 1
            super().__init__(*args, **kwargs)

    def profile(frame: Any, event: str, what: Any) -> None:
        if event == "c_call" and what.__name__ in ("copy", "copy_context") and "weave" in frame.f_code.co_filename:
            counts["copies"] += 1

    instrument = Spawned(counts)
    with monkeypatch.context() as patch:
        patch.setattr(anyio.to_thread, "run_sync", run_sync)
        if backend == "asyncio":
            patch.setattr(asyncio, "Task", CountedTask)
        else:
            trio.lowlevel.add_instrument(instrument)
        sys.setprofile(profile)
        try:
            yield counts
        finally:
            sys.setprofile(None)
            if backend == "trio":
                trio.lowlevel.remove_instrument(instrument)


async def counted(stitched: StitchedModule, backend: str, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    with counting(backend, monkeypatch) as counts:
        out = await stitched.run({"x": 0}, {})
    layers = int(stitched.plan.units[-1].node[1:].split(".")[0]) + 1
    assert set(out.captured_outputs.values()) == {layers}
    return counts


@pytest.mark.parametrize("function", [plain, suspends])
async def test_a_chain_of_async_functions(
    function: Callable[..., Any], anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = await counted(layered(N, 1, lambda layer: function), anyio_backend, monkeypatch)
    assert counts["tasks"] == 1
    assert counts["hops"] == 0
    assert N <= counts["copies"] <= N + 4  # the context is looked at after each


async def test_a_chain_of_plain_functions(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = await counted(layered(N, 1, lambda layer: computes), anyio_backend, monkeypatch)
    assert counts["tasks"] == 1
    assert counts["hops"] == 1
    assert N <= counts["copies"] <= N + 4  # each node has its own


async def test_a_chain_that_changes_sides(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stitched = layered(N, 1, lambda layer: suspends if layer % 2 else computes)
    counts = await counted(stitched, anyio_backend, monkeypatch)
    assert 1 <= counts["hops"] <= N / 2  # fewer where a thread is still there when the next unit comes
    assert counts["tasks"] <= N


async def test_a_fan_of_functions_that_do_not_suspend(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = await counted(layered(1, N, lambda layer: plain), anyio_backend, monkeypatch)
    assert counts["tasks"] <= 1 + N // 100
    assert counts["hops"] == 0


async def test_a_fan_of_functions_that_suspend(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, waiting = anyio.Event(), 0

    async def waits(x: int) -> int:
        nonlocal waiting
        waiting += 1
        if waiting == N:
            gate.set()
        await gate.wait()
        return x + 1

    counts = await counted(layered(1, N, lambda layer: waits), anyio_backend, monkeypatch)
    assert counts["tasks"] == N  # all wait at once, and no task is started for nothing
    assert counts["copies"] <= 3 * N + 4


async def test_a_fan_of_plain_functions(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = await counted(layered(1, N, lambda layer: computes, max_workers=1), anyio_backend, monkeypatch)
    assert counts["hops"] == counts["tasks"] == 1
    several = await counted(layered(1, N, lambda layer: computes, max_workers=4), anyio_backend, monkeypatch)
    assert 1 <= several["hops"] == several["tasks"] <= 4


async def test_layers(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = await counted(layered(30, 10, lambda layer: plain), anyio_backend, monkeypatch)
    assert counts["tasks"] <= 4
    assert counts["hops"] == 0
    assert 300 <= counts["copies"] <= 300 + 10
    counts = await counted(layered(30, 10, lambda layer: computes, max_workers=1), anyio_backend, monkeypatch)
    assert counts["hops"] == counts["tasks"] == 1
    assert 300 <= counts["copies"] <= 300 + 10


async def test_layers_that_suspend_start_no_task_a_node(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = await counted(layered(30, 10, lambda layer: suspends), anyio_backend, monkeypatch)
    assert 10 <= counts["tasks"] <= 100  # of 300 nodes; trio shuffles who goes first


def test_a_synchronous_call_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with counting("asyncio", monkeypatch) as counts:
        layered(30, 10, lambda layer: computes)({"x": 0}, {})
    assert not counts["tasks"]
    assert not counts["hops"]
    assert not counts["copies"]


async def test_what_an_async_node_feeds_starts_while_others_wait(anyio_backend: str) -> None:
    """The worker that made it ready has nothing else to do and ends; somebody must still come for it."""
    done = anyio.Event()

    async def waits(x: int) -> int:
        await done.wait()
        return x

    def tells(x: int) -> int:
        anyio.from_thread.run_sync(done.set)
        return x

    a, b, c = FunctionTarget("a", suspends), FunctionTarget("b", tells), FunctionTarget("c", waits)
    needle = Needle().stitch(EXT.input("x"), c.input()).stitch(EXT.input("x"), a.input()).stitch(a.output(), b.input())
    stitched = needle.stitch(b.output(), EXT.output("b")).stitch(c.output(), EXT.output("c")).knot()
    with anyio.fail_after(20):
        assert (await stitched.run({"x": 1}, {}))["b"] == 2
