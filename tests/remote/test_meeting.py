"""How ranks find each other: stores, addresses, interfaces."""

from __future__ import annotations

import os
import socket
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from torch import distributed
from torch.distributed import FileStore, HashStore, PrefixStore, TCPStore

from tests.remote.hearing import PATIENCE, Hearer
from weave import RemoteException
from weave.remote import meeting as module
from weave.remote.meeting import StoreMeeting, meeting_at, meeting_of_group, reaches
from weave.remote.options import LinkOptions
from weave.remote.zmq_transport import connect

OPTIONS = LinkOptions(timeout=PATIENCE)


@pytest.fixture(params=["tcp", "file", "hash", "prefix"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    match request.param:
        case "tcp":
            return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        case "file":
            return FileStore(str(tmp_path / "store"), 2)
        case "hash":
            return HashStore()
        case _:
            return PrefixStore("a", PrefixStore("b", HashStore()))


def test_what_one_rank_shares_the_other_gets_byte_by_byte(store: Any) -> None:
    first, second = (StoreMeeting(store, rank, 2, OPTIONS) for rank in range(2))
    value = bytes(range(256))
    asked: list[bytes] = []
    asker = threading.Thread(target=lambda: asked.append(second.ask("key")))
    asker.start()
    assert second.look("other") is None
    first.share("key", value)
    asker.join(PATIENCE)
    assert asked == [value]
    first.share("key", b"")
    assert second.look("key") == second.ask("key") == b""


def test_asking_in_vain_says_who_asked_for_what_and_what_to_do(store: Any) -> None:
    meeting = StoreMeeting(store, 1, 2, LinkOptions(timeout=0.05))
    with pytest.raises(RemoteException, match=r"rank 1 waited 0\.05 s .*'zmq/0'.*WEAVE_LINK_TIMEOUT") as caught:
        meeting.ask("zmq/0")
    assert caught.value.rank == 1
    meeting.share("zmq/0", b"still works")
    assert meeting.ask("zmq/0") == b"still works"


def test_a_programs_own_wait_on_the_store_keeps_nobody_from_asking() -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=10 * PATIENCE))
    meeting = StoreMeeting(store, 0, 2, OPTIONS)
    waiter = threading.Thread(target=lambda: store.wait(["the program's"]), daemon=True)
    waiter.start()
    meeting.share("a", b"1")
    assert meeting.ask("a") == b"1"
    TCPStore("127.0.0.1", store.port, is_master=False).set("the program's", "x")
    waiter.join(PATIENCE)
    assert not waiter.is_alive()


def test_the_address_that_reaches_a_host() -> None:
    assert reaches("127.0.0.1", 9) == reaches("localhost", 9) == "127.0.0.1"
    assert reaches("no.such.host.invalid", 9) == "127.0.0.1"
    if socket.has_ipv6 and os.path.exists("/proc/net/if_inet6"):
        assert reaches("::1", 9) == "::1"


def test_it_binds_where_the_store_is_reached_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def reaches_fake(host: str, port: int) -> str:
        asked.append((host, port))
        return "10.1.2.3"

    monkeypatch.setattr(module, "reaches", reaches_fake)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    assert StoreMeeting(PrefixStore("x", PrefixStore("y", store)), 0, 1, OPTIONS).interface == "10.1.2.3"
    assert asked == [("127.0.0.1", store.port)]
    assert StoreMeeting(HashStore(), 0, 1, OPTIONS).interface == "127.0.0.1"
    assert StoreMeeting(store, 0, 1, LinkOptions(interface="10.9.9.9")).interface == "10.9.9.9"


# --- at an address ---


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_ranks_that_meet_at_an_address() -> None:
    options = LinkOptions(timeout=PATIENCE, address=f"127.0.0.1:{_free_port()}")
    first, second = (meeting_at(rank, 2, options) for rank in range(2))
    ends, hearer = [connect(meeting) for meeting in (first, second)], Hearer()
    ends[0].start(Hearer())
    ends[1].start(hearer)
    ends[0].send(1, [b"x"])
    assert hearer.wait() == [(0, [b"x"])]
    for end in ends:
        end.close(1.0)


def test_rank_size_and_address_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(RemoteException, match=r"RANK is not set"):
        meeting_at(None, None, OPTIONS)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(RemoteException, match=r"WORLD_SIZE is 'two', no number"):
        meeting_at(None, None, OPTIONS)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RemoteException, match=r"WEAVE_LINK_ADDRESS, or MASTER_ADDR"):
        meeting_at(None, None, OPTIONS)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(_free_port()))
    meeting = meeting_at(None, None, OPTIONS)
    assert (meeting.rank, meeting.world_size) == (0, 2)
    # Under torchrun somebody else has opened it: rank 0 joins like the rest.
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    meeting.share("a", b"1")
    assert meeting_at(None, None, OPTIONS).look("a") == b"1"
    with pytest.raises(RemoteException, match=r"rank 2 of 2"):
        meeting_at(2, 2, OPTIONS)


def test_a_store_that_can_not_be_opened() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        options = LinkOptions(timeout=0.5, address=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(RemoteException, match=r"rank 0 can't open the store .*port taken"):
            meeting_at(0, 2, options)


def test_a_store_that_can_not_be_reached() -> None:
    options = LinkOptions(timeout=0.5, address=f"127.0.0.1:{_free_port()}")
    with pytest.raises(RemoteException, match=r"rank 1 could not reach the store .*is rank 0"):
        meeting_at(1, 2, options)


def test_the_ranks_of_torch_distributed() -> None:
    store = HashStore()
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        meeting = meeting_of_group(OPTIONS)
        assert (meeting.rank, meeting.world_size, meeting.options) == (0, 1, OPTIONS)
        meeting.share("a", b"1")
        assert meeting_of_group(OPTIONS).ask("a") == b"1"
    finally:
        distributed.destroy_process_group()
