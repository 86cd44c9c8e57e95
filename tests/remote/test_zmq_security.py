"""The ZeroMQ transport: who gets in, and what strangers can do to it."""

from __future__ import annotations

import os
import random
import socket
from typing import Any

import msgspec
import pytest
import zmq

from tests.remote.hearing import PATIENCE, Hearer, PlayedRank, card_of, world
from tests.remote.meetings import DictMeeting
from weave.remote.options import LinkOptions
from weave.remote.zmq_security import Card, Curve, Token, card_key, life_key, read, write
from weave.remote.zmq_transport import ZmqEndpoint, connect

SECURITIES = ["token", "curve"]


def options(security: Any) -> LinkOptions:
    return LinkOptions(security=security, timeout=PATIENCE)


class Stranger:
    """A socket of somebody else's, connected to a rank's data lane, and what becomes of the connection."""

    def __init__(self, card: Card, kind: int = zmq.PUSH, **settings: Any) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.socket = self.context.socket(kind)
        self.socket.linger, self.socket.reconnect_ivl, self.socket.sndtimeo = 0, -1, 0
        for name, value in settings.items():
            setattr(self.socket, name, value)
        self.events = self.socket.get_monitor_socket(
            zmq.Event.HANDSHAKE_SUCCEEDED
            | zmq.Event.HANDSHAKE_FAILED_AUTH
            | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
            | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
            | zmq.Event.DISCONNECTED
        )
        self.events.rcvtimeo = round(1000 * PATIENCE)
        self.socket.connect(card.data)

    def fate(self) -> int:
        return int(zmq.utils.monitor.recv_monitor_message(self.events)["event"])

    def close(self) -> None:
        self.socket.disable_monitor()
        self.events.close(0)
        self.context.destroy(0)


def is_shut_out(card: Card, kind: int = zmq.PUSH, **settings: Any) -> None:
    stranger = Stranger(card, kind, **settings)
    try:
        for frames in ([b"m", b"of a stranger"], [b"bye"], [b"cut", b""], [b"0:", b"m", b"x"]):
            try:
                stranger.socket.send_multipart(frames)
            except zmq.ZMQError:  # cut off already, or a REQ that has had its turn
                break
        assert stranger.fate() != zmq.Event.HANDSHAKE_SUCCEEDED
    finally:
        stranger.close()


def still_works(ends: list[ZmqEndpoint], hearers: list[Hearer]) -> None:
    """The two hear each other, and have heard nobody else."""
    ends[0].send(1, [b"of 0"])
    ends[1].send(0, [b"of 1"])
    assert hearers[0].wait() == [(1, [b"of 1"])]
    assert hearers[1].wait() == [(0, [b"of 0"])]
    assert hearers[0].losses == hearers[1].losses == []


def test_without_the_secret_nobody_gets_in() -> None:
    with world(2, options("token")) as (ends, hearers, meetings):
        card = card_of(meetings[0], 1)
        own, other = Token(0), Token(0)
        own.call(caller := _Settings(), card)
        name, password = caller.plain_username, caller.plain_password
        other.call(caller, msgspec.structs.replace(card, key=bytes(32)))
        is_shut_out(card)
        is_shut_out(card, plain_username=name, plain_password=b" ")
        is_shut_out(card, plain_username=name, plain_password=password[:-1] + b"x")
        is_shut_out(card, plain_username=caller.plain_username, plain_password=caller.plain_password)
        is_shut_out(card, plain_username=b"\xff\x00:", plain_password=password)
        is_shut_out(card, plain_username=b"0" * 250, plain_password=b"1" * 250)
        is_shut_out(card, plain_username=other.life.encode(), plain_password=password)  # another's name, this password
        is_shut_out(card, curve_serverkey=Curve(1).key, **_pair())
        still_works(ends, hearers)


def test_who_knows_the_secret_gets_in_as_the_rank_that_it_says_and_no_other() -> None:
    """The test before this one could pass for any reason; and there is no rank but those of the world."""
    with world(2, options("token")) as (ends, hearers, meetings):
        card = card_of(meetings[0], 1)
        for rank, gets_in in ((0, True), (1, False), (2, False), (-1, False)):
            Token(rank).call(caller := _Settings(), card)
            if not gets_in:
                is_shut_out(card, plain_username=caller.plain_username, plain_password=caller.plain_password)
        still_works(ends, hearers)
    with world(2, options("token")) as (_, hearers, meetings):
        card = card_of(meetings[0], 1)
        Token(0).call(caller := _Settings(), card)
        stranger = Stranger(card, plain_username=caller.plain_username, plain_password=caller.plain_password)
        stranger.socket.send_multipart([b"m", b"x"])
        assert stranger.fate() == zmq.Event.HANDSHAKE_SUCCEEDED
        assert hearers[1].wait() == [(0, [b"x"])]
        stranger.close()


def test_a_rank_can_not_speak_for_another() -> None:
    """Whatever it calls itself, its messages are its own."""
    meetings = DictMeeting.world(3, options("token"))
    end, hearer = connect(meetings[1]), Hearer()
    end.start(hearer)
    played = PlayedRank(meetings[2])
    caller = played.context.socket(zmq.PUSH)
    caller.routing_id = b"0"
    played.security.call(caller, card_of(meetings[2], 1))
    caller.connect(card_of(meetings[2], 1).data)
    caller.send_multipart([b"m", b"0", b"I am 0"])
    assert hearer.wait() == [(2, [b"0", b"I am 0"])]
    caller.close(0)
    end.close(0.0)
    played.close()


def test_a_second_life_of_a_rank_is_not_taken_for_the_first() -> None:
    with world(2, options("token")) as (ends, hearers, meetings):
        ends[0].send(1, [b"x"])
        hearers[1].wait()
        card = card_of(meetings[0], 1)
        Token(0).call(caller := _Settings(), card)
        is_shut_out(card, plain_username=caller.plain_username, plain_password=caller.plain_password)
        assert hearers[1].messages == [(0, [b"x"])]


def test_a_wrong_secret_is_told_to_who_has_it() -> None:
    meetings = DictMeeting.world(2, options("token"))
    ends, hearers = [connect(meeting) for meeting in meetings], [Hearer(), Hearer()]
    card = card_of(meetings[0], 1)
    meetings[0].share(card_key(1), write(msgspec.structs.replace(card, key=bytes(32))))
    for end, hearer in zip(ends, hearers, strict=True):
        end.start(hearer)
    ends[0].send(1, [b"x"])
    assert "don't have the same secret" in hearers[0].wait_lost()[1]
    assert hearers[1].messages == []
    for end in ends:
        end.close(0.0)


def test_ranks_with_different_security_are_told_so() -> None:
    with world(2, options("token"), options("curve")) as (ends, hearers, _):
        ends[0].send(1, [b"x"])
        why = hearers[0].wait_lost()[1]
        assert "security='curve' and this rank's 'token'" in why
        assert "WEAVE_LINK_SECURITY" in why
        ends[1].send(0, [b"x"])
        hearers[1].wait_lost()
        assert hearers[0].messages == hearers[1].messages == []


# --- curve ---


def _pair() -> dict[str, bytes]:
    public, private = zmq.curve_keypair()
    return {"curve_publickey": public, "curve_secretkey": private}


class _Settings:
    """What a security would set on a socket."""

    plain_username = plain_password = b""


def test_without_the_keys_nobody_gets_in() -> None:
    limited = LinkOptions(security="curve", timeout=1.0)  # so long an unknown key is looked up
    with world(2, limited) as (ends, hearers, meetings):
        card = card_of(meetings[0], 1, "curve")
        is_shut_out(card)
        is_shut_out(card, plain_username=b"0", plain_password=b"x")
        is_shut_out(card, curve_serverkey=Curve(1).key, **_pair())  # doesn't know the listener's key
        is_shut_out(card, curve_serverkey=card.key, **_pair())  # does, and is not in the store
        wrong = {"curve_publickey": card_of(meetings[0], 0, "curve").key, "curve_secretkey": _pair()["curve_secretkey"]}
        is_shut_out(card, curve_serverkey=card.key, **wrong)  # somebody's public key, without the private one
        still_works(ends, hearers)


def test_a_key_in_the_store_gets_in_as_the_rank_it_is_shared_for() -> None:
    meetings = DictMeeting.world(3, options("curve"))
    end, hearer = connect(meetings[1]), Hearer()
    end.start(hearer)
    card = card_of(meetings[0], 1, "curve")
    for rank, gets_in in ((b"2", True), (b"1", False), (b"3", False), (b"-1", False), (b"two", False)):
        pair = _pair()
        meetings[0].share(life_key(pair["curve_publickey"].hex()), rank)
        if gets_in:
            stranger = Stranger(card, curve_serverkey=card.key, **pair)
            stranger.socket.send_multipart([b"m", b"x"])
            assert hearer.wait() == [(2, [b"x"])]
            stranger.close()
        else:
            is_shut_out(card, curve_serverkey=card.key, **pair)
    end.close(0.0)


def test_what_curve_shares_is_public() -> None:
    with world(1, options("curve")) as (ends, _, meetings):
        private = ends[0]._loop._security._private  # type: ignore[union-attr]
        assert not any(private in value or private.hex().encode() in value for value in meetings[0].known.values())


# --- noise ---


@pytest.mark.parametrize("security", SECURITIES)
def test_random_bytes_at_its_ports_do_no_harm(security: Any) -> None:
    rng = random.Random(0)
    greeting = (
        b"\xff\0\0\0\0\0\0\0\1\x7f\3\1"
        + security.replace("token", "plain").upper().encode().ljust(20, b"\0")
        + bytes(32)
    )
    with world(2, options(security)) as (ends, hearers, _):
        for address in (*ends[0].addresses, *ends[1].addresses):
            host, _, port = address.removeprefix("tcp://").rpartition(":")
            for i in range(60):
                with socket.create_connection((host, int(port)), PATIENCE) as stranger:
                    begin = (b"", greeting, greeting[: rng.randrange(64)], b"GET / HTTP/1.1\r\n\r\n")[i % 4]
                    size = rng.choice((0, 1, 9, 300, 5000))
                    command = b"\4" + bytes([min(size, 255)]) + rng.choice((b"\5HELLO", b"\5READY", b"\4PING", b""))
                    try:
                        stranger.sendall(begin + rng.choice((b"", command)) + rng.randbytes(size))
                        if i % 3:
                            stranger.shutdown(socket.SHUT_WR)
                            stranger.recv(100)
                    except OSError:
                        continue  # cut off already
        still_works(ends, hearers)


@pytest.mark.parametrize("security", SECURITIES)
def test_a_part_that_says_it_is_huge_takes_no_memory(security: Any) -> None:
    """Before somebody has shown who it is, and after."""
    with world(2, LinkOptions(security=security, timeout=PATIENCE, max_message_bytes=1 << 20)) as (ends, hearers, _):
        before = _peak()
        for address in (*ends[0].addresses, *ends[1].addresses):
            host, _, port = address.removeprefix("tcp://").rpartition(":")
            for kind in (b"\2", b"\6"):  # a large message, a large command
                with socket.create_connection((host, int(port)), PATIENCE) as stranger:
                    name = security.replace("token", "plain").upper().encode()
                    stranger.sendall(b"\xff\0\0\0\0\0\0\0\1\x7f\3\1" + name.ljust(20, b"\0") + bytes(32))
                    stranger.sendall(kind + (1 << 31).to_bytes(8, "big") + bytes(100))
                    while stranger.recv(1000):  # until it is cut off
                        continue
        still_works(ends, hearers)
        assert _peak() - before < 1 << 30


def _peak() -> int:
    """This process's address space at its largest."""
    if not os.path.exists("/proc/self/status"):
        pytest.skip("reads Linux's account of memory")
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmPeak"))


@pytest.mark.parametrize("kind", [zmq.PUSH, zmq.DEALER, zmq.REQ, zmq.PUB, zmq.PAIR, zmq.ROUTER])
def test_frames_of_sockets_that_it_does_not_talk_to_do_no_harm(kind: int) -> None:
    with world(2, options("token")) as (ends, hearers, meetings):
        is_shut_out(card_of(meetings[0], 1), kind)
        still_works(ends, hearers)


@pytest.mark.parametrize(
    "parts",
    [[b""], [b"m"], [b"x", b"y"], [b"cut"], [b"m" * 300, b""], [b"\xff" * 5000]],
    ids=lambda parts: str(parts)[:20],
)
def test_a_peer_that_sends_nonsense_is_lost(parts: list[bytes]) -> None:
    meetings = DictMeeting.world(3, options("token"))
    ends, hearers = [connect(meeting) for meeting in meetings[:2]], [Hearer(), Hearer()]
    for end, hearer in zip(ends, hearers, strict=True):
        end.start(hearer)
    played = PlayedRank(meetings[2])
    caller = played.call(1)
    caller.send_multipart(parts)
    peer, why = hearers[1].wait_lost()
    assert (peer, "no message of this transport" in why) == (2, True)
    assert played.control.recv_multipart()[0] == b"cut"  # it is told, and why
    ends[0].send(1, [b"x"])
    assert hearers[1].wait() == [(0, [b"x"])]
    for end in ends:
        end.close(0.0)
    played.close()


def test_a_peer_that_says_goodbye_out_of_turn_does_no_harm() -> None:
    meetings = DictMeeting.world(2, options("token"))
    end, hearer = connect(meetings[1]), Hearer()
    end.start(hearer)
    played = PlayedRank(meetings[0])
    control, data = played.call(1, "control"), played.call(1, "data")
    for word in (b"heard", b"bye", b"bye"):
        control.send_multipart([word])
    data.send_multipart([b"m", b"x"])
    assert hearer.wait() == [(0, [b"x"])]
    assert hearer.losses == []
    data.send_multipart([b"bye"])
    assert hearer.wait_lost() == (0, "rank 0 has closed its link")
    data.send_multipart([b"m", b"y"])
    assert played.control.recv_multipart() == [b"heard"]
    end.close(1.0)
    assert hearer.messages == [(0, [b"x"])]
    played.close()


def test_cards_that_can_not_be_read() -> None:
    good = Card(1, 0, "x", "token", b"", "tcp://127.0.0.1:1", "tcp://127.0.0.1:2", 1, 1, "h")
    assert read(write(good), 0, "token") == good
    for data in (b"\xc1", write(good)[:-1], msgspec.msgpack.encode([1, 2]), msgspec.msgpack.encode({"a": 1})):
        assert "can't be read" in str(read(data, 0, "token"))
    assert "version 2" in str(read(write(msgspec.structs.replace(good, protocol=2)), 0, "token"))
    assert "rank 0's" in str(read(write(good), 1, "token"))
