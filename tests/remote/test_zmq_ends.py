"""The ZeroMQ transport: how an endpoint closes, what is left behind, losses, forks, errors of its own."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Sequence
from typing import Any

import pytest

from tests.remote.hearing import PATIENCE, Calls, Hearer, PlayedRank, world
from tests.remote.meetings import DictMeeting
from weave import RemoteException
from weave.remote.options import LinkOptions
from weave.remote.zmq_security import card_key
from weave.remote.zmq_transport import connect

OPTIONS = LinkOptions(timeout=PATIENCE)


@pytest.mark.parametrize("security", ["token", "curve"])
def test_all_that_was_sent_comes_before_the_goodbye(security: Any) -> None:
    options = LinkOptions(security=security, timeout=PATIENCE)
    with world(2, options) as (ends, hearers, _):
        for i in range(10):
            ends[0].send(1, [b"%d" % i, bytes(4 << 20)])
            ends[0].send(1, [b"%d" % (i + 10)], urgent=True)
        ends[0].close(PATIENCE)  # at once: the two are not even connected yet
        assert hearers[1].wait_lost() == (0, "rank 0 has closed its link")
        assert sorted(int(frames[0]) for _, frames in hearers[1].messages) == list(range(20))
        assert hearers[0].losses == []
        ends[1].send(0, [b"too late"])


def test_what_was_sent_before_closing_goes_before_the_goodbye_though_the_thread_is_late() -> None:
    with world(2) as (ends, hearers, _):
        ends[0].send(1, [b"x"])
        hearers[1].wait()
        held = threading.Event()
        ends[0]._do(lambda: held.wait(PATIENCE) and None)
        ends[0].send(1, [b"y"])
        ends[0]._do(lambda: ends[0]._loop.close(time.monotonic() + PATIENCE, True))
        held.set()
        assert hearers[1].wait(2, losses=1) == [(0, [b"x"]), (0, [b"y"])]


def test_after_close_nobody_is_told_anything_and_closing_again_is_nothing() -> None:
    with world(2) as (ends, hearers, _):
        ends[0].send(1, [b"x"])
        hearers[1].wait()
        ends[1].close(1.0)
        ends[1].close(1.0)
        hearers[0].wait_lost()
        ends[0].send(1, [b"y"])
        ends[0].close(1.0)
        assert hearers[1].messages == [(0, [b"x"])]
        assert hearers[1].losses == []


def test_both_close_at_once() -> None:
    for _ in range(10):
        with world(2) as (ends, hearers, _):
            ends[0].send(1, [b"x"])
            hearers[1].wait()
            closers = [threading.Thread(target=end.close, args=(PATIENCE,)) for end in ends]
            for closer in closers:
                closer.start()
            for closer in closers:
                closer.join(PATIENCE / 2)
                assert not closer.is_alive()


def test_closing_waits_for_nobody_that_it_never_talked_to() -> None:
    with world(3) as (ends, _, _):
        ends[0].close(10 * PATIENCE)


def test_closing_gives_up_on_a_peer_that_never_comes() -> None:
    meetings = DictMeeting.world(2, OPTIONS)
    end = connect(meetings[0])
    end.start(Hearer())
    end.send(1, [b"x"])
    end.close(0.05)
    assert not [thread for thread in threading.enumerate() if "weave link" in thread.name]


def test_it_can_be_closed_from_its_own_thread() -> None:
    with world(2) as (ends, _, _):
        closed = threading.Event()

        class Closes(Hearer):
            def came(self, peer: int, frames: Sequence[Any]) -> None:
                again.close(1.0)
                closed.set()

        ends[1].close(1.0)
        meetings = DictMeeting.world(2, OPTIONS)
        again, other = connect(meetings[1]), connect(meetings[0])
        hearer = Hearer()
        again.start(Closes())
        other.start(hearer)
        other.send(1, [b"x"])
        assert closed.wait(PATIENCE)
        hearer.wait_lost()
        again.close(1.0)
        other.close(1.0)


def _left() -> tuple[int, list[str]]:
    return len(os.listdir("/proc/self/fd")), sorted(thread.name for thread in threading.enumerate())


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors where Linux lists them")
@pytest.mark.parametrize("security", ["token", "curve"])
def test_nothing_is_left_behind(security: Any) -> None:
    def cycle() -> None:
        with world(3, LinkOptions(security=security, timeout=PATIENCE)) as (ends, hearers, _):
            gone = Calls()
            ends[0].send(1, [bytes(1 << 20)], gone=gone)
            ends[2].send(1, [b"x"], urgent=True)
            hearers[1].wait(2)
            for end in ends:
                end.close(PATIENCE)
            assert gone.count == 1

    cycle()  # pyzmq's own thread, one a process, comes with the first large message and stays
    before = _left()
    for _ in range(20):
        cycle()
    assert _left() == before


# --- a rank that closes and comes again ---


def test_a_world_whose_ranks_close_and_come_again_in_any_order() -> None:
    meetings = DictMeeting.world(2, OPTIONS)
    first, second = connect(meetings[0]), connect(meetings[1])
    for turn in range(6):
        hearers = [Hearer(), Hearer()]
        first.start(hearers[0])
        second.start(hearers[1])
        first.send(1, [b"%d" % turn])
        second.send(0, [b"%d" % turn], urgent=True)
        assert hearers[1].wait() == [(0, [b"%d" % turn])]
        assert hearers[0].wait() == [(1, [b"%d" % turn])]
        if turn % 2:  # the new one finds the other's old endpoint, or what it has left in the store
            first.close(1.0)
            first = connect(meetings[0])
            hearers[1].wait_lost()
            first.send(1, [b"early"])
            second.close(1.0)
            second = connect(meetings[1])
        else:
            second.close(1.0)
            first.close(1.0)
            first, second = connect(meetings[0]), connect(meetings[1])
            continue
        again = Hearer()
        second.start(again)
        first.start(Hearer())
        assert again.wait() == [(0, [b"early"])]
        first.close(1.0)
        second.close(1.0)
        first, second = connect(meetings[0]), connect(meetings[1])
    first.close(1.0)
    second.close(1.0)


def test_a_new_endpoint_waits_for_the_other_ranks_new_one() -> None:
    meetings = DictMeeting.world(2, OPTIONS)
    old = connect(meetings[1])
    old.start(Hearer())
    old.close(1.0)
    assert meetings[0].known[card_key(1)] == b""
    end, hearer = connect(meetings[0]), Hearer()
    end.start(hearer)
    end.send(1, [b"for the new one"])
    new, heard = connect(meetings[1]), Hearer()
    new.start(heard)
    assert heard.wait() == [(0, [b"for the new one"])]
    assert hearer.losses == []
    new.close(1.0)
    end.close(1.0)


# --- losses ---


def test_a_peer_that_is_gone_without_a_word_is_lost_at_once() -> None:
    meetings = DictMeeting.world(2, LinkOptions(timeout=PATIENCE, heartbeat=10 * PATIENCE))
    played = PlayedRank(meetings[1])
    end, hearer = connect(meetings[0]), Hearer()
    end.start(hearer)
    caller = played.call(0)
    end.send(1, [b"x"])
    played.data.recv_multipart()
    caller.send_multipart([b"m", b"its last"])
    hearer.wait()
    played.close()
    peer, why = hearer.wait_lost()
    assert (peer, "broke" in why) == (1, True)
    assert hearer.messages == [(1, [b"its last"])]
    end.close(0.0)


def test_a_peer_that_has_gone_before_it_was_reached_is_lost() -> None:
    meetings = DictMeeting.world(2, OPTIONS)
    PlayedRank(meetings[1]).close()  # its card stays
    end, hearer = connect(meetings[0]), Hearer()
    end.start(hearer)
    end.send(1, [b"x"])
    assert "nobody listens where rank 1 said it does" in hearer.wait_lost()[1]
    end.close(0.0)


def test_a_peer_that_never_comes_is_lost_when_the_time_is_over() -> None:
    meetings = DictMeeting.world(2, LinkOptions(timeout=0.2))
    end, hearer = connect(meetings[0]), Hearer()
    end.start(hearer)
    end.send(1, [b"x"])
    peer, why = hearer.wait_lost()
    assert (peer, "waited for 0.2 s" in why) == (1, True)
    end.close(0.0)


def test_a_loss_before_anybody_hears_is_told_later() -> None:
    meetings = DictMeeting.world(2, LinkOptions(timeout=0.05))
    end, hearer = connect(meetings[0]), Hearer()
    gone = Calls()
    end.send(1, [b"x"], gone=gone)
    gone.wait()
    end.start(hearer)
    assert hearer.wait_lost()[0] == 1
    end.close(0.0)


def test_an_error_in_the_links_thread_loses_everybody_and_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    meetings = DictMeeting.world(4, OPTIONS)
    end, other, hearer, heard = connect(meetings[0]), connect(meetings[1]), Hearer(), Hearer()
    end.start(hearer)
    other.start(heard)
    end.send(1, [b"x"])
    heard.wait()

    def fails(*_: Any) -> None:
        raise ValueError("a fault in the thread")

    monkeypatch.setattr(end._loop, "_came", fails)
    other.send(0, [b"x"])
    hearer.wait(0, 3)
    assert sorted(peer for peer, _ in hearer.losses) == [1, 2, 3]
    assert all("a fault in the thread" in why for _, why in hearer.losses)
    assert "a fault in the thread" in caplog.text
    assert heard.wait_lost()[0] == 0
    gone = Calls()
    end.send(1, [b"x"], gone=gone)
    gone.wait()
    end.close(1.0)
    other.close(0.0)
    assert not [thread for thread in threading.enumerate() if "weave link" in thread.name]


def test_what_a_hearer_raises_is_logged_and_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Fails(Hearer):
        def came(self, peer: int, frames: Sequence[Any]) -> None:
            super().came(peer, frames)
            raise ValueError("a fault of the hearer's")

    meetings = DictMeeting.world(2, OPTIONS)
    end, other, hearer = connect(meetings[0]), connect(meetings[1]), Fails()
    end.start(hearer)
    other.start(Hearer())
    other.send(0, [b"x"])
    other.send(0, [b"y"])
    assert hearer.wait(2) == [(1, [b"x"]), (1, [b"y"])]
    end.close(1.0)
    other.close(1.0)
    assert hearer.losses == []
    assert "a fault of the hearer's" in caplog.text


# --- forks ---


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_told_so_and_its_parent_goes_on() -> None:
    with world(2) as (ends, hearers, _):
        ends[0].send(1, [b"before"])
        hearers[1].wait()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # that a process with threads forks is the point
            child = os.fork()
        if child == 0:
            status = 1
            try:
                try:
                    ends[0].send(1, [b"from the child"])
                except RemoteException as error:
                    status = 0 if "fork" in str(error) and "spawn" in str(error) else 2
                ends[0].close(PATIENCE)
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        ends[0].send(1, [bytes(1 << 20)])
        assert len(hearers[1].wait(2)) == 2
        ends[1].send(0, [b"and back"])
        hearers[0].wait()
        assert hearers[0].losses == hearers[1].losses == []


# --- where it listens ---


def test_it_listens_on_one_address_only() -> None:
    with world(1) as (ends, _, _):
        ports = []
        for address in ends[0].addresses:
            host, _, port = address.removeprefix("tcp://").rpartition(":")
            assert host == "127.0.0.1"
            ports.append(int(port))
        assert len(set(ports)) == 2
        if os.path.exists("/proc/net/tcp"):
            listening = set()
            for table in ("/proc/net/tcp", "/proc/net/tcp6"):
                if os.path.exists(table):
                    with open(table) as lines:
                        fields = [line.split() for line in list(lines)[1:]]
                    listening |= {tuple(field[1].split(":")) for field in fields if field[3] == "0A"}
            for port in ports:
                assert {host for host, known in listening if int(known, 16) == port} == {"0100007F"}


def test_never_on_all_networks_nor_on_what_is_not_ours() -> None:
    [meeting] = DictMeeting.world(1, OPTIONS)
    for interface in ("0.0.0.0", "*", "::"):
        meeting.interface = interface  # type: ignore[attr-defined]
        with pytest.raises(RemoteException, match="all its networks"):
            connect(meeting)
    meeting.interface = "203.0.113.7"  # type: ignore[attr-defined]
    with pytest.raises(RemoteException, match="WEAVE_LINK_INTERFACE"):
        connect(meeting)
    assert not [thread for thread in threading.enumerate() if "weave link" in thread.name]
