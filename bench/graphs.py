"""The graphs that all contenders run: shapes, and what their nodes do.

Each is built twice by the same code: once with nodes that mix what they receive into a number that depends on every
node and on the order of its inputs (that is compared), once with the nodes that are timed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import anyio

_PRIME = 1_000_003


@dataclass(frozen=True)
class Shape:
    """Which node feeds which. `feeds[i]` are the nodes that node `i` takes its arguments from; none: the caller's `x`."""

    name: str
    feeds: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.feeds)

    @cached_property
    def consumers(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.feeds]
        for node, feeders in enumerate(self.feeds):
            for feeder in feeders:
                found[feeder].append(node)
        return found

    @cached_property
    def ends(self) -> list[int]:
        """Nodes that nobody takes anything from: what a run returns."""
        return [node for node, after in enumerate(self.consumers) if not after]


def chain(n: int) -> Shape:
    """One after another."""
    return Shape("chain", tuple((i - 1,) if i else () for i in range(n)))


def layered(n: int, width: int = 10) -> Shape:
    """Layers, each node with two inputs from the layer before: from the node at its place, and from three places on."""
    feeds: list[tuple[int, ...]] = []
    for node in range(n):
        before = (node // width - 1) * width
        feeds.append((before + node % width, before + (node + 3) % width) if node >= width else ())
    return Shape("layered", tuple(feeds))


def side_by_side(n: int) -> Shape:
    """All at once."""
    return Shape("side by side", ((),) * n)


def diamonds(n: int) -> Shape:
    """A node, then `n` times: two that take from the last one, and one that takes from both."""
    feeds: list[tuple[int, ...]] = [()]
    for i in range(n):
        feeds += [(3 * i,), (3 * i,), (3 * i + 1, 3 * i + 2)]
    return Shape("diamonds", tuple(feeds))


def scattered(n: int, reach: int = 40) -> Shape:
    """Each node with one or two inputs from any of the `reach` nodes before it: paths of all lengths, that meet."""
    dice = random.Random(1)
    feeds: list[tuple[int, ...]] = []
    for node in range(n):
        before = range(max(0, node - reach), node)
        feeds.append(tuple(dice.sample(before, min(dice.choice((1, 2)), len(before)))) if node >= reach // 4 else ())
    return Shape("random", tuple(feeds))


@dataclass(frozen=True)
class Graph:
    """A shape and a function for each node. `plain`: each returns its first argument, whatever way a peer says that."""

    shape: Shape
    functions: Sequence[Callable[..., Any]]
    waits: bool = False
    plain: bool = False


def one(a: Any) -> Any:
    return a


def two(a: Any, b: Any) -> Any:
    return a


async def one_async(a: Any) -> Any:
    return a


async def two_async(a: Any, b: Any) -> Any:
    return a


def doing_nothing(shape: Shape, *, waits: bool = False) -> Graph:
    """No-op functions, or coroutines."""
    single, double = (one_async, two_async) if waits else (one, two)
    return Graph(shape, [double if len(feeders) == 2 else single for feeders in shape.feeds], waits, plain=True)


def mixing(shape: Shape, *, waits: bool = False) -> Graph:
    """What is compared: each node makes a number of its own place and its arguments, in their order."""

    def node(place: int) -> Callable[..., Any]:
        def mix(*values: int) -> int:
            mixed = place + 1
            for value in values:
                mixed = (mixed * 31 + value) % _PRIME
            return mixed

        async def mix_async(*values: int) -> int:
            return mix(*values)

        return mix_async if waits else mix

    return Graph(shape, [node(place) for place in range(len(shape))], waits)


def sleeping(shape: Shape, seconds: Sequence[float], *, waits: bool = True) -> Graph:
    """Each node sleeps for its time and returns its first argument."""

    def node(length: float) -> Callable[..., Any]:
        async def doze(*values: Any) -> Any:
            await anyio.sleep(length)
            return values[0]

        def block(*values: Any) -> Any:
            time.sleep(length)
            return values[0]

        return doze if waits else block

    return Graph(shape, [node(length) for length in seconds], waits)


def critical_path(shape: Shape, seconds: Sequence[float]) -> float:
    """The longest way through, which nothing can beat."""
    done: list[float] = []
    for node, feeders in enumerate(shape.feeds):
        done.append(seconds[node] + max((done[feeder] for feeder in feeders), default=0.0))
    return max(done)
