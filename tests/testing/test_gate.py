"""A gate holds its value until it is opened, in a task or in a thread."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from weave import ExternalTarget, FunctionTarget, Needle, StitchedModule
from weave.testing import Firings, Gate

EXT = ExternalTarget()
pytestmark = pytest.mark.anyio


def graph(gate: Gate, after: Any = lambda x: x + 1) -> StitchedModule:
    f = FunctionTarget("after", after)
    return (
        Needle()
        .stitch(EXT.input("x"), gate.input())
        .stitch(gate.output(), f.input())
        .stitch(f.output(), EXT.output("y"))
        .knot()
    )


@pytest.mark.parametrize("threaded", [False, True])
async def test_nothing_passes_before_it_is_opened(threaded: bool) -> None:
    gate, firings, got = Gate("gate", threaded=threaded), Firings(), []
    stitched = firings.watch(graph(gate))

    async def run() -> None:
        got.append((await stitched.run({"x": 1}, {}))["y"])

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await gate.until_arrived()
        assert firings.nodes("started") == ["gate"]
        assert firings.nodes("finished") == []
        gate.open()
    assert got == [2]
    assert firings.order("gate started", "gate finished", "after started")
    assert (await stitched.run({"x": 5}, {}))["y"] == 6  # it stays open
    assert gate.arrived == 2


@pytest.mark.parametrize("threaded", [False, True])
async def test_it_can_fail(threaded: bool) -> None:
    gate = Gate("gate", threaded=threaded)
    gate.fail(KeyError("no"))
    with pytest.raises(KeyError) as caught:
        await graph(gate).run({"x": 1}, {})
    assert any("'gate'" in note for note in caught.value.__notes__)


async def test_a_waiting_one_is_cancelled() -> None:
    gate = Gate()
    async with anyio.create_task_group() as group:
        group.start_soon(graph(gate).run, {"x": 1}, {})
        await gate.until_arrived()
        group.cancel_scope.cancel()
    assert gate.arrived == 1


@pytest.mark.parametrize("threaded", [False, True])
async def test_the_limit(threaded: bool) -> None:
    gate = Gate("gate", threaded=threaded, limit=0)
    with pytest.raises(AssertionError, match="'gate' was not opened within 0 s"):
        await graph(gate).run({"x": 1}, {})
    with pytest.raises(AssertionError, match="1 of 2 values arrived within 0 s"):
        await gate.until_arrived(2)


def test_under_a_synchronous_call() -> None:
    gate, got = Gate(threaded=True), []
    thread = threading.Thread(target=lambda: got.append(graph(gate)({"x": 1}, {})["y"]))
    thread.start()
    gate.wait_arrived()
    assert got == []
    gate.open()
    thread.join()
    assert got == [2]
