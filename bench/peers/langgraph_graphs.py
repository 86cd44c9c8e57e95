"""LangGraph: a StateGraph with a key of the state for each node."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any, TypedDict

from bench.graphs import Graph


def call(graph: Graph) -> Callable[[], list[Any]]:
    """`invoke`."""
    compiled, given, config, keys = state_graph(graph).compile(), {"x": 1}, _config(graph), _keys(graph)

    def run() -> list[Any]:
        out = compiled.invoke(given, config)
        return [out[key] for key in keys]

    return run


def run(graph: Graph) -> Callable[[], Awaitable[list[Any]]]:
    """`ainvoke`."""
    compiled, given, config, keys = state_graph(graph).compile(), {"x": 1}, _config(graph), _keys(graph)

    async def once() -> list[Any]:
        out = await compiled.ainvoke(given, config)
        return [out[key] for key in keys]

    return once


def invoker(graph: Graph) -> Callable[[Any], Any]:
    """Runs a compiled graph of that shape."""
    config = _config(graph)
    return lambda compiled: compiled.invoke({"x": 1}, config)


def state_graph(graph: Graph) -> Any:
    """The graph, not yet compiled."""
    os.environ.setdefault("LANGSMITH_TRACING", "false")
    from langgraph.graph import END, START, StateGraph

    shape = graph.shape
    state = TypedDict("state", {"x": int, **{f"v{place}": int for place in range(len(shape))}})  # type: ignore[misc]
    made = StateGraph(state)
    for place, (function, feeders) in enumerate(zip(graph.functions, shape.feeds, strict=True)):
        made.add_node(f"n{place}", _node(function, place, feeders, graph.waits))
        if len(feeders) > 1:
            made.add_edge([f"n{feeder}" for feeder in feeders], f"n{place}")  # waits for all of them
        else:
            made.add_edge(f"n{feeders[0]}" if feeders else START, f"n{place}")
    for end in shape.ends:
        made.add_edge(f"n{end}", END)
    return made


def _node(function: Callable[..., Any], place: int, feeders: tuple[int, ...], waits: bool) -> Callable[..., Any]:
    wrote, reads = f"v{place}", [f"v{feeder}" for feeder in feeders] or ["x"]

    def node(state: dict[str, Any]) -> dict[str, Any]:
        return {wrote: function(*[state[key] for key in reads])}

    async def node_async(state: dict[str, Any]) -> dict[str, Any]:
        return {wrote: await function(*[state[key] for key in reads])}

    return node_async if waits else node


def _keys(graph: Graph) -> list[str]:
    return [f"v{end}" for end in graph.shape.ends]


def _config(graph: Graph) -> Any:
    return {"recursion_limit": len(graph.shape) + 10}  # its word for the most steps of a run
