"""Hamilton (sf-hamilton): functions whose parameters name what feeds them."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

from bench.graphs import Graph

_names = itertools.count()


def call(graph: Graph) -> Callable[[], list[Any]]:
    """A driver's `execute`."""
    built = driver(graph)
    wanted = _wanted(graph)

    def run() -> list[Any]:
        out = built.execute(wanted, inputs={"x": 1})
        return [out[name] for name in wanted]

    return run


def run(graph: Graph) -> Callable[[], Awaitable[list[Any]]]:
    """The async driver's `execute`. It is built at the first call, which is not a timed one: building it awaits."""
    module = _module(graph)
    wanted = _wanted(graph)
    kept: list[Any] = []

    async def once() -> list[Any]:
        if not kept:
            from hamilton import async_driver

            kept.append(await async_driver.Builder().with_modules(module).build())
        out = await kept[0].execute(wanted, inputs={"x": 1})
        return [out[name] for name in wanted]

    return once


def driver(graph: Graph) -> Any:
    """The graph, ready to run."""
    module = _module(graph)
    from hamilton import driver

    return driver.Builder().with_modules(module).build()


def builder(graph: Graph) -> Callable[[], Any]:
    """Makes the driver; the functions are there already."""
    module = _module(graph)
    from hamilton import driver

    return lambda: driver.Builder().with_modules(module).build()


def _wanted(graph: Graph) -> list[str]:
    return [f"n{end}" for end in graph.shape.ends]


def _module(graph: Graph) -> ModuleType:
    os.environ.setdefault("HAMILTON_TELEMETRY_ENABLED", "false")
    from hamilton import ad_hoc_utils

    # It logs a page for each failure, before it raises it.
    logging.getLogger("hamilton").setLevel(logging.CRITICAL + 1)
    made = []
    for place, (function, feeders) in enumerate(zip(graph.functions, graph.shape.feeds, strict=True)):
        parameters = [f"n{feeder}" for feeder in feeders] or ["x"]
        body = parameters[0] if graph.plain else f"{'await ' if graph.waits else ''}call({', '.join(parameters)})"
        declared = ", ".join(f"{parameter}: int" for parameter in parameters)
        source = f"{'async ' if graph.waits else ''}def n{place}({declared}) -> int:\n    return {body}\n"
        space: dict[str, Any] = {"call": function}
        exec(source, space)
        made.append(space[f"n{place}"])
    return ad_hoc_utils.create_temporary_module(*made, module_name=f"bench_graph_{next(_names)}")
