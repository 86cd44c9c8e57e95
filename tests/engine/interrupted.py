"""A program that is interrupted (SIGINT, as by Ctrl-C) in one way after another, and prints a line of JSON for each.

Run by `test_interrupt.py`: a KeyboardInterrupt that gets away ends this program instead of pytest.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any
from unittest.mock import patch

import anyio
import torch
import trio
from anyio.from_thread import BlockingPortal
from torch import nn

from tests.engine.stepping import Census, computing, nothing_said_later
from tests.small import EXT, appearance, knot
from weave import FunctionTarget, ModuleTarget, StitchedModule
from weave.engine import facade


class Net(nn.Module):
    """Computes until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Identity(), nn.Identity()
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.census = Census()
        self.held: Callable[[], Any] = lambda: self.go_on.wait(30)

    def forward(self, x: Any) -> Any:
        with self.census.one():
            x = self.a(x)
            self.entered.set()
            assert self.held()
            return self.b(x)


class Scene:
    def __init__(self) -> None:
        self.net = Net()
        self.before = appearance(self.net)
        m = ModuleTarget("m", self.net)
        f = FunctionTarget("f", self.waits)
        ports = [(EXT.input("x"), m.input("")), (m.output("a"), EXT.output("a")), (m.output("b"), EXT.output("y"))]
        self.inline = knot(*ports)
        self.graph = knot(*ports, (EXT.input("x"), f.input()))
        self.sleeps = True
        self.beside, self.over = threading.Event(), threading.Event()

    async def waits(self, x: Any) -> None:
        """Sleeps beside the forward, which is let go when this has been stopped (a thread can't be interrupted)."""
        self.beside.set()
        if not self.sleeps:
            return
        try:
            await anyio.sleep_forever()
        finally:
            self.net.go_on.set()

    def interrupt(self, then: Callable[[], Any] = lambda: None, *, waiting: bool = False) -> None:
        """From another thread, as soon as both nodes are under way (and the main thread waits for the portal).

        A signal that comes just as the main thread goes to sleep is handled when it next wakes, so it is woken.
        """

        def send() -> None:
            assert self.net.entered.wait(30)
            assert self.beside.wait(30)
            while waiting and not _main_thread_waits():
                self.over.wait(0.01)
            os.kill(os.getpid(), signal.SIGINT)
            then()
            while not self.over.wait(0.1):
                os.kill(os.getpid(), signal.SIGUSR1)

        threading.Thread(target=send).start()

    def call(self, stitched: StitchedModule) -> Any:
        return stitched({"x": torch.ones(1)}, {})["y"].item()


def _main_thread_waits() -> bool:
    at: Any = sys._current_frames()[threading.main_thread().ident or 0]
    while at is not None:
        if at.f_code is Future.result.__code__:
            return True
        at = at.f_back
    return False


def inline(scene: Scene) -> None:
    scene.net.held = lambda: signal.raise_signal(signal.SIGINT)
    scene.call(scene.inline)


def without_a_loop(scene: Scene) -> None:
    scene.interrupt()
    scene.call(scene.graph)


def inside_trio(scene: Scene) -> None:
    async def main() -> None:
        scene.interrupt(waiting=True)
        scene.call(scene.graph)

    trio.run(main)


def inside_trio_as_it_starts(scene: Scene) -> None:
    """The run is under way in the portal, and the main thread has not begun to wait for it."""
    start: Any = BlockingPortal.start_task_soon

    def interrupted(self: Any, *args: Any, **kwargs: Any) -> Any:
        BlockingPortal.start_task_soon = start  # type: ignore[method-assign]
        start(self, *args, **kwargs)
        assert scene.net.entered.wait(30)
        assert scene.beside.wait(30)
        signal.raise_signal(signal.SIGINT)

    async def main() -> None:
        with patch.object(BlockingPortal, "start_task_soon", interrupted):
            scene.call(scene.graph)

    trio.run(main)


def inside_asyncio(scene: Scene) -> None:
    """asyncio's own handler cancels the main task, which hears of it when the call is over."""

    async def main() -> None:
        scene.sleeps = False
        scene.interrupt(then=scene.net.go_on.set, waiting=True)
        scene.call(scene.graph)
        await asyncio.sleep(3600)

    asyncio.run(main())


def inside_asyncio_twice(scene: Scene) -> None:
    """The second one raises at once."""

    async def main() -> None:
        asyncios: Any = signal.getsignal(signal.SIGINT)
        first = threading.Event()

        def handler(*args: Any) -> None:
            first.set()
            asyncios(*args)

        signal.signal(signal.SIGINT, handler)
        scene.interrupt(then=lambda: first.wait(30) and os.kill(os.getpid(), signal.SIGINT), waiting=True)
        try:
            scene.call(scene.graph)
        finally:
            signal.signal(signal.SIGINT, asyncios)

    asyncio.run(main())


def awaited_on_asyncio(scene: Scene) -> None:
    scene.interrupt()
    asyncio.run(scene.graph.run({"x": torch.ones(1)}, {}))


def awaited_on_trio(scene: Scene) -> None:
    scene.interrupt()
    trio.run(scene.graph.run, {"x": torch.ones(1)}, {})


def streamed(scene: Scene) -> None:
    with scene.graph.stream([{"x": torch.ones(1)}] * 3, in_flight=1) as results:
        scene.interrupt(waiting=True)
        next(results)


SCENES = [
    inline,
    without_a_loop,
    inside_asyncio,
    awaited_on_asyncio,
    awaited_on_trio,
    streamed,
    inside_trio,
    inside_asyncio_twice,
    inside_trio_as_it_starts,
]


def portal_tasks() -> int:
    async def count() -> int:
        for _ in range(20):  # whoever is about to end shall have ended
            await asyncio.sleep(0)
        return len(asyncio.all_tasks())

    return facade.portal().call(count)


def play(which: Callable[[Scene], None]) -> dict[str, Any]:
    scene, there = Scene(), portal_tasks()
    raised, said = "nothing", ""
    try:
        with nothing_said_later():
            try:
                which(scene)
            except BaseException as error:
                raised = type(error).__name__
            scene.over.set()
            left = {
                "alive": scene.net.census.alive,
                "computing": len(computing()),
                "pristine": appearance(scene.net) == scene.before,
                "portal_tasks": portal_tasks() - there,
            }
    except AssertionError as error:
        said = str(error)
    scene.net.go_on.set()
    scene.sleeps, scene.net.held = False, lambda: True
    again = scene.call(scene.inline), scene.call(scene.graph)
    return {"raised": raised, "said": said, "again": again, **left}


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, lambda *_: None)
    for each in SCENES:
        with contextlib.suppress(KeyboardInterrupt):
            print(json.dumps({each.__name__: play(each)}), flush=True)
    os._exit(0)  # whatever is left running here has been reported
