"""What one would write by hand for one graph."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio

from bench.graphs import Graph


def loop(graph: Graph) -> Callable[[], list[Any]]:
    """A loop over slots, ready counters, and the calls."""
    functions, feeds, consumers, ends = graph.functions, graph.shape.feeds, graph.shape.consumers, graph.shape.ends
    counts = [len(feeders) for feeders in feeds]
    first = [node for node, count in enumerate(counts) if not count]

    def run() -> list[Any]:
        left = counts.copy()
        slots: list[Any] = [None] * len(feeds)
        ready = deque(first)
        while ready:
            node = ready.popleft()
            feeders = feeds[node]
            slots[node] = functions[node](*[slots[feeder] for feeder in feeders]) if feeders else functions[node](1)
            for consumer in consumers[node]:
                left[consumer] -= 1
                if not left[consumer]:
                    ready.append(consumer)
        return [slots[node] for node in ends]

    return run


def task_group(graph: Graph) -> Callable[[], Awaitable[list[Any]]]:
    """asyncio.TaskGroup, a task a node, which awaits the tasks before it."""
    nodes = list(zip(graph.functions, graph.shape.feeds, strict=True))
    ends = graph.shape.ends

    async def run() -> list[Any]:
        tasks: list[asyncio.Task[Any]] = []

        async def node(function: Callable[..., Any], feeders: tuple[int, ...]) -> Any:
            if feeders:
                return await function(*[await tasks[feeder] for feeder in feeders])
            return await function(1)

        async with asyncio.TaskGroup() as group:
            for function, feeders in nodes:
                tasks.append(group.create_task(node(function, feeders)))
        return [tasks[end].result() for end in ends]

    return run


def anyio_group(graph: Graph) -> Callable[[], Awaitable[list[Any]]]:
    """An anyio task group, a task and an event a node."""
    return _by_events(graph, anyio.Event, anyio.create_task_group)


def nursery(graph: Graph) -> Callable[[], Awaitable[list[Any]]]:
    """A trio nursery, a task and an event a node."""
    import trio

    return _by_events(graph, trio.Event, trio.open_nursery)


def _by_events(
    graph: Graph, event: Callable[[], Any], open_group: Callable[[], AbstractAsyncContextManager[Any]]
) -> Callable[[], Awaitable[list[Any]]]:
    feeds, functions, ends = graph.shape.feeds, graph.functions, graph.shape.ends

    async def run() -> list[Any]:
        done = [event() for _ in feeds]
        slots: list[Any] = [None] * len(feeds)

        async def node(place: int) -> None:
            feeders = feeds[place]
            for feeder in feeders:
                await done[feeder].wait()
            arguments = [slots[feeder] for feeder in feeders] if feeders else [1]
            slots[place] = await functions[place](*arguments)
            done[place].set()

        async with open_group() as group:
            for place in range(len(feeds)):
                group.start_soon(node, place)
        return [slots[end] for end in ends]

    return run


def threads(graph: Graph) -> Callable[[], Awaitable[list[Any]]]:
    """A thread of a pool for each node that blocks. For graphs whose nodes all take the caller's value."""
    pool = ThreadPoolExecutor(len(graph.functions))  # asyncio's own may have fewer

    async def run() -> list[Any]:
        running = asyncio.get_running_loop()
        return await asyncio.gather(*(running.run_in_executor(pool, function, 1) for function in graph.functions))

    return run
