"""What goes wrong between ranks is heard where it matters, with its cause, and harms nothing else."""

from __future__ import annotations

import logging
import threading
from typing import Any

import anyio
import pytest
import torch

from tests.remote.linked import EXT, LIMIT, Flags, Transfers, chain, given, knot, on_ranks, one_way, watched
from weave import FunctionTarget, PeerLostException, RemoteException, RemoteTarget, StitchedModuleException
from weave.remote import LinkOptions, run_local
from weave.remote.local import LocalEndpoint
from weave.remote.world import here

BACKENDS = ["asyncio", "trio"]
both = pytest.mark.parametrize("backend", BACKENDS)


# --- a node raises ---


@both
def test_all_ranks_hear_of_a_node_that_raises(backend: str) -> None:
    """Rank 3 hears of it from rank 2, and is in a long await when it does."""
    flags = Flags()
    lasting: list[str] = []
    texts: list[str] = []

    async def main(rank: int) -> Any:
        async def step(x: int) -> int:
            if rank == 1 and x == 1:
                await flags.until("rank 3 waits")
                raise ValueError("no, not 0")
            return x + 1

        async def long(x: int) -> int:
            if x == 0:
                flags.say("rank 3 waits")
                try:
                    await anyio.sleep_forever()
                finally:
                    lasting.append("called off")
            return x

        beside = FunctionTarget("beside", long if rank == 3 else lambda x: x)
        f = FunctionTarget(f"f{rank}", step)
        if rank == 0:
            stitches = [(EXT.input("x"), f.input()), (EXT.input("x"), beside.input())]
            stitches += [
                (f.output(), RemoteTarget(1).value("to 1")),
                (beside.output(), RemoteTarget(3).value("beside")),
            ]
        elif rank < 3:
            stitches = [(RemoteTarget(rank - 1).value(f"to {rank}"), f.input())]
            stitches += [(f.output(), RemoteTarget(rank + 1).value(f"to {rank + 1}"))]
        else:
            stitches = [(RemoteTarget(2).value("to 3"), f.input()), (RemoteTarget(0).value("beside"), beside.input())]
            stitches += [(f.output(), EXT.output("y")), (beside.output(), EXT.output("z"))]
        stitched = knot(*stitches)
        try:
            await stitched.run(given(rank, 0), {})
        except ValueError:
            said: Any = "mine"
        except RemoteException as error:
            said = (error.rank, error.node, error.kind, error.cause_text)
            texts.append(str(error))
        else:
            said = "nothing"
        out = await stitched.run(given(rank, 10), {})
        return said, out.captured_outputs.get("y")

    there = (1, "f1", "ValueError", "no, not 0")
    # Rank 0 has sent all it had, and its run may be over before it hears.
    said = on_ranks(4, main, backend)
    assert said[0][0] in (there, "nothing")
    assert said[1:] == [("mine", None), (there, None), (there, 14)]
    assert lasting == ["called off"]
    assert all("rank 1 failed in node 'f1' by ValueError: no, not 0" in text for text in texts)


@both
def test_a_run_that_fails_leaves_another_right(backend: str) -> None:
    flags = Flags()

    async def main(rank: int) -> Any:
        async def step(x: int) -> int:
            if rank == 1:
                flags.say(x)
                await flags.until(10, 20)  # both are under way
                if x == 10:
                    raise ValueError("the first")
                await flags.until("the first is over")
            return x

        stitched = chain(rank, 3, step)
        got: dict[int, Any] = {}

        async def one(x: int) -> None:
            try:
                got[x] = (await stitched.with_options(run_key=x).run(given(rank, x), {})).captured_outputs.get("y")
            except (RemoteException, ValueError) as error:
                got[x] = type(error).__name__
                if rank == 2:
                    flags.say("the first is over")

        async with anyio.create_task_group() as group:
            for x in (10, 20):
                group.start_soon(one, x)
        return got

    got = on_ranks(3, main, backend)
    assert got[1:] == [{10: "ValueError", 20: None}, {10: "RemoteException", 20: 20}]


@both
def test_what_cannot_be_sent_is_the_senders_failure(backend: str) -> None:
    async def main(rank: int) -> Any:
        stitched = one_way(rank, lambda x: object() if rank == 0 else x)
        with pytest.raises(RemoteException, match="can't send 'h'") as raised:
            await stitched.run(given(rank, 1), {})
        return raised.value.rank, raised.value.node

    assert on_ranks(2, main, backend)[1][0] == 0


# --- cancellation ---


@both
def test_a_cancelled_run_is_heard_as_cancelled_and_the_next_is_right(backend: str) -> None:
    flags = Flags()

    async def main(rank: int) -> Any:
        async def held(x: int) -> int:
            if x == 1:
                flags.say("in it")
                await anyio.sleep_forever()
            return x + 1

        stitched = one_way(rank, held if rank == 0 else None)
        if rank == 0:
            async with anyio.create_task_group() as group:
                group.start_soon(stitched.run, {"x": 1}, {})
                await flags.until("in it")
                group.cancel_scope.cancel()
            await stitched.run({"x": 5}, {})
            return None
        with pytest.raises(RemoteException, match="rank 0 was cancelled, in run 0") as raised:
            await stitched.run({}, {})
        assert not isinstance(raised.value, PeerLostException)
        return (await stitched.run({}, {}))["y"]

    assert on_ranks(2, main, backend)[1] == 7


@both
def test_a_cancelled_receive_leaves_the_link_usable(backend: str) -> None:
    flags, transfers = Flags(), Transfers()

    async def main(rank: int) -> Any:
        async def held(x: int) -> int:
            if x == 1:
                await flags.until("cancelled")
            return x + 1

        stitched = one_way(rank, held if rank == 0 else None, options=watched(*[transfers] if rank else []))
        if rank == 0:
            with pytest.raises(RemoteException, match="rank 1 was cancelled"):
                await stitched.run({"x": 1}, {})
            for x in range(5, 9):
                await stitched.run({"x": x}, {})
            return None
        async with anyio.create_task_group() as group:
            group.start_soon(stitched.run, {}, {})
            await transfers.until(1)
            group.cancel_scope.cancel()
        flags.say("cancelled")
        return [(await stitched.run({}, {}))["y"] for _ in range(4)]

    assert on_ranks(2, main, backend)[1] == [7, 8, 9, 10]


@both
def test_a_run_that_is_over_time_is_heard(backend: str) -> None:
    async def main(rank: int) -> Any:
        async def never(x: int) -> int:
            await anyio.sleep_forever()
            return x

        stitched = one_way(rank, never if rank == 0 else None)
        if rank == 0:
            with pytest.raises(TimeoutError):
                await stitched.with_options(timeout=0.05).run({"x": 1}, {})
        else:
            with pytest.raises(RemoteException) as raised:
                await stitched.run({}, {})
            assert raised.value.rank == 0

    on_ranks(2, main, backend)


# --- a peer is gone ---


@both
def test_a_lost_peer_fails_who_waits_for_it(backend: str) -> None:
    transfers = Transfers()

    async def main(rank: int) -> Any:
        async def cuts(x: int) -> int:
            await transfers.until(1)  # rank 1 waits for the value
            world: Any = here.get()
            world._meeting.wires.cut(0, "cut off by the test")
            return x

        stitched = one_way(rank, cuts if rank == 0 else None, options=watched(*[transfers] if rank else []))
        if rank == 0:
            await stitched.run({"x": 1}, {})
            return None
        for _ in range(2):  # the run under way, and every later one
            with pytest.raises(
                PeerLostException, match=r"rank 0.* is gone \(seen from rank 1\): cut off by the test"
            ) as raised:
                await stitched.run({}, {})
            assert raised.value.rank == 0
        with pytest.raises(PeerLostException, match="cut off by the test"):
            await one_way(rank).run({}, {})
        return "raised"

    assert on_ranks(2, main, backend) == [None, "raised"]


@both
def test_closing_a_graph_fails_who_still_wants_something_of_it(backend: str) -> None:
    async def main(rank: int) -> Any:
        stitched, other = one_way(rank), one_way(rank)
        first = (await stitched.run(given(rank, 1), {})).captured_outputs.get("y")
        await other.run(given(rank, 1), {})
        if rank == 0:
            await stitched.run({"x": 2}, {})
            stitched.close()
            stitched.close()
            with pytest.raises(StitchedModuleException, match="was closed"):
                await stitched.run({"x": 3}, {})
            await other.run({"x": 3}, {})
            return None
        second = (await stitched.run({}, {}))["y"]  # it was sent before
        with pytest.raises(PeerLostException, match="rank 0 has closed its"):
            await stitched.run({}, {})
        return first, second, (await other.run({}, {}))["y"]

    assert on_ranks(2, main, backend, reorder=3)[1] == (3, 4, 5)


@both
def test_the_last_graph_closes_the_link_and_the_next_makes_one_anew(backend: str) -> None:
    flags = Flags()

    async def main(rank: int) -> Any:
        world: Any = here.get()
        got = []
        for round_ in range(3):
            stitched = one_way(rank)
            got.append((await stitched.run(given(rank, round_), {})).captured_outputs.get("y"))
            link = stitched._ranks._link  # type: ignore[union-attr]
            stitched.close()
            assert link is not None
            assert link.closed
            assert not world._links
            if rank == round_ % 2:  # the one or the other is back first
                flags.say(round_)
            else:
                await flags.until(round_)
        return got

    assert on_ranks(2, main, backend)[1] == [2, 3, 4]


def test_nothing_is_left_of_a_world() -> None:
    before = set(threading.enumerate())

    def main(rank: int) -> Any:
        return one_way(rank)(given(rank, 1), {}).captured_outputs.get("y")

    for transport in ("local", "zmq"):
        assert run_local(2, main, transport=transport)[1] == 3
    names = {thread.name for thread in set(threading.enumerate()) - before}
    assert not {name for name in names if name.startswith(("weave l", "rank "))}


# --- sent tensors ---


@both
@pytest.mark.parametrize("when", ["while it runs", "when it is over"])
def test_a_sent_tensor_that_changes_before_it_has_gone(
    when: str, backend: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    flags = Flags()
    held: list[Any] = []
    heard: list[Any] = []
    send = LocalEndpoint.send

    def holds(self: Any, peer: int, frames: Any, *, urgent: bool = False, gone: Any = None) -> None:
        """The transport still needs the memory of tensors, until the test says otherwise."""
        if gone is not None and not urgent:
            held.append(gone)
            gone = None
            flags.say("sent")
        send(self, peer, frames, urgent=urgent, gone=gone)

    monkeypatch.setattr(LocalEndpoint, "send", holds)
    x = torch.ones(5)

    async def main(rank: int) -> Any:
        if rank:
            try:
                await knot((RemoteTarget(0).value("h"), EXT.output("y"))).run({}, {})
            except RemoteException as error:  # it may be done before it hears of it
                heard.append((error.rank, error.node, error.kind))
            return

        async def beside(_: Any) -> None:
            if when == "while it runs":
                await flags.until("sent")
                x.add_(1)
                held.pop()()
                await anyio.sleep_forever()

        f = FunctionTarget("beside", beside)
        stitched = knot((EXT.output("x"), RemoteTarget(1, blocking=False).value("h")), (EXT.output("n"), f.input()))
        if when == "while it runs":
            with pytest.raises(RemoteException, match="changed in place before it had gone") as raised:
                await stitched.run({}, {"x": x, "n": 1})
            assert raised.value.node == "remote[1].send('h')"
        else:
            await stitched.run({}, {"x": x, "n": 1})
            x.add_(1)
            held.pop()()

    options = LinkOptions(timeout=LIMIT, debug=True)
    with caplog.at_level(logging.ERROR, "weave"):
        on_ranks(2, main, backend, options)
    assert heard in ([], [(0, "remote[1].send('h')", "RemoteException")])
    assert ("changed in place" in caplog.text) == (when == "when it is over")


# --- forks ---


def test_a_forked_child_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(rank: int) -> None:
        stitched, fresh = one_way(rank), one_way(rank)
        await stitched.run(given(rank, 1), {})
        world: Any = here.get()
        world._process += 1  # as if this were a child of that process
        for graph in (stitched, fresh):
            with pytest.raises(RemoteException, match=f"forked child of rank {rank}"):
                await graph.run(given(rank, 1), {})
        world._process -= 1

    on_ranks(2, main, "asyncio")
