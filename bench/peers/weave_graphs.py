"""weave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from bench.graphs import Graph
from weave import ExternalTarget, FunctionTarget, Needle, RunOptions, StitchedModule


def needle(graph: Graph) -> Needle:
    """The graph, not yet tied."""
    caller, sewn = ExternalTarget(), Needle()
    targets = [FunctionTarget(f"n{place}", function) for place, function in enumerate(graph.functions)]
    for target, feeders in zip(targets, graph.shape.feeds, strict=True):
        for feeder in feeders:
            sewn.stitch(targets[feeder].output(), target.input())
        if not feeders:
            sewn.stitch(caller.input("x"), target.input())
    for end in graph.shape.ends:
        sewn.stitch(targets[end].output(), caller.output(f"n{end}"))
    return sewn


def knot(graph: Graph, **options: Any) -> StitchedModule:
    return needle(graph).knot(options=RunOptions(**options))


def call(graph: Graph) -> Callable[[], list[Any]]:
    """A synchronous call."""
    stitched, names = knot(graph), [f"n{end}" for end in graph.shape.ends]

    def run() -> list[Any]:
        out = stitched({"x": 1}, {}).captured_outputs
        return [out[name] for name in names]

    return run


def run(graph: Graph, **options: Any) -> Callable[[], Awaitable[list[Any]]]:
    """A run on the running loop."""
    stitched, names = knot(graph, **options), [f"n{end}" for end in graph.shape.ends]

    async def once() -> list[Any]:
        out = (await stitched.run({"x": 1}, {})).captured_outputs
        return [out[name] for name in names]

    return once
