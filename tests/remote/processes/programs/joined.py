"""Ranks without torch.distributed, which meet where the environment says."""

from __future__ import annotations

import torch.distributed as dist

from tests.remote.processes.programs.chain import RANK, WORLD, chain, right, x
from weave.remote import join, leave

world = join()
assert (world.rank, world.world_size) == (RANK, WORLD)
assert not dist.is_initialized()
graph = chain()
for i in range(3):
    right(graph(x(float(i)), {}), float(i))
graph.close()
leave()
print("right", flush=True)
