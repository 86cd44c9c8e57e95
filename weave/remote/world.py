"""A world: ranks that can reach one another, and how this process (or thread) finds the one it belongs to.

In order: the world of `run_local`, whose ranks are threads; what `weave.remote.join` was told; torch.distributed, where
the program has initialised it. Links are made when a graph that needs one first runs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from weave.errors import RemoteException
from weave.remote.link import Link
from weave.remote.options import LinkOptions
from weave.spi.records import TransportType
from weave.spi.transport import Meeting


class World:
    """One rank's view of its world."""

    def __init__(self, meeting: Meeting, scheme: str, options: LinkOptions) -> None:
        self.rank = meeting.rank
        self.world_size = meeting.world_size
        self.scheme = scheme
        self.options = options
        self._meeting = meeting
        self._lock = threading.Lock()
        self._links: dict[str, Link] = {}
        self._knots: dict[int, int] = {}
        self._process = os.getpid()

    def names(self, name: str | None, peers: set[int]) -> dict[int, str]:
        """What each peer and this rank call a graph: its name, or the how-manyth with edges between the two it is."""
        with self._lock:
            found = {}
            for peer in sorted(peers):
                if name is not None:
                    found[peer] = name
                else:
                    self._knots[peer] = self._knots.get(peer, 0) + 1
                    found[peer] = f"#{self._knots[peer]}"
            return found

    def link(self, scheme: str, find: Callable[[str], TransportType]) -> Link:
        """The link by a transport, made where there is none. Blocks until the others can be found."""
        self.in_its_process()
        with self._lock:
            link = self._links.get(scheme)
            if link is None or link.closed:
                endpoint = find(scheme).connect(self._meeting)
                link = self._links[scheme] = Link(endpoint, self.rank, self.world_size, self.options)
            return link

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process whose world this is."""
        return self._process != os.getpid()

    def in_its_process(self) -> None:
        """Raise in a forked child, whose links are dead."""
        if self.forked:
            raise RemoteException(
                f"links to other ranks don't survive a fork, and this is a forked child of rank {self.rank}: run the graph "
                "in the parent, or start the child as a process of its own (multiprocessing's spawn)",
                rank=self.rank,
            )

    def release(self, link: Link) -> None:
        """A graph was closed; the last one closes the link."""
        with self._lock:
            if link.idle and not link.closed:
                for scheme, known in list(self._links.items()):
                    if known is link:
                        del self._links[scheme]
                link.close()

    def close(self) -> None:
        """Close all links."""
        if self.forked:
            return
        with self._lock:
            links, self._links = list(self._links.values()), {}
        for link in links:
            link.close()


here: ContextVar[World | None] = ContextVar("weave_world", default=None)
_joined: list[tuple[Any, World]] = []  # at most one, with the process group that it was made from
_joining = threading.Lock()


def join(rank: int | None = None, world_size: int | None = None, *, options: LinkOptions | None = None) -> World:
    """Say which rank this process is, without torch.distributed: the ranks meet at `LinkOptions.address`.

    `rank` and `world_size` are taken from `RANK` and `WORLD_SIZE` where they are not given, the address from
    `WEAVE_LINK_ADDRESS`, or `MASTER_ADDR` and `MASTER_PORT`; that is what torchrun sets.
    """
    from weave.remote.meeting import meeting_at

    options = options or LinkOptions.from_environment()
    with _joining:
        world = World(meeting_at(rank, world_size, options), "zmq", options)
        _joined[:] = [(None, world)]
        return world


def leave() -> None:
    """Close this process's links; what was joined is forgotten."""
    with _joining:
        known, _joined[:] = list(_joined), []
    for _, world in known:
        world.close()


def current() -> World | None:
    """The world that this code belongs to; `None` where there is none."""
    world = here.get()
    if world is not None:
        return world
    with _joining:
        group = _default_group()
        if _joined and (_joined[0][0] is None or _joined[0][0] is group):
            return _joined[0][1]
        if group is None:
            return None
        from weave.remote.meeting import meeting_of_group

        options = LinkOptions.from_environment()
        world = World(meeting_of_group(options), "zmq", options)
        _joined[:] = [(group, world)]
        return world


def _default_group() -> Any:
    """torch.distributed's default group, where the program has made one."""
    from torch import distributed

    return distributed.group.WORLD if distributed.is_available() and distributed.is_initialized() else None
