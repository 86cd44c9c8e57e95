"""Modes and transforms that can't go along into other threads, and calls from a thread that is not the run's."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import anyio.to_thread
import pytest
import torch

from tests.device.states import (
    MODES,
    Dispatches,
    Functions,
    Looks,
    state,
)
from tests.small import flow
from weave import StitchedModuleException
from weave.device.state import TorchState


async def waits(value: Any, *more: Any) -> Any:
    await anyio.lowlevel.checkpoint()
    return value


@pytest.mark.anyio
@pytest.mark.parametrize("name", MODES)
async def test_a_graph_without_coroutines_computes_in_the_callers_thread(name: str) -> None:
    threads: list[int] = []

    def computes(x: torch.Tensor) -> torch.Tensor:
        threads.append(threading.get_ident())
        return x + 1

    stitched = flow(computes, computes)
    mode = MODES[name]()
    with mode:
        x = torch.zeros(2)
        out = await stitched.run({"x": x}, {})
        async with stitched.stream([{"x": x}] * 2) as results:
            streamed = [got["y"] async for got in results]
    here = threading.get_ident()
    assert threads == [here] * 6
    assert [type(y) for y in streamed] == [type(out["y"])] * 2
    if name == "FakeTensorMode":
        assert type(out["y"]).__name__ == "FakeTensor"
    else:
        assert set(mode.threads) == {here}


@pytest.mark.anyio
@pytest.mark.parametrize("name", MODES)
async def test_a_graph_with_coroutines_raises_and_names_the_mode(name: str) -> None:
    ran: list[Any] = []
    stitched = flow(ran.append, waits)
    with MODES[name]():
        with pytest.raises(StitchedModuleException, match=name):
            await stitched.run({"x": 1}, {})
        async with stitched.stream([{"x": 1}]) as results:
            with pytest.raises(StitchedModuleException, match=name):
                await anext(results)
    assert not ran
    await stitched.run({"x": 1}, {})


@pytest.mark.parametrize("name", MODES)
def test_a_synchronous_call_of_one_raises_too(name: str) -> None:
    with MODES[name](), pytest.raises(StitchedModuleException, match=name):
        flow(waits)({"x": 1}, {})


def test_all_modes_are_named() -> None:
    with Functions(), Dispatches(), torch.device("meta"):
        assert TorchState().foreign == ("Functions", "Dispatches")
    assert TorchState().foreign == ()


def test_the_transforms_of_torch_func_can_not_go_along() -> None:
    """The gradient is silently zero else."""
    stitched = flow(torch.sin, waits)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return stitched({"x": x}, {})["y"].sum()  # type: ignore[no-any-return]

    with pytest.raises(StitchedModuleException, match="grad"):
        torch.func.grad(loss)(torch.zeros(3))


# --- calls through the portal ---


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["no_grad", "inference_mode", "autocast", "a device", "hooks"])
async def test_a_synchronous_call_inside_a_running_loop_has_the_callers_state(name: str) -> None:
    looks = Looks()
    stitched = flow(waits, looks.at("function"))
    with state(name) as callers:
        stitched({"x": 1}, {})
    assert looks.seen == {"function": callers}


@pytest.mark.parametrize("name", ["no_grad", "autocast"])
def test_a_stream_for_a_plain_for_has_the_callers_state(name: str) -> None:
    looks = Looks()
    with state(name) as callers, flow(waits, looks.at("function")).stream([{"x": 1}]) as results:
        next(results)
    assert looks.seen == {"function": callers}


@pytest.mark.anyio
async def test_a_mode_is_seen_through_the_portal() -> None:
    with Functions(), pytest.raises(StitchedModuleException, match="Functions"):
        flow(waits)({"x": 1}, {})
