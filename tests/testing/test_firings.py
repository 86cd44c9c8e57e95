"""What is written down is what happened, under both drivers; the graph itself is not changed by being watched."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
import torch
from torch import nn

from weave import ExternalTarget, FunctionTarget, ModuleTarget, Needle, RunOptions, StitchedModule
from weave.testing import Firings, Gate

EXT = ExternalTarget()
pytestmark = pytest.mark.anyio


async def double(x: Any) -> Any:
    await anyio.lowlevel.checkpoint()
    return x * 2


def chain(*functions: Any, **options: Any) -> StitchedModule:
    needle, last = Needle(), EXT.input("x")
    for place, function in enumerate(functions):
        target = FunctionTarget(f"f{place}", function)
        needle.stitch(last, target.input())
        last = target.output()
    return needle.stitch(last, EXT.output("y")).knot(**options)


async def test_sync_and_async_nodes() -> None:
    firings = Firings()
    stitched = chain(double, lambda x: x + 1)
    out = await firings.watch(stitched).run({"x": 3}, {})
    assert out["y"] == 7
    assert [str(f) for f in firings.all] == ["f0 started", "f0 finished", "f1 started", "f1 finished"]
    assert firings.all[0].thread != firings.all[2].thread
    assert "f0 started (" in str(firings)
    await stitched.run({"x": 3}, {})
    assert len(firings.all) == 4, "the original is not watched"


def test_an_inline_run() -> None:
    firings = Firings()
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    m, f = ModuleTarget("net", net), FunctionTarget("f", lambda x: x.sum())
    stitched = (
        Needle()
        .stitch(EXT.input("x"), m.input(""))
        .stitch(m.output("0"), f.input())
        .stitch(f.output(), EXT.output("y"))
        .knot(early_exit=False)
    )
    firings.watch(stitched)({"x": torch.ones(1, 2)}, {})
    assert [str(f) for f in firings.all] == [
        "net started",
        "net delivered output 0",
        "net finished",
        "f started",
        "f finished",
    ]


async def test_failed_and_cancelled() -> None:
    firings, gate = Firings(), Gate("gate")

    async def fail(x: Any) -> Any:
        await gate.until_arrived()
        raise KeyError(x)

    f = FunctionTarget("fail", fail)
    needle = Needle().stitch(EXT.input("x"), gate.input()).stitch(EXT.input("x"), f.input())
    stitched = needle.stitch(gate.output(), EXT.output("a")).stitch(f.output(), EXT.output("b")).knot()
    with pytest.raises(KeyError):
        await firings.watch(stitched).run({"x": 1}, {})
    assert firings.nodes("failed") == ["fail"]
    assert firings.nodes("cancelled") == ["gate"]
    assert firings.nodes("finished") == []


async def test_order() -> None:
    firings = Firings()
    await firings.watch(chain(double, double, options=RunOptions(max_workers=1))).run({"x": 1}, {})
    assert firings.order("f0 started", "f0 finished", "f1 started")
    assert not firings.order("f1 started", "f0 finished")
    with pytest.raises(AssertionError, match=r"'f2 started' did not happen\. What did:\nf0 started"):
        firings.order("f2 started", "f0 started")
