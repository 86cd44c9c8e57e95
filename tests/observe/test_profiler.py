"""`torch.profiler`: nodes appear by name while one is on, and a run is as ever while none is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from weave import ExternalTarget, FunctionTarget, ModuleTarget, Needle
from weave.engine.profiled import profiling
from weave.observe import Recorder, flush, read_trace
from weave.plugins import Observer
from weave.stitched import StitchedModule

X = torch.ones(8, 8)


def profiler(*, all_threads: bool = False) -> Any:
    config = torch._C._profiler._ExperimentalConfig(profile_all_threads=all_threads)
    return profile(activities=[ProfilerActivity.CPU], experimental_config=config)


def named(p: Any, *names: str) -> dict[str, int]:
    """How often each of these is in the profile."""
    found = [event.name for event in p.events()]
    return {name: found.count(name) for name in names}


def double(x: torch.Tensor) -> torch.Tensor:
    return torch.mul(x, 2)


async def double_later(x: torch.Tensor) -> torch.Tensor:
    await anyio.lowlevel.checkpoint()
    return torch.mul(x, 2)


def graph(*functions: Any) -> StitchedModule:
    """the model, then functions called `f0`, `f1` and so on."""
    caller, needle = ExternalTarget(), Needle()
    model = ModuleTarget("the model", nn.Linear(8, 8).requires_grad_(False))
    needle.stitch(caller.input("x"), model.input(""))
    before: Any = model.output("")
    for index, function in enumerate(functions):
        target = FunctionTarget(f"f{index}", function)
        needle.stitch(before, target.input())
        before = target.output()
    return needle.stitch(before, caller.output("y")).knot()


def inside(p: Any, node: str) -> set[str]:
    """The operators that the profile has in a node."""
    return {
        child.name
        for event in p.events()
        if event.name == node
        for child in event.cpu_children
        if child.name.startswith("aten::")
    }


def test_a_synchronous_run() -> None:
    stitched = graph(double)
    with profiler() as p:
        stitched({"x": X}, {})
        stitched({"x": X}, {})
    assert named(p, "the model", "f0") == {"the model": 2, "f0": 2}
    assert inside(p, "f0") == {"aten::mul"}
    assert "aten::linear" in inside(p, "the model")


def test_while_none_is_on_a_run_has_the_plain_program() -> None:
    stitched = graph(double)
    stitched({"x": X}, {})
    assert not profiling()
    assert stitched._others == {}
    with profiler() as p:
        assert profiling()
    stitched({"x": X}, {})
    assert named(p, "the model", "f0") == {"the model": 0, "f0": 0}
    assert stitched._others == {}


@pytest.mark.anyio
async def test_awaited_nodes_on_a_loop() -> None:
    stitched = graph(double_later, double_later)
    with profiler() as p:
        await stitched.run({"x": X}, {})
    assert inside(p, "f0") == inside(p, "f1") == {"aten::mul"}


@pytest.mark.anyio
async def test_what_a_plain_function_gives_to_await() -> None:
    stitched = graph(lambda x: double_later(x))
    with profiler(all_threads=True) as p:
        await stitched.run({"x": X}, {})
    assert inside(p, "f0") == {"aten::mul"}


@pytest.mark.anyio
async def test_nodes_in_worker_threads_where_all_threads_are_profiled() -> None:
    stitched = graph(double)
    with profiler(all_threads=True) as p:
        await stitched.run({"x": X}, {})
    assert named(p, "the model", "f0") == {"the model": 1, "f0": 1}
    assert inside(p, "f0") == {"aten::mul"}


@pytest.mark.anyio
async def test_nodes_in_worker_threads_are_not_seen_otherwise() -> None:
    """torch profiles the thread that began it. What the documentation says of it holds."""
    stitched = graph(double)
    with profiler() as p:
        await stitched.run({"x": X}, {})
    assert named(p, "the model", "f0") == {"the model": 0, "f0": 0}


@pytest.mark.anyio
async def test_an_awaited_node_encloses_no_other() -> None:
    """Two nodes take turns on the loop. Each is shown only while it computes itself."""
    turns = [anyio.Event() for _ in range(4)]

    async def one(x: torch.Tensor) -> torch.Tensor:
        turns[0].set()
        await turns[1].wait()
        x = torch.add(x, 1)
        turns[2].set()
        await turns[3].wait()
        return torch.sub(x, 1)

    async def other(x: torch.Tensor) -> torch.Tensor:
        await turns[0].wait()
        x = torch.mul(x, 2)
        turns[1].set()
        await turns[2].wait()
        turns[3].set()
        return torch.div(x, 2)

    caller, needle = ExternalTarget(), Needle()
    for name, function in (("one", one), ("other", other)):
        target = FunctionTarget(name, function)
        needle.stitch(caller.input("x"), target.input()).stitch(target.output(), caller.output(name))
    stitched = needle.knot()
    with profiler() as p:
        await stitched.run({"x": X}, {})
    assert inside(p, "one") == {"aten::add", "aten::sub"}
    assert inside(p, "other") == {"aten::mul", "aten::div"}
    nested = [e for e in p.events() if e.name in ("one", "other") and e.cpu_parent is not None]
    assert [e for e in nested if e.cpu_parent.name in ("one", "other")] == []


@pytest.mark.anyio
@pytest.mark.parametrize("function", [double, double_later])
async def test_together_with_a_recorder_and_an_observer(function: Any, tmp_path: Path) -> None:
    class Nodes(Observer):
        def __init__(self) -> None:
            self.told: list[str] = []

        def node_finished(self, event: Any) -> None:
            self.told.append(event.node)

    nodes = Nodes()
    stitched = graph(function)
    for observers in ((), (nodes,)):
        with Recorder(tmp_path / f"{len(observers)}.jsonl") as recorder, profiler(all_threads=True) as p:
            await stitched.with_options(observers=observers).run({"x": X}, {})
            if function is double:
                stitched({"x": X}, {})
            flush()
        runs = read_trace([recorder.path]).runs
        assert [{node.node for node in run.nodes.values()} for run in runs] == [{"the model", "f0"}] * len(runs)
        assert named(p, "the model")["the model"] == len(runs)
        assert inside(p, "f0") == {"aten::mul"}
    assert sorted(nodes.told) == ["f0", "the model"]  # the model hands its output on before its end


@pytest.mark.anyio
async def test_an_error_and_a_cancellation_go_through() -> None:
    async def fails(x: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        raise ValueError("as it is")

    begun = anyio.Event()
    ended = []

    async def waits(x: Any) -> Any:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("waits")

    with profiler() as p:
        with pytest.raises(ValueError, match="as it is"):
            await graph(fails).run({"x": X}, {})
        async with anyio.create_task_group() as group:
            group.start_soon(graph(waits).run, {"x": X}, {})
            await begun.wait()
            group.cancel_scope.cancel()
    assert ended == ["waits"]
    assert named(p, "f0")["f0"] >= 2
