"""The wires between threads of one process: the suite, with and without reordering; latency, cuts, a rank that comes again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from weave import RemoteException
from weave.remote import LinkOptions, run_local
from weave.remote.local import Wires, meetings
from weave.spi.transport import Endpoint, Meeting
from weave.testing import TransportSuite
from weave.testing.suites.ends import ranks

LIMIT = 30.0


class TestLocal(TransportSuite):
    scheme = "local"
    reorder: int | None = None

    def world(self, size: int) -> Sequence[Meeting]:
        return meetings(size, self.options, Wires(reorder=self.reorder))

    def run_ranks(self, size: int, function: Callable[[int], Any]) -> list[Any]:
        return run_local(size, function, reorder=self.reorder, options=self.options)

    def vanish(self, endpoint: Endpoint) -> None:
        end: Any = endpoint
        end._wires.cut(end.rank, "it was cut off")


class TestReordering(TestLocal):
    reorder = 7


class TestSlow(TestLocal):
    """A network that takes its time."""

    def world(self, size: int) -> Sequence[Meeting]:
        return meetings(size, self.options, Wires(latency_s=0.002, bytes_per_s=2e9))


def test_a_rank_that_leaves_and_comes_again_is_another() -> None:
    """Its first life's messages don't reach the other's second, whichever of the two comes back first."""
    world = meetings(2, LinkOptions(timeout=LIMIT), Wires())
    connect = world[0].wires.connect
    with ranks(world, connect, LIMIT) as (first, second):
        first.send(1, b"one")
        second.heard.until_messages(1)
        first.close(LIMIT)
        second.heard.until_lost(0)
        with ranks(world[:1], connect, LIMIT) as (again,):
            again.send(1, b"for the second life of rank 1")
            second.send(0, b"nobody gets this")
            second.close(LIMIT)
            with ranks(world[1:], connect, LIMIT) as (other,):
                assert other.heard.until_messages(1) == [(0, [b"for the second life of rank 1"])]
                other.send(0, b"hello again")
                assert again.heard.until_messages(1) == [(1, [b"hello again"])]
        assert len(second.heard.messages) == 1


def test_it_is_for_threads_of_one_process() -> None:
    from weave.remote.local import connect

    class Other:
        rank = 3

    with pytest.raises(RemoteException, match="run_local") as raised:
        connect(Other())
    assert raised.value.rank == 3


def test_the_sender_refuses_what_the_link_does_not_take() -> None:
    options = LinkOptions(timeout=LIMIT, max_message_bytes=1 << 16)
    world = meetings(2, options, Wires())
    with ranks(world, world[0].wires.connect, LIMIT) as (first, second):
        with pytest.raises(RemoteException, match="WEAVE_LINK_MAX_MESSAGE_BYTES"):
            first.end.send(1, [memoryview(bytearray((1 << 16) + 4)).cast("I")])
        first.send(1, bytes(1 << 16))
        second.heard.until_messages(1)


def test_what_a_rank_raises_comes_out_with_the_others_in_its_notes() -> None:
    def main(rank: int) -> None:
        if rank == 2:
            raise ValueError("mine")
        if rank == 1:
            raise RemoteException("only heard of it")

    with pytest.raises(ValueError, match="mine") as raised:
        run_local(3, main)
    assert raised.value.__notes__ == [
        "weave: rank 1 raised RemoteException: only heard of it",
        "weave: raised on rank 2",
    ]


def test_results_come_by_rank() -> None:
    assert run_local(3, lambda rank, more: rank * 10 + more, 5) == [5, 15, 25]
