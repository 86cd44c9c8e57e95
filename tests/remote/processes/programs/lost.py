"""Rank after rank is lost while it computes: killed, killed with a child that holds its sockets, frozen."""

from __future__ import annotations

import os
import time
from typing import Any

import torch.distributed as dist

from tests.remote.processes.programs.chain import RANK, chain, right, x
from weave import PeerLostException


def loses(victim: int, ranks: list[int]) -> None:
    def computes(value: Any) -> Any:
        if victim == RANK and value[0] < 0:
            child = os.fork() if victim == 2 else 0
            if victim != 2 or child:
                print(f"{victim} computes, child {child}.", flush=True)
            time.sleep(600)  # where it is a fork, nothing else may happen in it
            os._exit(0)
        return value + 1

    graph = chain(computes, over=[victim, *ranks])  # so that all wait for it, directly or not
    right(graph(x(), {}), ranks=len(ranks) + 1, first=victim)
    try:
        graph(x(-5.0), {})
    except PeerLostException as error:
        assert error.rank == victim, error
    else:
        raise AssertionError("nothing was lost")
    print(f"lost {victim}", flush=True)


dist.init_process_group("gloo")
for victim in (3, 2, 1):
    if victim >= RANK:
        loses(victim, list(range(victim)))
# The group's own connections to the lost ranks are broken, and it is left as it is.
