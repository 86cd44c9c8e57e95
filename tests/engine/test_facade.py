"""A synchronous call of an asynchronous graph, with and without a running loop."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
from typing import Any

import anyio
import pytest
import trio

from weave import ExternalTarget, FunctionTarget, Needle, StitchedModule, StitchedModuleException

EXT = ExternalTarget()
WHO: contextvars.ContextVar[str] = contextvars.ContextVar("WHO", default="nobody")


def graph(function: Any) -> StitchedModule:
    f = FunctionTarget("f", function)
    return Needle().stitch(EXT.input("x"), f.input()).stitch(f.output(), EXT.output("y")).knot()


async def asks(x: int) -> tuple[int, str]:
    await anyio.lowlevel.checkpoint()
    return x, WHO.get()


def test_without_a_loop_and_inside_one() -> None:
    stitched = graph(asks)
    WHO.set("caller")
    assert stitched({"x": 1}, {})["y"] == (1, "caller")

    async def inside() -> Any:
        return stitched({"x": 2}, {})["y"]

    assert asyncio.run(inside()) == (2, "caller")
    assert trio.run(inside) == (2, "caller")


def test_a_call_that_would_wait_for_itself_is_refused() -> None:
    inner = graph(asks)

    async def outer(x: int) -> Any:
        return inner({"x": x}, {})["y"]

    stitched = graph(outer)

    async def inside() -> Any:
        return stitched({"x": 1}, {})["y"]

    with pytest.raises(StitchedModuleException, match="await"):
        asyncio.run(inside())
    assert stitched({"x": 3}, {})["y"][0] == 3, "with a loop of its own it is no deadlock"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_synchronous_call_in_a_node_of_an_asynchronous_run(backend: str) -> None:
    inner = graph(asks)
    stitched = graph(lambda x: inner({"x": x}, {})["y"])
    assert anyio.run(stitched.run, {"x": 3}, {}, backend=backend)["y"][0] == 3


def test_an_error_arrives_as_it_is() -> None:
    async def bad(x: int) -> None:
        raise ValueError("mine")

    async def inside() -> None:
        graph(bad)({"x": 1}, {})

    with pytest.raises(ValueError, match="mine"):
        graph(bad)({"x": 1}, {})
    with pytest.raises(ValueError, match="mine"):
        asyncio.run(inside())


def test_the_kept_thread_lets_a_program_end() -> None:
    program = """
import asyncio
from weave import ExternalTarget, FunctionTarget, Needle
async def f(x): return x
t = FunctionTarget("f", f)
s = Needle().stitch(ExternalTarget().input("x"), t.input()).stitch(t.output(), ExternalTarget().output("y")).knot()
async def main(): print(s({"x": 1}, {})["y"])
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
