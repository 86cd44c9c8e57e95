"""What is there before a link was, and after it was closed: threads, sockets, files. Then a program that closes nothing."""

from __future__ import annotations

import asyncio
import os
import threading

import torch
import torch.distributed as dist

from tests.remote.processes.programs.chain import RANK, chain, right, x
from weave import StitchedModule
from weave.engine.facade import portal
from weave.remote import leave


def here() -> dict[str, list[str]]:
    """Threads (those that Python doesn't know too) and what is open."""
    files, threads = [], [thread.name for thread in threading.enumerate()]
    for number in os.listdir("/proc/self/fd"):
        try:
            files.append(os.readlink(f"/proc/self/fd/{number}").partition(":")[0])
        except FileNotFoundError:  # the directory's own
            continue
    return {
        "threads": sorted(name for name in threads if not name.startswith("AnyIO")),  # which come and go
        "others": ["not Python's"] * (len(os.listdir("/proc/self/task")) - len(threads)),
        "files": sorted(files),
    }


def work(graph: StitchedModule) -> None:
    right(graph(x(), {}))

    async def streams() -> None:
        async with graph.stream((x(float(i)) if RANK == 0 else {} for i in range(20)), in_flight=3) as results:
            i = 0
            async for out in results:
                right(out, float(i))
                i += 1

    asyncio.run(streams())


def compare(before: dict[str, list[str]]) -> None:
    after = here()
    assert after == before, (before, after)
    print("nothing left", flush=True)


dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))


async def plus_one(value: torch.Tensor) -> torch.Tensor:
    return value + 1


for function in (lambda value: value + 1, plus_one):  # what the engine keeps for good is there from here on
    alone = chain(function, over=[RANK])
    asyncio.run(alone.run(x(), {}))
portal()  # the loop that is kept for synchronous calls
dist.barrier()
before = here()

graphs = [chain(), chain()]
for graph in graphs:
    work(graph)
assert here() != before, "a link has threads and sockets"
dist.barrier()
for graph in graphs:
    graph.close()
    graph.close()
dist.barrier()
compare(before)

work(chain())  # a link anew
dist.barrier()
leave()
dist.barrier()
compare(before)

kept = [chain(), chain()]
for graph in (*kept, *kept):  # older ones again
    work(graph)
print("the end", flush=True)
