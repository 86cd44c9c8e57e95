"""A chain of 100 000 functions runs without recursion: sync, async, and where tasks are started eagerly."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from weave import ExternalTarget, FunctionTarget, Needle, StitchedModule

EXT = ExternalTarget()
N = 100_000


async def plain(x: int) -> int:
    return x + 1


async def suspends(x: int) -> int:
    await anyio.lowlevel.checkpoint()
    return x + 1


def computes(x: int) -> int:
    return x + 1


@functools.cache  # to tie 100 000 stitches takes longer than to run them
def chain(size: int, *functions: Callable[[int], Any]) -> StitchedModule:
    needle, last = Needle(), EXT.input("x")
    for place in range(size):
        target = FunctionTarget(f"f{place}", functions[place % len(functions)])
        needle.stitch(last, target.input())
        last = target.output()
    return needle.stitch(last, EXT.output("y")).knot()


async def length(stitched: StitchedModule) -> Any:
    return (await stitched.run({"x": 0}, {}))["y"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("function", [computes, plain, suspends])
def test_by_run(backend: str, function: Callable[[int], Any]) -> None:
    assert anyio.run(length, chain(N, function), backend=backend) == N


@pytest.mark.parametrize("function", [computes, plain])
def test_by_a_synchronous_call(function: Callable[[int], Any]) -> None:
    assert chain(N, function)({"x": 0}, {})["y"] == N


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_threads_and_the_loop_by_turns(backend: str) -> None:
    assert anyio.run(length, chain(3000, computes, suspends), backend=backend) == 3000


if hasattr(asyncio, "eager_task_factory"):  # Python 3.12 on; before that a loop can't start tasks eagerly

    @pytest.mark.parametrize("functions", [(computes,), (plain,), (suspends,)])
    def test_under_an_eager_task_factory(functions: Any) -> None:
        async def eagerly() -> Any:
            asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
            return await length(chain(N, *functions))

        assert asyncio.run(eagerly()) == N


def test_a_wide_graph_starts_tasks_beside_not_inside_each_other() -> None:
    """Nodes that make several others ready would nest their workers' frames, if those ran where they are started."""
    size = 3000
    needle, last = Needle(), EXT.input("x")
    for place in range(size):
        left, right = FunctionTarget(f"l{place}", suspends), FunctionTarget(f"r{place}", suspends)
        needle.stitch(last, left.input()).stitch(last, right.input()).stitch(right.output(), EXT.output(f"y{place}"))
        last = left.output()
    stitched = needle.stitch(last, EXT.output("end")).knot()

    async def run() -> Any:
        if hasattr(asyncio, "eager_task_factory"):
            asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        return await length_of(stitched)

    async def length_of(stitched: StitchedModule) -> Any:
        return (await stitched.run({"x": 0}, {}))["end"]

    assert asyncio.run(run()) == size
