"""A tiny random Llama split over the ranks, by hand as the seed's users do it, and by places; three drivers at once."""

from __future__ import annotations

import asyncio
import copy
import os
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import trio

from tests.passage.llama import llama, tokens
from weave import (
    ExternalTarget,
    FunctionTarget,
    InputArgs,
    InputReducer,
    ModuleTarget,
    Needle,
    RemoteTarget,
    StitchedModule,
    fake_tensor,
)

torch.set_num_threads(1)
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LAYERS = 4
BLOCKS = "model.layers."
SHAPES = [(2, 7), (3, 5), (2, 7), (1, 1)]
LAST = RANK == WORLD - 1


def cut(rank: int) -> tuple[int, int]:
    """A rank's first block, and the one behind its last."""
    return rank * LAYERS // WORLD, (rank + 1) * LAYERS // WORLD


def blocks(name: str, module: Any) -> bool:
    return name.startswith(BLOCKS) and name.count(".") == 2


def keep_the_rest(acc: Any, override: Any, original: Any, index: int, every: Any) -> Any:
    return override + original.drop_args(0)


def own_part(whole: Any) -> Any:
    """The model with weights of use in this rank's blocks only."""
    model = copy.deepcopy(whole)
    first, behind = cut(RANK)
    for index, layer in enumerate(model.model.layers):
        if not first <= index < behind:
            for parameter in layer.parameters():
                parameter.fill_(float("nan"))
    return model


def by_hand(model: Any) -> StitchedModule:
    target = ModuleTarget("model", model)
    first, behind = cut(RANK)
    needle = Needle()
    if RANK > 0:
        received = RemoteTarget(peer_rank=RANK - 1).value(name="hidden", adapter=lambda x: InputArgs(x))
        needle.stitch(received, target.input(f"{BLOCKS}{first}", reducer=InputReducer(keep_the_rest)))
    if LAST:
        needle.stitch(target.output(""), ExternalTarget().output("model"))
    else:
        needle.stitch(target.output(f"{BLOCKS}{behind - 1}"), RemoteTarget(peer_rank=RANK + 1).value(name="hidden"))
    return needle.knot(capture_cache_outputs_predicate=blocks, ignore_extra_overrides=True)


def by_places(model: Any) -> StitchedModule:
    """The same graph on every rank. What the caller gets is on the last."""
    needle, caller = Needle(), ExternalTarget()
    parts = [ModuleTarget(f"part {rank}", model) for rank in range(WORLD)]
    logits = FunctionTarget("logits", lambda out: out.logits)
    for rank, part in enumerate(parts):
        needle.place(part, rank)
        if rank:
            name = f"{BLOCKS}{cut(rank)[0]}"
            before = parts[rank - 1].output(f"{BLOCKS}{cut(rank)[0] - 1}")
            needle.stitch(before, part.input(name, reducer="keep_kwargs"))
    needle.stitch(parts[-1].output(""), logits.input()).stitch(logits.output(), caller.output("logits"))
    needle.place(caller, WORLD - 1)
    return needle.knot(capture_cache_outputs_predicate=blocks)


def given(ids: torch.Tensor) -> torch.Tensor:
    """What the model is called with here: tokens on the first rank, a fake of them (a batch of one) on the others."""
    return ids if RANK == 0 else fake_tensor(1, ids.shape[1], dtype=ids.dtype, device=ids.device)


class Driver:
    """One way to run, on a thread of its own, with graphs of its own."""

    def __init__(self, way: str, whole: Any, seed: int) -> None:
        self.way = way
        self.whole = whole
        self.model = own_part(whole)
        self.graphs = [by_hand(self.model), by_places(self.model)]
        self.batches = [tokens(*shape, seed=seed + turn) for turn, shape in enumerate(SHAPES)]
        self.checked = 0
        self.error: BaseException | None = None

    def check(self, ids: torch.Tensor, out: Any) -> None:
        if LAST:
            got = out["logits"] if "logits" in out else out["model"].logits
            want = self.whole(ids).logits
            assert torch.equal(got, want), f"{self.way}: {tuple(ids.shape)} differs by {(got - want).abs().max()}"
            self.checked += 1

    def sync(self) -> None:
        for graph in self.graphs:
            for ids in self.batches:
                self.check(ids, graph({}, {}, given(ids)))

    async def on_a_loop(self) -> None:
        for graph in self.graphs:
            for ids in self.batches:
                self.check(ids, await graph.run({}, {}, given(ids)))
            async with graph.stream((({}, {}, given(ids)) for ids in self.batches), in_flight=3) as results:
                turn = 0
                async for out in results:
                    self.check(self.batches[turn], out)
                    turn += 1

    def run(self) -> None:
        runs: dict[str, Callable[[], Any]] = {
            "sync": self.sync,
            "asyncio": lambda: asyncio.run(self.on_a_loop()),
            "trio": lambda: trio.run(self.on_a_loop),
        }
        try:
            with torch.no_grad():
                runs[self.way]()
        except BaseException as error:
            self.error = error


def main() -> None:
    if WORLD > 1:
        dist.init_process_group("gloo")
    torch.set_grad_enabled(False)
    whole = llama(LAYERS)
    drivers = [Driver(way, whole, seed=100 * turn) for turn, way in enumerate(("sync", "asyncio", "trio"))]
    threads = [threading.Thread(target=driver.run, name=driver.way) for driver in drivers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for driver in drivers:
        if driver.error is not None:
            raise driver.error
        print(f"{driver.way}: {driver.checked} right", flush=True)
    if WORLD > 1:
        total = torch.ones(1)
        dist.all_reduce(total)  # the group goes on working beside ours
        assert total == WORLD


main()
