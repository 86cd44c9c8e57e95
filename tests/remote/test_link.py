"""Graphs over ranks: the handshake, which run is which, credits, and all that a remote target can be stitched to."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import anyio
import pytest
import torch

from tests.remote.linked import EXT, LIMIT, Flags, Transfers, chain, given, knot, on_ranks, one_way, watched
from weave import (
    ConstantTarget,
    FunctionTarget,
    GraphMismatchException,
    InputArgs,
    KnotException,
    OverridesException,
    RemoteException,
    RemoteTarget,
    StitchedModuleException,
)
from weave.remote import LinkOptions
from weave.remote.world import here

BACKENDS = ["asyncio", "trio"]
both = pytest.mark.parametrize("backend", BACKENDS)


def plus_one(x: Any) -> Any:
    return x + 1


# --- the handshake ---


@both
def test_the_order_of_stitching_does_not_matter(backend: str) -> None:
    keys = ["a", "b", "c", "d"]

    async def main(rank: int) -> Any:
        peer = RemoteTarget(1 - rank)
        order = keys if rank == 0 else keys[::-1]
        if rank == 0:
            stitches = [(EXT.output(key), peer.value(key)) for key in order]
        else:
            stitches = [(peer.value(key), EXT.output(key)) for key in order]
        out = await knot(*stitches).run({}, {key: key.upper() for key in keys} if rank == 0 else {})
        return dict(out.captured_outputs)

    assert on_ranks(2, main, backend)[1] == {key: key.upper() for key in keys}


@both
def test_a_mismatch_raises_on_both_and_lists_the_edges(backend: str) -> None:
    async def main(rank: int) -> Any:
        peer = RemoteTarget(1 - rank)
        if rank == 0:
            stitched = knot((EXT.output("x"), peer.value("a")), (EXT.output("x"), peer.value("shared")))
        else:
            stitched = knot((peer.value("b"), EXT.output("y")), (peer.value("shared"), EXT.output("z")))
        with pytest.raises(GraphMismatchException) as raised:
            await stitched.run({}, given(rank, 1))
        return str(raised.value), raised.value.edges

    for said, edges in on_ranks(2, main, backend):
        assert "only rank 0 has 'a' from rank 0 to rank 1" in said
        assert "only rank 1 has 'b' from rank 0 to rank 1" in said
        assert "'shared'" not in said
        assert edges == ("'a' from rank 0 to rank 1", "'b' from rank 0 to rank 1")


@both
def test_a_graph_more_on_one_rank_does_not_shift_the_count(backend: str) -> None:
    async def main(rank: int) -> Any:
        if rank == 0:
            knot((EXT.output("x"), EXT.output("y")))
        if rank != 1:
            peer = RemoteTarget(2 - rank)
            more = [(EXT.output("x"), peer.value("k")), (peer.value("k"), EXT.output("y"))]
            beside = knot(*more)
        stitched = one_way(rank) if rank < 2 else None
        out = [None, None]
        if rank != 1:
            out[0] = (await beside.run({}, {"x": rank}))["y"]
        if stitched is not None:
            ran = await stitched.run(given(rank, 1), {})
            out[1] = ran["y"] if rank == 1 else None
        return out

    assert on_ranks(3, main, backend) == [[2, None], [None, 3], [0, None]]


@both
def test_named_graphs_are_tied_in_any_order(backend: str) -> None:
    async def main(rank: int) -> Any:
        names = ["one", "two", "three"][:: 1 if rank == 0 else -1]
        graphs = {name: one_way(rank, name=name) for name in names}
        return [(await graphs[name].run(given(rank, i), {})).captured_outputs for i, name in enumerate(sorted(names))]

    assert on_ranks(2, main, backend)[1] == [{"y": 2}, {"y": 3}, {"y": 4}]


def test_one_key_twice_in_one_direction_is_refused_at_the_knot() -> None:
    with pytest.raises(KnotException, match=r"two RemoteTargets .* under the key 'h' with rank 1"):
        knot((EXT.output("x"), RemoteTarget(1).value("h")), (EXT.output("z"), RemoteTarget(1).value("h")))
    with pytest.raises(KnotException, match=r"two RemoteTargets .* under the key 'h' with rank 1"):
        knot((RemoteTarget(1).value("h"), EXT.output("x")), (RemoteTarget([1]).value("h"), EXT.output("y")))
    knot((EXT.output("x"), RemoteTarget(1).value("h")), (RemoteTarget(1).value("h"), EXT.output("y")))


@both
def test_settings_that_differ_are_named_on_both(backend: str) -> None:
    async def main(rank: int) -> str:
        world = here.get()
        assert world is not None
        world.options = world._meeting.options = LinkOptions(timeout=LIMIT, credits=2 + rank)  # type: ignore[misc]
        with pytest.raises(GraphMismatchException) as raised:
            await one_way(rank).run(given(rank, 1), {})
        return str(raised.value)

    said = on_ranks(2, main, backend)
    assert "credits: 2 here, 3 there" in said[0]
    assert "credits: 3 here, 2 there" in said[1]


@both
@pytest.mark.parametrize("by", ["link", "target"])
def test_waiting_for_a_peer_is_limited(by: str, backend: str) -> None:
    async def main(rank: int) -> Any:
        if rank == 1:
            return None
        there = RemoteTarget(1, timeout=0.05 if by == "target" else None)
        stitched = knot((EXT.output("x"), there.value("h")))
        with pytest.raises(RemoteException, match=r"rank 0 waited 0.05 s for rank 1 .*'h'") as raised:
            await stitched.run({}, {"x": 1})
        assert raised.value.rank == 1

    on_ranks(2, main, backend, LinkOptions(timeout=LIMIT if by == "target" else 0.05))


def test_a_peer_that_is_not_there_is_refused_at_the_knot() -> None:
    async def main(rank: int) -> None:
        for peer, said in ((5, "there are 2"), (rank, "stitch the ports directly")):
            with pytest.raises(KnotException, match=said):
                knot((EXT.output("x"), RemoteTarget(peer).value("h")))

    on_ranks(2, main, "asyncio")


# --- which run ---


@both
def test_a_run_that_one_rank_refuses_is_heard_and_the_next_is_right(backend: str) -> None:
    async def main(rank: int) -> Any:
        stitched = one_way(rank)
        if rank == 0:
            with pytest.raises(OverridesException):
                await stitched.run({"x": 1, "typo": 2}, {})
            await stitched.run({"x": 10}, {})
            return None
        with pytest.raises(RemoteException) as raised:
            await stitched.run({}, {})
        assert (raised.value.rank, raised.value.kind) == (0, "OverridesException")
        assert "typo" in str(raised.value)
        return (await stitched.run({}, {}))["y"]

    assert on_ranks(2, main, backend)[1] == 12


@both
def test_overlapping_runs_without_a_key_raise(backend: str) -> None:
    flags = Flags()

    async def main(rank: int) -> Any:
        async def held(x: int) -> int:
            flags.say("in it")
            await flags.until("refused")
            return x + 1

        stitched = one_way(rank, held if rank == 0 else None)
        out: list[Any] = []

        async def first() -> None:
            out.append(await stitched.run(given(rank, 1), {}))

        async with anyio.create_task_group() as group:
            group.start_soon(first)
            if rank == 0:
                await flags.until("in it")
                with pytest.raises(StitchedModuleException, match=r"run 1 .* while run 0 is under way.*run_key"):
                    await stitched.run({"x": 5}, {})
                flags.say("refused")
        if rank == 1:
            with pytest.raises(RemoteException, match=r"rank 0 failed .* in run 1 of the graph"):
                await stitched.run({}, {})
            return out[0]["y"]
        return None

    # The refused run counts: it was the second on rank 0, and rank 1 hears that.
    assert on_ranks(2, main, backend)[1] == 3


@both
@pytest.mark.parametrize("credits", [1, 2])
def test_keyed_runs_in_opposite_order_do_not_wait_for_each_other(credits: int, backend: str) -> None:
    async def main(rank: int) -> Any:
        """One at a time, rank 1 in the opposite order: the credits are all spent on what it wants last."""
        stitched = one_way(rank, blocking=False)
        keys = range(8)
        out = {}

        async def one(key: int) -> None:
            out[key] = await stitched.with_options(run_key=f"k{key}").run(given(rank, key * 10), {})

        if rank == 0:
            async with anyio.create_task_group() as group:
                for key in keys:
                    group.start_soon(one, key)
            return None
        for key in reversed(keys):
            await one(key)
        return {key: ran["y"] for key, ran in out.items()}

    got = on_ranks(2, main, backend, LinkOptions(timeout=LIMIT, credits=credits))[1]
    assert got == {key: key * 10 + 2 for key in range(8)}


@both
def test_a_key_used_again_is_another_run(backend: str) -> None:
    async def main(rank: int) -> Any:
        stitched = one_way(rank).with_options(run_key="same")
        return [(await stitched.run(given(rank, x), {})).captured_outputs for x in range(4)]

    assert on_ranks(2, main, backend)[1] == [{"y": x + 2} for x in range(4)]


@both
def test_streams_keyed_runs_and_plain_runs_beside_each_other(backend: str) -> None:
    async def main(rank: int) -> Any:
        stitched = one_way(rank)
        got: dict[Any, Any] = {}

        async def stream(first: int) -> None:
            async with stitched.stream((given(rank, first + i) for i in range(12)), in_flight=3) as results:
                got[first] = [out.captured_outputs.get("y") async for out in results]

        async def keyed() -> None:
            got["key"] = (await stitched.with_options(run_key=7).run(given(rank, -1), {})).captured_outputs.get("y")

        async with anyio.create_task_group() as group:
            group.start_soon(stream, 100)
            group.start_soon(keyed)
            got["plain"] = (await stitched.run(given(rank, -2), {})).captured_outputs.get("y")
        await stream(200)
        return got

    due = {100: [102 + i for i in range(12)], 200: [202 + i for i in range(12)], "key": 1, "plain": 0}
    assert on_ranks(2, main, backend, reorder=5)[1] == due


# --- credits ---


@both
@pytest.mark.parametrize("credits", [1, 3])
def test_a_fast_sender_waits(credits: int, backend: str) -> None:
    flags, transfers = Flags(), Transfers()

    async def main(rank: int) -> Any:
        async def held(x: int) -> int:
            flags.say("the first is here")
            await flags.until("looked")
            return x + 1

        stitched = one_way(
            rank, held if rank else None, options=watched(*[] if rank else [transfers], max_workers=None)
        )
        items = (given(rank, x) for x in range(20))
        results: list[Any] = []

        async def stream() -> None:
            async with stitched.stream(items, in_flight=20 if rank == 0 else 1) as outs:
                results.extend([out.captured_outputs.get("y") async for out in outs])

        async with anyio.create_task_group() as group:
            group.start_soon(stream)
            if rank == 1:
                await flags.until("the first is here", "full")
                ranks: Any = stitched._ranks
                flags.say("looked")
                return_lying.append(ranks._graph.pairs[0].receiving.lying)
            else:
                await flags.until("the first is here")
                # Every send has begun; but the one that was taken, as many as there are credits have gone.
                await transfers.until(20, 1 + credits)
                assert len(transfers.finished) == 1 + credits
                flags.say("full")
        return results

    return_lying: list[int] = []
    got = on_ranks(2, main, backend, LinkOptions(timeout=LIMIT, credits=credits))
    assert got[1] == [x + 2 for x in range(20)]
    assert return_lying[0] <= credits


# --- what is stitched to what ---


@both
def test_several_peers_in_one_target(backend: str) -> None:
    async def main(rank: int) -> Any:
        if rank == 0:
            await knot((EXT.output("x"), RemoteTarget([1, 2, 3], blocking=False).value("h"))).run(
                {}, {"x": torch.ones(2)}
            )
            return None
        return (await knot((RemoteTarget(0).value("h"), EXT.output("y"))).run({}, {}))["y"].tolist()

    assert on_ranks(4, main, backend)[1:] == [[1.0, 1.0]] * 3


@both
def test_send_and_receive_in_one_target_and_several_targets_to_one_peer(backend: str) -> None:
    async def main(rank: int) -> Any:
        peer, other, f = RemoteTarget(1 - rank), RemoteTarget(1 - rank), FunctionTarget("f", lambda a, b: (a, b))
        stitched = knot(
            (EXT.output("x"), peer.value("h")),
            (EXT.output("z"), other.value("more")),
            (peer.value("h"), f.input()),
            (other.value("more"), f.input()),
            (f.output(), EXT.output("y")),
        )
        return (await stitched.run({}, {"x": rank, "z": [rank]}))["y"]

    assert on_ranks(2, main, backend) == [(1, [1]), (0, [0])]


@both
def test_several_graphs_over_one_link_older_ones_used_again(backend: str) -> None:
    async def main(rank: int) -> Any:
        graphs = [one_way(rank) for _ in range(3)]
        got = []
        for round_ in range(2):
            for i, stitched in enumerate(graphs):
                got.append((await stitched.run(given(rank, 10 * round_ + i), {})).captured_outputs.get("y"))
        links: Any = [stitched._ranks for stitched in graphs]
        assert len({id(ranks._link) for ranks in links}) == 1
        return got

    assert on_ranks(2, main, backend)[1] == [2, 3, 4, 12, 13, 14]


@both
def test_adapters_and_reducers_at_remote_ports(backend: str) -> None:
    async def main(rank: int) -> Any:
        if rank == 0:
            there = RemoteTarget(1)
            needle = knot(
                (EXT.output("a"), there.value("sum", reducer="sum")),
                (EXT.output("b"), there.value("sum", reducer="sum")),
                (EXT.output("a"), there.value("adapted", adapter=lambda x: x * 100)),
            )
            await needle.run({}, {"a": torch.ones(2), "b": torch.ones(2)})
            return None
        f = FunctionTarget("f", lambda *args, **kwargs: (args, kwargs))
        stitched = knot(
            (RemoteTarget(0).value("sum", adapter=lambda x: InputArgs(int(x.sum()), named=1)), f.input()),
            (f.output(), EXT.output("y")),
            (RemoteTarget(0).value("adapted", adapter="clone"), EXT.output("z")),
        )
        out = await stitched.run({}, {})
        return out["y"], out["z"].tolist()

    assert on_ranks(2, main, backend)[1] == (((4,), {"named": 1}), [100.0, 100.0])


@both
def test_peers_of_a_process_group_are_translated(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Group:
        """Ranks 0 and 2 of the world, as 0 and 1."""

    group: Any = Group()
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr(
        "torch.distributed.get_global_rank", lambda of, peer: {0: 0, 1: 2}[peer] if of is group else None
    )

    async def main(rank: int) -> Any:
        if rank == 0:
            await knot((EXT.output("x"), RemoteTarget(1, group).value("h"))).run({}, {"x": 4})
        elif rank == 2:
            return (await knot((RemoteTarget(0, group).value("h"), EXT.output("y"))).run({}, {}))["y"]
        return None

    assert on_ranks(3, main, backend) == [None, None, 4]


@both
def test_a_constant_goes_and_a_rank_without_a_caller_runs(backend: str) -> None:
    async def main(rank: int) -> Any:
        f = FunctionTarget("f", plus_one)
        if rank == 0:
            await knot((ConstantTarget("c", 5).output(), RemoteTarget(1).value("h"))).run({}, {})
        elif rank == 1:
            stitched = knot((RemoteTarget(0).value("h"), f.input()), (f.output(), RemoteTarget(2).value("h")))
            assert not (await stitched.run({}, {})).captured_outputs
        else:
            return (await knot((RemoteTarget(1).value("h"), EXT.output("y"))).run({}, {}))["y"]
        return None

    assert on_ranks(3, main, backend)[2] == 6


@both
@pytest.mark.parametrize(
    "make", [copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))], ids=["copy", "pickle"]
)
def test_a_copy_is_a_graph_of_its_own(make: Any, backend: str) -> None:
    async def main(rank: int) -> Any:
        stitched = one_way(rank, plus_one)
        before = (await stitched.run(given(rank, 1), {})).captured_outputs.get("y")
        other = make(stitched)
        assert other._ranks is not stitched._ranks
        again = [(await graph.run(given(rank, 5), {})).captured_outputs.get("y") for graph in (other, stitched)]
        stitched.close()
        return before, again, (await other.run(given(rank, 7), {})).captured_outputs.get("y")

    assert on_ranks(2, main, backend)[1] == (3, [7, 7], 9)


@both
@pytest.mark.parametrize("transport", ["local", "zmq"])
def test_nothing_is_lost_when_all_references_are_dropped(transport: str, backend: str) -> None:
    flags = Flags()

    async def main(rank: int) -> Any:
        stitched = one_way(rank, lambda x: x, blocking=False)
        if rank == 0:
            for number in range(6):
                await stitched.run({"x": torch.full((300_000,), float(number))}, {})
                gc.collect()
                torch.zeros(300_000)  # takes the memory that was let go, if it was
            del stitched
            gc.collect()
            flags.say("dropped")
            return None
        await stitched.run({}, {})
        await flags.until("dropped")
        return [(await stitched.run({}, {}))["y"].unique().tolist() for _ in range(5)]

    # As many credits as values, so that none of them waits for rank 1.
    options = LinkOptions(timeout=LIMIT, credits=6)
    assert on_ranks(2, main, backend, options, transport=transport)[1] == [[float(number)] for number in range(1, 6)]


def test_synchronous_calls_and_all_kinds_of_value() -> None:
    value = {"t": torch.eye(2, dtype=torch.bfloat16), "n": [1, 2.5, None, "s", b"b"], "e": torch.empty(0, 2)}

    async def main(rank: int) -> Any:
        stitched = chain(rank, 3, lambda x: x)
        return stitched(given(rank, value), {}).captured_outputs.get("y")

    got = on_ranks(3, main, "asyncio")[2]
    assert got["n"] == value["n"]
    assert torch.equal(got["t"], value["t"])
    assert got["e"].shape == (0, 2)
