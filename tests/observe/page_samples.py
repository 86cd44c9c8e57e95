"""Traces made by hand, for the page: each small enough to say what must be seen, or so large that counting must do."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence

from weave.observe.trace import Graph, NodeTrace, OutputTrace, RunTrace, Stitch, Trace, TransferTrace, UnitInfo

US = 1_000
OUT = "output()"
HEADER = {"event": "trace.started", "format": 1, "weave": "0.1.0", "torch": "2.13.0", "began_epoch_ns": 10**18}


def trace(*runs: RunTrace, program: str = "examples/sample.py", cut: Sequence[str] = ()) -> Trace:
    return Trace([{**HEADER, "program": program}], list(runs), list(cut))


def graph(names: Sequence[tuple[str, str]], edges: Sequence[tuple[int, int]], id: str = "3f2a9c01") -> Graph:
    """Of `(name, what)` and `(producer, consumer)`, the first given something by the caller, the last giving it back."""
    stitches = [Stitch(-1, 0, "input('batch')", "input()")]
    stitches += [Stitch(a, b, OUT, f"input('{names[a][0]}')") for a, b in edges]
    stitches.append(Stitch(len(names) - 1, -1, OUT, "output('loss')"))
    return Graph(id, tuple(UnitInfo(name, what, "fire") for name, what in names), tuple(stitches))


def node(unit: int, name: str, ready: int, started: int, finished: int, by: str = "", **fields: object) -> NodeTrace:
    """Of times in microseconds."""
    made = NodeTrace(unit, name, ready * US, by, started * US, finished * US, "MainThread", "ok")
    made.outputs = [OutputTrace(OUT, finished * US, "float32[8, 16, 32]", 16384)]
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def diamond(names: Sequence[str] = ("tokens", "teacher", "student", "loss"), run: str = "0123456789ab") -> RunTrace:
    """Two branches at once; `loss` waits 40 µs for its thread after `student` gave the last of its input."""
    a, b, c, d = names
    kinds = ("function split", "module TransformerEncoder", "module Student", "function mse_loss")
    known = graph(list(zip(names, kinds, strict=True)), [(0, 1), (0, 2), (1, 3), (2, 3)])
    made = RunTrace(run, None, known, "tasks", 0, 1000 * US, "ok")
    made.nodes = {
        0: node(0, a, 0, 10, 110),
        1: node(1, b, 110, 130, 620, a, thread="worker 1"),
        2: node(2, c, 110, 150, 800, a, thread="worker 2"),
        3: node(3, d, 800, 840, 990, c),
    }
    return made


def broken() -> RunTrace:
    """A diamond in which `teacher` fails, `student` is cancelled, and `loss` never becomes ready."""
    made = diamond(run="bad000000000")
    made.nodes[1] = node(1, "teacher", 110, 130, 400, "tokens", thread="worker 1", status="failed", outputs=[])
    made.nodes[1].error_type, made.nodes[1].error = "ValueError", "the batch is empty"
    made.nodes[2] = node(2, "student", 110, 150, 410, "tokens", thread="worker 2", status="cancelled", outputs=[])
    del made.nodes[3]
    made.status, made.finished_ns = "failed", 420 * US
    made.error_type, made.error = "NodeException", "node 'teacher' failed: ValueError: the batch is empty"
    return made


def ranks() -> Trace:
    """Rank 0 sends a value to rank 1, which has waited for it; and one more run of rank 0 by itself."""
    runs = []
    for rank, (name, direction) in enumerate((("to_1", "send"), ("from_0", "receive"))):
        remote = UnitInfo(f"{name}.{direction}('x')", "remote rank", direction)
        local = [UnitInfo(half, "module Half", "fire") for half in ("first", "second")]
        units = (local[0], remote, local[1]) if rank == 0 else (remote, local[1])
        known = Graph(f"rank{rank}", units, (Stitch(0, 1, OUT, "x") if rank == 0 else Stitch(0, 1, "x", "input()"),))
        run = RunTrace(f"{rank}" * 12, rank, known, "tasks", rank * 20 * US, 900 * US, "ok")
        link = remote.node
        if rank == 0:
            run.nodes = {
                0: node(0, "first", 5, 10, 300),
                1: node(1, link, 300, 310, 330),
                2: node(2, "second", 5, 330, 700),
            }
        else:
            run.nodes = {0: node(0, link, 25, 30, 480, awaited=True), 1: node(1, "second", 480, 500, 880, link)}
        begun, ended = ((310, 420), (30, 480))[rank]
        run.transfers = [
            TransferTrace("t1", link, direction, 1 - rank, "x", begun * US, ended * US, "ok", "float32[64, 64]", 16384)
        ]
        runs.append(run)
    alone = diamond(run="abcdefabcdef")
    alone.rank, alone.started_ns = 0, 0
    return trace(*runs, alone, program="examples/two_ranks.py")


def simulated(count: int, threads: int, *, seed: int = 0, near: int = 12, awaited: float = 0.0) -> RunTrace:
    """A random graph of `count` nodes, fired by a simulated pool: what is ready first, on the thread that is free first."""
    rng = random.Random(seed)
    kinds = ("module Linear", "module LayerNorm", "function add", "module MultiheadAttention", "function softmax")
    names = [(f"layers.{i // 6}.{'qkvofn'[i % 6]}", kinds[rng.randrange(len(kinds))]) for i in range(count)]
    edges = sorted({(rng.randrange(max(0, i - near), i), i) for i in range(1, count) for _ in range(1 + i % 2)})
    run = RunTrace(f"{seed:012x}", None, graph(names, edges, f"{seed:08x}"), "tasks", 0, None, "ok")
    into: list[list[int]] = [[] for _ in range(count)]
    out_of: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        into[b].append(a)
        out_of[a].append(b)
    missing = [len(some) for some in into]
    waiting = [(0, unit, "") for unit in range(count) if not missing[unit]]
    free = [(0, thread) for thread in range(threads)]
    heapq.heapify(waiting)
    while waiting:
        ready, unit, by = heapq.heappop(waiting)
        took = int(rng.expovariate(1 / 60)) + 5
        if rng.random() < awaited:
            begin, thread, waits = ready + 2, "MainThread", True
        else:
            at, place = heapq.heappop(free)
            begin, thread, waits = max(at, ready + 2), "MainThread" if not place else f"worker {place}", False
            heapq.heappush(free, (begin + took, place))
        run.nodes[unit] = node(unit, names[unit][0], ready, begin, begin + took, by, thread=thread, awaited=waits)
        for consumer in out_of[unit]:
            missing[consumer] -= 1
            if not missing[consumer]:
                last = max(into[consumer], key=lambda unit: run.nodes[unit].finished_ns or 0)
                heapq.heappush(waiting, ((run.nodes[last].finished_ns or 0) // US, consumer, names[last][0]))
    run.finished_ns = max(some.finished_ns or 0 for some in run.nodes.values()) + 5 * US
    return run
