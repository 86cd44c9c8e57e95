"""Ranks that stream for ever, until one of them is killed: the others raise. By torch.distributed, or without it (`join`)."""

from __future__ import annotations

import asyncio
import itertools
import sys
from typing import Any

import torch.distributed as dist
import trio

from tests.remote.processes.programs.chain import RANK, chain, right, x
from weave import RemoteException
from weave.remote import join

world, way = sys.argv[1:]
if world == "group":
    dist.init_process_group("gloo")
else:
    join()
graph = chain()


def items() -> Any:
    return (x(float(i)) if RANK == 0 else {} for i in itertools.count())


async def streams() -> None:
    async with graph.stream(items(), in_flight=3) as results:
        i = 0
        async for out in results:
            right(out, float(i))
            i += 1


print("begins", flush=True)
try:
    if way == "sync":
        for i in itertools.count():
            right(graph(x(float(i)), {}), float(i))
    elif way == "asyncio":
        asyncio.run(streams())
    else:
        trio.run(streams)
except RemoteException as error:
    print(f"raised {type(error).__name__}: {error}", flush=True)
