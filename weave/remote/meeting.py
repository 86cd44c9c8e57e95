"""How ranks find each other: through the store of torch.distributed, or one that rank 0 opens at an address.

Everybody who can read the store is trusted: where ranks listen and what lets a peer in is written there.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from weave.errors import RemoteException
from weave.remote.options import LinkOptions

_PREFIX = "weave link"
_MOST_PAUSE = 0.05


class StoreMeeting:
    """Ranks that meet in a store of torch.distributed's: `TCPStore`, `FileStore`, `HashStore`, or a prefix of one."""

    def __init__(self, store: Any, rank: int, world_size: int, options: LinkOptions) -> None:
        from torch.distributed import PrefixStore  # type: ignore[attr-defined]

        self.rank = rank
        self.world_size = world_size
        self.options = options
        self.interface = options.interface or _interface(store)
        self._given = store  # the server lives in it, where this rank has opened one
        # A connection of its own: a store's methods hold its lock while they wait, so that our asking would keep the
        # program from sharing, and its barrier would keep us from finding a peer.
        with contextlib.suppress(AttributeError, RuntimeError):  # a store made in Python, which has no such lock
            store = store.clone()
        self._store = PrefixStore(_PREFIX, store)

    def share(self, key: str, value: bytes) -> None:
        """Let every rank know this, under a key."""
        try:
            # A store takes text and gives bytes, so it is text of which every byte survives.
            self._store.set(key, value.hex())
        except RuntimeError as error:
            raise self._unreachable(error) from error

    def look(self, key: str) -> bytes | None:
        """What is shared under a key now; `None` where nothing is. Waits for nobody."""
        try:
            return bytes.fromhex(self._store.get(key).decode()) if self._store.check([key]) else None
        except RuntimeError as error:
            raise self._unreachable(error) from error

    def ask(self, key: str) -> bytes:
        """What some rank shares under a key, waiting for it.

        It looks again and again rather than `wait`: a wait that is over time breaks the store's connection.

        Raises:
            RemoteException: the time is over, or the store can't be reached.
        """
        end = time.monotonic() + self.options.timeout
        pause = 0.001
        while (value := self.look(key)) is None:
            if time.monotonic() > end:
                raise RemoteException(
                    f"rank {self.rank} waited {self.options.timeout:g} s for another rank to share {key!r}, in vain. Is it "
                    "running, does it run a graph with remote targets, and does it use the same store? A rank that takes "
                    "longer to get there needs a larger WEAVE_LINK_TIMEOUT",
                    rank=self.rank,
                )
            time.sleep(pause)
            pause = min(2 * pause, _MOST_PAUSE)
        return value

    def _unreachable(self, error: Exception) -> RemoteException:
        return RemoteException(
            f"rank {self.rank} can't reach the store through which ranks find each other ({error}): the process that holds it "
            "(rank 0, or torchrun) has ended or is cut off",
            rank=self.rank,
            kind=type(error).__name__,
            cause_text=str(error),
        )


def meeting_of_group(options: LinkOptions) -> StoreMeeting:
    """The ranks of torch.distributed's default group, whatever its backend."""
    from torch import distributed
    from torch.distributed.distributed_c10d import _get_default_store

    return StoreMeeting(_get_default_store(), distributed.get_rank(), distributed.get_world_size(), options)


def meeting_at(rank: int | None, world_size: int | None, options: LinkOptions) -> StoreMeeting:
    """The ranks that meet at `options.address`, or where the environment says, in a store that rank 0 opens.

    Raises:
        RemoteException: rank, world size or address is not known; the store can't be reached or opened.
    """
    environ = os.environ
    rank = _number("RANK", "rank", environ) if rank is None else rank
    world_size = _number("WORLD_SIZE", "world_size", environ) if world_size is None else world_size
    if not 0 <= rank < world_size:
        raise RemoteException(f"rank {rank} of {world_size}: ranks go from 0 to world_size - 1", rank=rank)
    host, port, serves = _where(rank, options, environ)
    return StoreMeeting(_store(host, port, serves, rank, options), rank, world_size, options)


def _number(variable: str, argument: str, environ: Mapping[str, str]) -> int:
    written = environ.get(variable, "")
    if not written.isdecimal():
        is_what = f"is {written!r}, no number" if written else "is not set"
        raise RemoteException(f"which rank is this? {variable} {is_what}: set it (torchrun does), or give {argument}=")
    return int(written)


def _where(rank: int, options: LinkOptions, environ: Mapping[str, str]) -> tuple[str, int, bool]:
    """Host, port, and whether this rank opens the store."""
    if options.rendezvous is not None:
        return *options.rendezvous, rank == 0
    host, port = environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", "")
    if not host or not port.isdecimal():
        raise RemoteException(
            f"rank {rank} doesn't know where the ranks meet: give LinkOptions(address='host:port'), set "
            "WEAVE_LINK_ADDRESS, or MASTER_ADDR and MASTER_PORT as torchrun does",
            rank=rank,
        )
    # Under torchrun its agent has opened the store already, and says so.
    return host, int(port), rank == 0 and environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"


def _store(host: str, port: int, serves: bool, rank: int, options: LinkOptions) -> Any:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    limit = timedelta(seconds=options.timeout)
    try:
        return TCPStore(host, port, is_master=serves, timeout=limit, wait_for_workers=False)
    except RuntimeError as error:
        what = (
            f"can't open the store at {host}:{port}: is the port taken, or the address another machine's?"
            if serves
            else f"could not reach the store at {host}:{port} within {options.timeout:g} s: is rank 0, which opens it, running, "
            "and does the address lead to its machine?"
        )
        raise RemoteException(
            f"rank {rank} {what} ({error})", rank=rank, kind=type(error).__name__, cause_text=str(error)
        ) from error


def _interface(store: Any) -> str:
    """The address of this machine from which a store's host is reached; the loopback for a store without a host."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    host, port = getattr(store, "host", None), getattr(store, "port", None)
    return reaches(host, port) if host and port else "127.0.0.1"


def reaches(host: str, port: int) -> str:
    """The address of this machine from which packets to a host leave. Sends none."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError:
        return "127.0.0.1"
    # IPv4 first where a name has both: it is what torch's store itself is most often reached by.
    for family, kind, protocol, _, address in sorted(found, key=lambda entry: entry[0] != socket.AF_INET):
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.connect(address)  # a datagram's connect only looks up the way
                return str(probe.getsockname()[0])
            except OSError:
                continue
    return "127.0.0.1"
