"""The checks of a transport that run graphs over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import torch

from weave.errors import RemoteException
from weave.graph.targets import FunctionTarget, RemoteTarget
from weave.plugins.plugin_set import PluginSet
from weave.remote.local import run_local
from weave.remote.options import LinkOptions
from weave.spi.records import TransportType
from weave.stitched import StitchedModule
from weave.testing.suites.base import PluginSuite, drive, expect, on_loop, within
from weave.testing.suites.graphs import EXTERNAL, Stitch, tie

RUNS = 4
LARGE = 50_000  # elements


class NodeError(Exception):
    """What a node of the suite's graphs raises."""


class GraphChecks(PluginSuite):
    """Checks of `TransportSuite`."""

    @property
    def transport(self) -> TransportType:
        """What is under test."""
        raise NotImplementedError

    @property
    def options(self) -> LinkOptions:
        """The settings that the suite's links have."""
        raise NotImplementedError

    @property
    def graph_plugins(self) -> PluginSet:
        """What the suite's graphs are tied with."""
        raise NotImplementedError

    def run_ranks(self, size: int, function: Callable[[int], Any]) -> list[Any]:
        """Call `function(rank)` for each rank of a world, in threads, with the transport; returns the results."""
        return run_local(size, function, transport=self.transport.scheme, options=self.options)

    def ring(self, rank: int, size: int, step: Callable[[int, Any], Any]) -> StitchedModule:
        """From rank 0 by all ranks in turn and back; and from rank 0 to all others at once."""
        f = FunctionTarget(f"f{rank}", lambda *given: step(rank, given))
        before, after = RemoteTarget((rank - 1) % size), RemoteTarget((rank + 1) % size)
        if rank:
            stitches: list[Stitch] = [
                (before.value(f"to {rank}"), f.input()),
                (RemoteTarget(0).value("to all"), f.input()),
                (f.output(), after.value(f"to {(rank + 1) % size}")),
            ]
        else:
            others = RemoteTarget(tuple(range(1, size)), blocking=False)
            stitches = [
                (EXTERNAL.input("x"), f.input()),
                (f.output(), after.value("to 1")),
                (EXTERNAL.input("x"), others.value("to all")),
                (before.value("to 0"), EXTERNAL.output("y")),
            ]
        return tie(stitches, plugins=self.graph_plugins)

    def test_graphs_of_two_ranks(self, driver: str) -> None:
        """Runs in turn, streams and runs at once of a graph over two ranks give what they give without."""
        self._graphs(driver, 2)

    def test_graphs_of_three_ranks(self, driver: str) -> None:
        """The same over three."""
        self._graphs(driver, 3)

    def test_a_run_that_fails(self, driver: str) -> None:
        """A node raises on one rank: the others hear of it, with the cause, and the next run is right."""

        def step(rank: int, given: Any) -> Any:
            if rank == 1 and given[0]["x"] == 1:
                raise NodeError("on purpose")
            return _step(rank, given)

        def main(rank: int) -> str:
            stitched = self.ring(rank, 3, step)
            said = ""
            for x in range(3):
                try:
                    self._check(rank, 3, x, drive(driver, stitched, {"x": _value(x)} if rank == 0 else {}, {}))
                except NodeError:
                    said = "here"
                except RemoteException as error:
                    said = f"rank {error.rank}, {error.node}, {error.kind}: {error.cause_text}"
            return said

        said = self._run(3, main)
        there = "rank 1, f1, NodeError: on purpose"
        expect(said == [there, "here", there], f"a node raised on rank 1; what the ranks heard: {said}")

    # --- what they share ---

    def _graphs(self, driver: str, size: int) -> None:
        def main(rank: int) -> None:
            stitched = self.ring(rank, size, _step)

            def given(x: int) -> dict[str, Any]:
                return {"x": _value(x)} if rank == 0 else {}

            for x in range(RUNS):
                self._check(rank, size, x, drive(driver, stitched, given(x), {}))
            if driver != "inline":

                async def at_once() -> None:
                    async with stitched.stream((given(x) for x in range(2 * RUNS)), in_flight=3) as results:
                        x = 0
                        async for out in results:
                            self._check(rank, size, x, out)
                            x += 1

                    async def one(x: int) -> None:
                        self._check(rank, size, x, await stitched.with_options(run_key=x).run(given(x), {}))

                    async with anyio.create_task_group() as group:
                        for x in range(RUNS) if rank else reversed(range(RUNS)):
                            group.start_soon(one, x)

                on_loop(driver, at_once)
            stitched.close()

        self._run(size, main)

    def _run(self, size: int, main: Callable[[int], Any]) -> list[Any]:
        return within(4 * self.limit, f"a graph over {size} ranks", lambda: self.run_ranks(size, main))

    def _check(self, rank: int, size: int, x: int, out: Any) -> None:
        if rank == 0:
            due = _step(0, (_value(x),))
            for other in range(1, size):
                due = _step(other, (due, _value(x)))
            self.is_same(out["y"], due, f"a graph over {size} ranks, with x={x}")


def _value(x: int) -> dict[str, Any]:
    large = torch.arange(LARGE) % (x + 2)
    return {"x": x, "small": torch.full((2, 1), float(x)), "large": large, "none": torch.empty(0, 3)}


def _step(rank: int, given: Any) -> dict[str, Any]:
    first, last = given[0], given[-1]
    return {"x": first["x"]} | {
        name: value * (rank + 2) + last[name] for name, value in first.items() if isinstance(value, torch.Tensor)
    }
