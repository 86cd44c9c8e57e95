"""Random graphs over random ranks, on wires that reorder, against a plain evaluation.

`python -m tests.remote.random_graphs 10000 [SEED]` tries so many; the tests try a few hundred.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from weave import ExternalTarget, FunctionTarget, Needle, StitchedModule
from weave.remote import LinkOptions, run_local

caller = ExternalTarget()


@dataclass
class Drawn:
    """A graph: by node, where it is, whether it is awaited, and which nodes (or, -1, the caller) feed it."""

    seed: int
    world_size: int
    ranks: list[int]
    awaited: list[bool]
    feeders: list[list[int]]
    results: list[int]
    placed: list[bool]

    def value(self, x: int) -> list[int]:
        """What the plain evaluation gives."""
        values: list[int] = []
        for node, feeders in enumerate(self.feeders):
            values.append(combine(node, [x if feeder < 0 else values[feeder] for feeder in feeders]))
        return [values[node] for node in self.results]


def combine(node: int, given: Sequence[int]) -> int:
    """What a node computes: something in which the order of the arguments counts."""
    total = node + 1
    for value in given:
        total = (total * 31 + value) % 1_000_003
    return total


def draw(seed: int) -> Drawn:
    """A graph."""
    dice = random.Random(seed)
    world_size = dice.choice((2, 2, 3, 4))
    size = dice.randint(2, 12)
    feeders = [
        [dice.randrange(-1, node) if node else -1 for _ in range(dice.choice((1, 1, 2, 3)))] for node in range(size)
    ]
    return Drawn(
        seed,
        world_size,
        [dice.randrange(world_size) for _ in range(size)],
        [dice.random() < 0.5 for _ in range(size)],
        feeders,
        sorted(dice.sample(range(size), dice.randint(1, min(3, size)))),
        [dice.random() < 0.8 for _ in range(size)],
    )


def build(drawn: Drawn, shuffle: random.Random) -> StitchedModule:
    """The graph as every rank builds it; firing is slowed down at random by a yield here and there."""

    def function(node: int) -> Any:
        if drawn.awaited[node]:

            async def later(*given: int) -> int:
                for _ in range(shuffle.choice((0, 0, 1, 3))):
                    await anyio.lowlevel.checkpoint()
                return combine(node, given)

            return later
        return lambda *given: combine(node, given)

    targets = [FunctionTarget(f"n{node}", function(node)) for node in range(len(drawn.feeders))]
    needle = Needle()
    for node, feeders in enumerate(drawn.feeders):
        for feeder in feeders:
            source = caller.input("x") if feeder < 0 else targets[feeder].output()
            needle.stitch(source, targets[node].input())
    for node in drawn.results:
        needle.stitch(targets[node].output(), caller.output(f"y{node}"))
    for node, target in enumerate(targets):
        if drawn.placed[node]:
            needle.place(target, drawn.ranks[node])
    if not needle.places:
        needle.place(targets[0], drawn.ranks[0])
    return needle.knot()


def check(drawn: Drawn, runs: int = 3) -> None:
    """Run it on all ranks: one after another, as a stream, and at once with keys; compare on rank 0."""

    def rank_main(rank: int) -> None:
        shuffle = random.Random(drawn.seed * 7 + rank)
        stitched = build(drawn, shuffle)
        backend = "trio" if (drawn.seed + rank) % 3 == 0 else "asyncio"
        wrong: list[Any] = []

        def compare(x: int, out: Any) -> None:
            if rank == 0:
                got = [out[f"y{node}"] for node in drawn.results]
                if got != drawn.value(x):
                    wrong.append((x, got, drawn.value(x)))

        async def main() -> None:
            for x in range(runs):
                compare(x, await stitched.run({"x": x}, {}))
            async with stitched.stream(({"x": x} for x in range(10, 10 + 2 * runs)), in_flight=3) as results:
                x = 10
                async for out in results:
                    compare(x, out)
                    x += 1
            keys = list(range(100, 100 + runs))
            shuffle.shuffle(keys)  # each rank begins them in an order of its own
            async with anyio.create_task_group() as group:
                for key in keys:

                    async def one(key: int = key) -> None:
                        compare(key, await stitched.with_options(run_key=key).run({"x": key}, {}))

                    group.start_soon(one)

        anyio.run(main, backend=backend)
        compare(5, stitched({"x": 5}, {}))  # a synchronous call
        assert not wrong, (drawn, wrong)

    done = threading.Event()
    raised: list[BaseException] = []

    def run() -> None:
        try:
            run_local(
                drawn.world_size,
                rank_main,
                reorder=drawn.seed,
                options=LinkOptions(timeout=60, credits=1 + drawn.seed % 2),
            )
        except BaseException as error:
            raised.append(error)
        done.set()

    threading.Thread(target=run, daemon=True).start()
    if not done.wait(60):
        raise AssertionError(f"it hangs: {drawn}")
    if raised:
        raise raised[0]


def main(count: int, first: int = 0) -> None:
    """Try so many."""
    for seed in range(first, first + count):
        check(draw(seed))
        if (seed - first) % 100 == 99:
            print(f"{seed - first + 1} graphs", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
