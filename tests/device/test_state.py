"""torch's thread-local state under `run`: it reaches whatever computes in a thread, and nothing else.

What it is compared with is torch itself: a snapshot that the caller takes where it calls.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import anyio
import anyio.to_thread
import pytest
import torch
from torch import nn

from tests.device.states import (
    PLAIN,
    STATES,
    Looks,
    hooks,
    snapshot,
    state,
)
from tests.small import EXT, flow, knot
from weave import FunctionTarget, InputArgs, ModuleTarget, StitchedModule
from weave.plugins import PluginSet
from weave.spi.executor import Firing


class Net(nn.Module):
    def __init__(self, looks: Looks) -> None:
        super().__init__()
        self.a, self.b = nn.Identity(), nn.Identity()
        self.before, self.after = looks.at("forward before a port"), looks.at("forward behind a port")

    def forward(self, x: Any) -> Any:
        return self.b(self.after(self.a(self.before(x))))


async def waits(value: Any, *more: Any) -> Any:
    await anyio.lowlevel.checkpoint()
    return value


def everywhere(looks: Looks) -> StitchedModule:
    """A graph with user code at every place that is in a thread."""
    m, f, g = ModuleTarget("m", Net(looks)), FunctionTarget("f", waits), FunctionTarget("g", looks.at("function"))
    late = FunctionTarget("late", lambda x: waits(looks.at("function that gives a coroutine")(x)))
    return knot(
        (EXT.input("x", adapter=looks.at("adapter of the caller's")), m.input("")),
        (
            m.output("a", adapter=looks.at("adapter in a forward")),
            f.input(adapter=looks.at("adapter before a coroutine")),
        ),
        (f.output(adapter=looks.at("adapter behind a coroutine")), g.input(adapter=looks.at("adapter of a function"))),
        (m.output("b"), g.input(reducer=looks.reducing("reducer of a function"))),
        (g.output(), late.input()),
        (late.output(), EXT.output("y", adapter=looks.at("adapter to the caller"))),
        (m.output(""), EXT.output("y", reducer=looks.reducing("reducer to the caller"))),
    )


PLACES = 12  # as often as `looks` is asked for one above


@pytest.mark.anyio
@pytest.mark.parametrize("name", list(STATES))
async def test_the_callers_state_is_on_wherever_something_computes(name: str) -> None:
    looks = Looks()
    stitched = everywhere(looks)
    with state(name) as callers:
        await stitched.run({"x": InputArgs(1)}, {})
        assert snapshot() == callers
    assert threading.get_ident() not in looks.threads
    assert len(looks.seen) == PLACES
    wrong = {
        (place, key): (value, callers[key])
        for place, seen in looks.seen.items()
        for key, value in seen.items()
        if value != callers[key]
    }
    assert not wrong, "what was seen, and what the caller's is"


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["no_grad", "autocast of two device types", "everything"])
async def test_in_what_an_executor_does_in_a_thread_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.plugins.test_third_party import Board, Plugin

    looks = Looks()

    class Blocks:
        async def fire(self, firing: Firing) -> None:
            firing.deliver("x", await firing.blocking(looks.at("blocking"), firing.inputs("x").args[0]))

    monkeypatch.setattr(PluginSet, "installed", lambda: PluginSet(Plugin(Blocks())))
    board: Any = Board("b")
    stitched = knot((EXT.input("x"), board.input("x")), (board.output("x"), EXT.output("y")))
    with state(name) as callers:
        await stitched.run({"x": 1}, {})
    assert looks.seen == {"blocking": callers}
    assert threading.get_ident() not in looks.threads


@pytest.mark.anyio
@pytest.mark.parametrize("name", list(STATES))
async def test_and_off_again_in_the_very_same_thread(name: str) -> None:
    looks = Looks()
    stitched = flow(looks.at("node"), looks.at("next")).with_options(max_workers=1)

    with state(name):
        await stitched.run({"x": 1}, {})
    (thread,) = looks.threads
    assert (await _idle_threads())[thread] == PLAIN
    await stitched.run({"x": 1}, {})
    assert list(looks.seen.values()) == [PLAIN] * 2


async def _idle_threads(count: int = 8) -> dict[int, Any]:
    """What anyio's threads are left with: so many at once that the one used last is among them."""
    found: dict[int, Any] = {}
    together = threading.Barrier(count)

    def look() -> None:
        found[threading.get_ident()] = snapshot()
        together.wait(30)

    async with anyio.create_task_group() as group:
        for _ in range(count):
            group.start_soon(anyio.to_thread.run_sync, look)
    return found


@pytest.mark.anyio
async def test_two_runs_at_once_in_two_states() -> None:
    """Their nodes are in two threads at the same time; the states were on where each was called, and only there."""
    both = threading.Barrier(2)
    seen: dict[str, Any] = {}
    callers: dict[str, Any] = {}

    async def run(name: str) -> None:
        def look(x: Any) -> Any:
            both.wait(30)
            seen[name] = snapshot()
            both.wait(30)
            return x

        stitched = flow(look)
        with state_until_suspended(name) as (snap, off):
            callers[name] = snap
            await first_step(stitched, off)

    async def first_step(stitched: StitchedModule, off: Callable[[], None]) -> None:
        running = stitched.run({"x": 1}, {})

        class Step:
            def __await__(self) -> Any:
                steps = running.__await__()
                value = None
                try:
                    waited = steps.send(None)
                    off()
                    while True:
                        value = yield waited
                        waited = steps.send(value)
                except StopIteration as end:
                    return end.value

        await Step()

    async with anyio.create_task_group() as group:
        group.start_soon(run, "no_grad")
        group.start_soon(run, "autocast to half")
    assert seen == callers
    assert snapshot() == PLAIN


@contextlib.contextmanager
def state_until_suspended(name: str) -> Iterator[Any]:
    """The state, and a function that takes it off: as a task should that must not leave it on while others run."""
    stack = ExitStack()
    for context in STATES[name]():
        stack.enter_context(context)
    yield snapshot(), stack.close


def test_two_loops_in_two_states() -> None:
    both = threading.Barrier(2)
    got: dict[str, Any] = {}

    def program(name: str, backend: str) -> None:
        def look(x: Any) -> Any:
            both.wait(30)
            got[name] = snapshot()
            both.wait(30)
            return x

        with state(name) as callers:
            anyio.run(flow(look).run, {"x": 1}, {}, backend=backend)
        got[name] = got[name] == callers

    threads = [
        threading.Thread(target=program, args=args) for args in (("inference_mode", "asyncio"), ("autocast", "trio"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {"inference_mode": True, "autocast": True}


@pytest.mark.anyio
async def test_hooks_of_the_caller_see_what_a_forward_saves() -> None:
    saved: list[threading.Thread] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(threading.current_thread())
        return tensor

    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    m = ModuleTarget("m", net)
    stitched = knot((EXT.input("x"), m.input("")), (m.output(""), EXT.output("y")))
    x = torch.ones(1, 2)
    with hooks(pack, lambda tensor: tensor):
        net(x).sum().backward()
        inline = len(saved)
        out = await stitched.run({"x": x}, {})
    assert len(saved) == 2 * inline > 0
    assert saved[-1] is not threading.current_thread()
    out["y"].sum().backward()
