"""Section *engine*: twenty runs of one graph at the same time, on work for the processor."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import anyio
import torch
from torch import Tensor, nn

import weave
from bench.comparing import Comparison, Entry, Experiment, told
from bench.pairing import Pace
from bench.peers import sewing_kit
from bench.rows import Row, Status

SECTION = "engine"
RUNS = 20
TRIES = 10
WIDTH, BATCH = 256, 64


def experiments(pace: Pace) -> list[Experiment]:
    return [
        Experiment("20 runs at once", _how_long),
        Experiment("20 threads, right or wrong", _how_right),
    ]


def _how_long(pace: Pace) -> list[Row]:
    stitched, inputs = _graph(weave), _inputs()

    async def in_turn() -> list[Tensor]:
        return [(await stitched.run({"x": x}, {}))["y"] for x in inputs]

    async def at_once() -> list[Tensor]:
        found: list[Any] = [None] * RUNS

        async def one(place: int) -> None:
            found[place] = (await stitched.run({"x": inputs[place]}, {}))["y"]

        async with anyio.create_task_group() as group:
            for place in range(RUNS):
                group.start_soon(one, place)
        return found

    call, plain = partial(_call, stitched), _plain()
    rows_of = partial(Comparison, section=SECTION, same=_same, per=RUNS, clock="wall")
    on_a_loop = rows_of(what=f"{RUNS} runs of one graph at once, `run` on asyncio")
    in_threads = rows_of(what=f"{RUNS} calls of one graph at once, a thread each")
    loop_entries = [
        Entry("weave, one after another", lambda: in_turn, lambda: _by_hand(inputs)),
        Entry("weave, at once", lambda: at_once, target=1.2),
    ]
    thread_entries = [
        Entry("weave, one after another", lambda: lambda: [call(x) for x in inputs], lambda: _by_hand(inputs)),
        Entry("weave, at once", lambda: lambda: _in_threads(call, inputs), target=1.2),
        # What threads cost by themselves on this machine.
        Entry("plain modules, one after another", lambda: lambda: [plain(x) for x in inputs]),
        Entry("plain modules, at once", lambda: lambda: _in_threads(plain, inputs)),
    ]
    with torch.no_grad():
        rows = anyio.run(on_a_loop.run_async, loop_entries, pace.times(0.6)).rows
        return rows + in_threads.run(thread_entries, pace.times(0.8)).rows


def _how_right(pace: Pace) -> list[Row]:
    """How many of the results that came out of threads are wrong. Nothing is timed."""
    inputs = _inputs()
    tries = TRIES if pace.budget else 2
    with torch.no_grad():
        wanted = _by_hand(inputs)
        return [
            _wrong("weave", lambda: weave, inputs, wanted, tries),
            _wrong("sewing_kit", sewing_kit.load, inputs, wanted, tries),
        ]


def _wrong(peer: str, load: Callable[[], ModuleType], inputs: list[Tensor], wanted: list[Tensor], tries: int) -> Row:
    comparison = Comparison(section=SECTION, what=f"wrong among {tries * RUNS} results of {RUNS} threads and one graph")
    try:
        stitched = _graph(load())
        call = partial(_call, stitched)
        if not _same(wanted, [call(x) for x in inputs]):
            return comparison.row(peer, status="unequal", unit="wrong", note="wrong already one after another")
        found = list(itertools.chain.from_iterable(_in_threads(call, inputs) for _ in range(tries)))
    except Exception as error:
        status: Status = "missing" if isinstance(error, ImportError) else "broken"
        return comparison.row(peer, status=status, unit="wrong", note=told(error))
    raised = [one for one in found if isinstance(one, Exception)]
    wrong = sum(not _equal(one, right) for one, right in zip(found, itertools.cycle(wanted), strict=False))
    note = f"{len(raised)} of them raised, such as {told(raised[0])}" if raised else ""
    verdict: Status = ("missed" if wrong else "ok") if peer == "weave" else "measured"
    return comparison.row(
        peer, status=verdict, value=wrong, unit="wrong", target=0 if peer == "weave" else None, checked=True, note=note
    )


def _graph(api: ModuleType) -> Any:
    """Two small networks, one feeding the other, and a capture in the middle of the first."""
    first, second = _networks()
    caller, a, b = api.ExternalTarget(), api.ModuleTarget("first", first), api.ModuleTarget("second", second)
    wrap = {"adapter": api.InputArgs.from_value}
    return (
        api.Needle()
        .stitch(caller.input("x"), a.input(""))
        .stitch(a.output("2"), caller.output("middle"))
        .stitch(a.output(""), b.input("", **wrap))
        .stitch(b.output(""), caller.output("y"))
        .knot()
    )


def _networks() -> tuple[nn.Sequential, nn.Sequential]:
    torch.manual_seed(0)
    first, second = (
        nn.Sequential(*(part for _ in range(3) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU()))).eval()
        for _ in range(2)
    )
    return first, second


def _inputs() -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(BATCH, WIDTH) for _ in range(RUNS)]


def _by_hand(inputs: list[Tensor]) -> list[Tensor]:
    return [_plain()(x) for x in inputs]


def _plain() -> Callable[[Tensor], Tensor]:
    first, second = _networks()

    def call(x: Tensor) -> Tensor:
        with torch.no_grad():
            return second(first(x))

    return call


def _call(stitched: Any, x: Tensor) -> Tensor:
    with torch.no_grad():  # a thread starts with gradients on
        return stitched({"x": x}, {}).captured_outputs["y"]


def _in_threads(call: Callable[[Tensor], Tensor], inputs: list[Tensor]) -> list[Any]:
    """A thread a call, all let go together."""
    found: list[Any] = [None] * len(inputs)
    together = threading.Barrier(len(inputs))

    def one(place: int) -> None:
        together.wait()
        try:
            found[place] = call(inputs[place])
        except Exception as error:
            found[place] = error

    threads = [threading.Thread(target=one, args=(place,)) for place in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _equal(got: Any, wanted: Tensor) -> bool:
    return isinstance(got, Tensor) and torch.equal(got, wanted)


def _same(expected: list[Tensor], got: list[Any]) -> bool:
    return len(expected) == len(got) and all(_equal(one, right) for one, right in zip(got, expected, strict=True))
