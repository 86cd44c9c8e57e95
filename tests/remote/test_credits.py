"""Credits, seen from the link: a peer that the test plays, and an order that it forces."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
import torch

from tests.remote.linked import LIMIT, Flags
from weave.remote.codec import encode
from weave.remote.graph import RemoteUnit
from weave.remote.link import Link
from weave.remote.options import LinkOptions
from weave.remote.wire import RunKey, Taken, Tie, Value, Want, pack, unpack

pytestmark = pytest.mark.anyio
OPTIONS = LinkOptions(credits=2, timeout=LIMIT)
EDGE = (0, 1, "h")
VALUE = encode(torch.ones(2), where="h", node="n", most=OPTIONS)


class Played:
    """An endpoint that keeps what is sent to rank 1."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.flags = Flags()
        self.losses: list[str] = []

    def start(self, hears: Any) -> None:
        self.hears = hears

    def send(self, peer: int, frames: Any, *, urgent: bool = False, gone: Any = None) -> None:
        message = unpack(frames[0])
        self.sent.append(message)
        if isinstance(message, Value):
            self.flags.say(message.run.key)
        if gone is not None:
            gone()

    def close(self, linger: float) -> None:
        pass

    def says(self, *messages: Any) -> None:
        for message in messages:
            self.hears.came(1, [pack(message)])


def linked(role: str = "send") -> tuple[Played, Link, Any]:
    played = Played()
    link = Link(played, 0, 2, OPTIONS)
    graph = link.tie([RemoteUnit("n", role, "h", (1,), None, None)], {1: "#1"})
    edge = EDGE if role == "send" else (1, 0, "h")
    played.says(Tie("#1", [edge], OPTIONS.to_agree()))
    return played, link, graph


def key(name: str) -> RunKey:
    return RunKey(name, 0, None)


@pytest.mark.parametrize(
    "word",
    [
        # Both find the same sender at the head of those that wait, which needs one of them.
        (Taken("#1", 0, key("a")), Taken("#1", 0, key("b"))),
        # The head was asked for by name before it had tried again, and did not need the credit.
        (Want("#1", 0, key("c")), Taken("#1", 0, key("a"))),
    ],
    ids=["two credits at once", "a credit that the first did not need"],
)
async def test_a_credit_too_many_for_the_first_goes_to_the_next(word: tuple[Any, ...]) -> None:
    played, link, graph = linked()
    await link.agree(graph)
    async with anyio.create_task_group() as group:
        for name in "abcd":
            group.start_soon(_send, link, link.begin(graph, name, None))
            await anyio.wait_all_tasks_blocked()  # they come, and wait, in this order
        played.says(*word)
        await played.flags.until("c", "d")


async def test_a_sender_that_is_cancelled_passes_its_credit_on() -> None:
    played, link, graph = linked()
    await link.agree(graph)
    async with anyio.create_task_group() as group:
        scopes = {name: anyio.CancelScope() for name in "abcd"}
        for name, scope in scopes.items():
            group.start_soon(_send, link, link.begin(graph, name, None), scope)
            await anyio.wait_all_tasks_blocked()  # they wait in this order
        scopes["c"].cancel()
        played.says(Taken("#1", 0, key("a")))  # wakes c, which is on its way out
        await played.flags.until("d")
    assert "c" not in [message.run.key for message in played.sent if isinstance(message, Value)]


async def test_a_peer_that_sends_more_than_it_was_granted_is_lost() -> None:
    played, link, graph = linked("receive")
    await link.agree(graph)
    for name in "ab":
        played.says(Value("#1", 0, key(name), VALUE.head))
    assert not link._lost
    played.says(Value("#1", 0, key("c"), VALUE.head))
    assert "more than it was granted" in link._lost[1]


@pytest.mark.parametrize(
    "message",
    [
        Value("#1", 7, RunKey("a", 0, None), b""),
        Value("#1", 0, RunKey("a", 0, None), b""),  # a channel on which this rank sends
    ],
)
async def test_a_channel_that_is_not_there_loses_the_peer(message: Any) -> None:
    played, link, graph = linked()
    await link.agree(graph)
    played.says(message)
    assert "no channel" in link._lost[1]


async def test_what_is_no_message_loses_the_peer() -> None:
    played, link, graph = linked()
    await link.agree(graph)
    played.hears.came(1, [b"\x93nonsense"])
    assert "no message of weave's" in link._lost[1]


async def _send(link: Link, session: Any, scope: anyio.CancelScope | None = None) -> None:
    with scope or anyio.CancelScope():
        await link.send(session, EDGE, VALUE, "n", blocking=True)
