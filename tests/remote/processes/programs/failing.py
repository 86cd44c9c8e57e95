"""Four ranks whose runs fail in every way that leaves the ranks alive. After each the next run is right."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import torch
import torch.distributed as dist
import trio

from tests.remote.processes.programs.chain import RANK, WORLD, Board, chain, right, x
from weave import FunctionTarget, Needle, OverridesException, RemoteException, RemoteTarget

WAYS: dict[str, Callable[[Any], Any]] = {"asyncio": lambda function: asyncio.run(function()), "trio": trio.run}
AT = 1  # the rank where things go wrong


def said(error: RemoteException) -> tuple[Any, ...]:
    return error.rank, error.node, error.kind, error.cause_text


def raises(expected: type[BaseException], run: Callable[[], Any]) -> Any:
    try:
        run()
    except BaseException as error:
        assert type(error) is expected, repr(error)
        return error
    raise AssertionError(f"no {expected.__name__}")


def a_node_raises() -> None:
    """Every rank hears which node, where and why: the neighbours directly, rank 3 from one that heard."""
    moments: list[float] = []

    def fails(value: Any) -> Any:
        if RANK == AT and value[0] < 0:
            moments.append(time.time())
            raise ValueError("it is negative")
        return value + 1

    graph = chain(fails)
    right(graph(x(), {}))
    for way in ("sync", *WAYS):

        def run(way: str = way) -> None:
            if way == "sync":
                graph(x(-5.0), {})
            else:
                WAYS[way](lambda: graph.run(x(-5.0), {}))

        if RANK == AT:
            assert str(raises(ValueError, run)) == "it is negative"
        else:
            error = raises(RemoteException, run)
            assert said(error) == (AT, f"f{AT}", "ValueError", "it is negative"), error
            moments.append(time.time())
        everybodys: list[Any] = [None] * WORLD
        dist.all_gather_object(everybodys, moments[-1])
        print(f"{way}: heard within {1e3 * (max(everybodys) - everybodys[AT]):.0f} ms", flush=True)
        right(graph(x(2.0), {}), 2.0)
    graph.close()


def a_run_is_refused() -> None:
    """Refused for its arguments on one rank, before anything ran: it counts as a run, and the others hear."""
    graph = chain()
    right(graph(x(), {}))
    if RANK == 0:
        raises(OverridesException, lambda: graph({**x(), "mistyped": 1}, {}))
    else:
        error = raises(RemoteException, lambda: graph({}, {}))
        assert (error.rank, error.kind) == (0, "OverridesException"), error
    right(graph(x(3.0), {}), 3.0)
    graph.close()


def a_receive_is_cancelled() -> None:
    """Rank 0 gives up while it waits for y, and nobody waits for it any more."""
    board = Board()

    def computes(value: Any) -> Any:
        if RANK == AT and value[0] < 0:
            board.say(f"{way} computes")
            board.heard(f"{way} cancelled")
        return value + 1

    graph = chain(computes)

    async def cancelled() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(graph.run, x(-5.0), {})
            await anyio.to_thread.run_sync(board.heard, f"{way} computes")
            group.cancel_scope.cancel()
        board.say(f"{way} cancelled")

    for way, loop in WAYS.items():
        if RANK == 0:
            loop(cancelled)
        else:
            error = raises(RemoteException, lambda loop=loop: loop(lambda: graph.run({}, {})))
            assert error.rank == 0, error
            assert "was cancelled" in str(error), error
        right(graph(x(4.0), {}), 4.0)
    graph.close()


def one_of_two_fails() -> None:
    """Two runs of one graph at once: one fails while the other waits, which then is right."""
    failed: anyio.Event

    async def computes(value: Any) -> Any:
        if RANK == AT:
            if value[0] < 0:
                raise ValueError("it is negative")
            await failed.wait()
        return value + 1

    graph = chain(computes)

    async def bad() -> None:
        try:
            await graph.with_options(run_key="bad").run(x(-5.0), {})
        except (ValueError, RemoteException):
            failed.set()

    async def good() -> None:
        right(await graph.with_options(run_key="good").run(x(6.0), {}), 6.0)

    async def both() -> None:
        nonlocal failed
        failed = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(good)
            group.start_soon(bad)
        assert failed.is_set()

    for loop in WAYS.values():
        loop(both)
    graph.close()


def a_group_counts_its_own_ranks() -> None:
    """`peer_rank` counts in the process group: of ranks 1 and 3, 3 is 1."""
    group = dist.new_group([1, 3])
    if RANK not in (1, 3):
        return
    own, needle = dist.get_rank(group), Needle()
    peer, kept = RemoteTarget(1 - own, process_group=group), []
    start = FunctionTarget("start", lambda: torch.tensor([float(RANK)]))
    end = FunctionTarget("end", kept.append)
    needle.stitch(start.output(), peer.value(f"from {own}")).stitch(peer.value(f"from {1 - own}"), end.input())
    graph = needle.knot()
    graph({}, {})
    assert kept == [torch.tensor([float(4 - RANK)])]
    graph.close()


def the_group_goes_on() -> None:
    """Barriers, objects and sums of the same gloo group while values stream beside them."""
    graph = chain()
    done = threading.Event()
    sums = 0

    def streams() -> None:
        with graph.stream((x(float(i)) if RANK == 0 else {} for i in range(100)), in_flight=3) as results:
            for i, out in enumerate(results):
                right(out, float(i))
        done.set()

    thread = threading.Thread(target=streams)
    thread.start()
    for turn in range(30):
        objects: list[Any] = [f"turn {turn}" if RANK == 0 else None]
        dist.broadcast_object_list(objects)
        total = torch.ones(2)
        dist.all_reduce(total)
        dist.barrier()
        assert objects == [f"turn {turn}"]
        sums += int(total[0] == WORLD)
    thread.join()
    assert done.is_set()
    assert sums == 30
    graph.close()


dist.init_process_group("gloo")
for scenario in (
    a_node_raises,
    a_run_is_refused,
    a_receive_is_cancelled,
    one_of_two_fails,
    a_group_counts_its_own_ranks,
    the_group_goes_on,
):
    if len(sys.argv) < 2 or scenario.__name__ in sys.argv:
        scenario()
        dist.barrier()
        print(f"passed {scenario.__name__}", flush=True)
