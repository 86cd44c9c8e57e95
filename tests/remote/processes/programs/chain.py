"""A chain of functions over all ranks and back to rank 0, and words between ranks that go beside weave."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from weave import ExternalTarget, FunctionTarget, Needle, StitchedModule

torch.set_num_threads(1)
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def chain(
    function: Callable[[Any], Any] = lambda x: x + 1, over: list[int] | None = None, **options: Any
) -> StitchedModule:
    """`f0` on the first rank is given x, and gives to `f1` on the next; the first gets y. Each is `function`."""
    ranks = list(range(WORLD)) if over is None else over
    needle, caller = Needle(), ExternalTarget()
    place = caller.input("x")
    for rank in ranks:
        target = FunctionTarget(f"f{rank}", function)
        needle.place(target, rank).stitch(place, target.input())
        place = target.output()
    needle.stitch(place, caller.output("y")).place(caller, ranks[0])
    return needle.knot(**options)


def x(number: float = 0.0) -> dict[str, Any]:
    return {"x": torch.full((3,), number)}


def right(out: Any, number: float = 0.0, ranks: int = WORLD, first: int = 0) -> None:
    """The first rank has what comes of x."""
    if first == RANK:
        assert torch.equal(out["y"], torch.full((3,), number + ranks)), out


class Board:
    """What a rank says, the others can wait for. Waiting is for worker threads."""

    def __init__(self) -> None:
        self._store = dist.PrefixStore("the test's board", dist.distributed_c10d._get_default_store().clone())

    def say(self, word: str) -> None:
        self._store.set(word, "said")

    def heard(self, word: str) -> None:
        self._store.get(word)
