"""On what it ran."""

from __future__ import annotations

import os
import platform
import statistics
import time
from importlib import metadata
from typing import Any

import torch

from bench.pairing import Pace

PEERS = ("nvidia-modelopt", "nnsight", "sf-hamilton", "langgraph")


def about(pace: Pace, *, quick: bool) -> dict[str, Any]:
    """Versions, the machine's size and speed, and how it was measured. Nothing that names the machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("torch", "anyio", "trio", *PEERS)},
        "cores": cores,
        "torch_threads": torch.get_num_threads(),
        "collector": "on" if pace.collector else "off while timing, run before each round",
        "quick": quick,
        "million_additions_ms": round(yardstick() * 1e3, 1),
    }


def version(name: str) -> str | None:
    """The installed version; `None` where there is none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def yardstick() -> float:
    """Seconds for a million additions: by it, absolute figures of two machines can be compared."""
    taken = []
    for _ in range(5):
        begin = time.perf_counter()
        total = 0
        for step in range(1_000_000):
            total += step
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)
