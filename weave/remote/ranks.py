"""What a `StitchedModule` has of other ranks: its edges, its link, and its runs' sessions."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread

from weave.errors import KnotException, RemoteException
from weave.graph.plan import Plan
from weave.remote.graph import RemoteGraph, RemoteUnit, check_edges, remote_units
from weave.remote.link import Link
from weave.remote.session import Session, session_here
from weave.remote.world import World, current
from weave.spi.records import TransportType


class Ranks:
    """A graph's other ranks. Shared by its views; a copy of the graph has its own."""

    def __init__(
        self, plan: Plan, units: Sequence[RemoteUnit], name: str | None, find: Callable[[str], TransportType]
    ) -> None:
        self._plan = plan
        self._units = units
        self._name = name
        self._find = find
        self._lock = threading.Lock()
        self._world: World | None = None
        self._names: dict[int, str] | None = None
        self._link: Link | None = None
        self._graph: RemoteGraph | None = None
        self._agreed = False
        self._streams = 0
        schemes = {unit.transport for unit in units}
        if len(schemes) > 1:
            raise KnotException(
                f"the graph's remote targets name several transports ({', '.join(map(repr, sorted(map(str, schemes))))}): "
                "one graph uses one; tie two graphs, or let all name the same"
            )
        self._scheme = schemes.pop()
        self._joins(current())  # its place in the count of knots, where the world is known already

    @classmethod
    def of(cls, plan: Plan, name: str | None, find: Callable[[str], TransportType]) -> Ranks | None:
        """A plan's; `None` where nothing of it is remote."""
        units = remote_units(plan)
        return cls(plan, units, name, find) if units else None

    def _joins(self, world: World | None) -> None:
        if world is None or self._names is not None:
            return
        self._units = remote_units(self._plan)  # peers count in their process groups, which are known now
        problems = check_edges(self._units, world.rank, world.world_size)
        if problems:
            raise KnotException("; ".join(problems))
        self._world = world
        self._names = world.names(self._name, {peer for unit in self._units for peer in unit.peers})

    def stream(self) -> int:
        """A stream over the graph begins."""
        with self._lock:
            self._streams += 1
            return self._streams - 1

    @asynccontextmanager
    async def run(self, key: int | str | None, item: tuple[int, int] | None) -> AsyncIterator[Session]:
        """Around a run: it has an identity on all ranks, hears of their failures, and they of its."""
        if self._graph is None:
            raised: list[Exception] = []
            await anyio.to_thread.run_sync(self._connect, raised, limiter=anyio.CapacityLimiter(1))
            if raised:
                raise raised.pop()  # not through the thread's future, which its traceback would hold
        elif self._world is not None:
            self._world.in_its_process()
        link, graph = self._link, self._graph
        assert link is not None
        assert graph is not None
        session = link.begin(graph, key, item)
        token = session_here.set(session)
        try:
            if not self._agreed:
                await link.agree(graph, min((u.timeout for u in self._units if u.timeout is not None), default=None))
                self._agreed = True
            session.raise_failure()
            yield session
        except BaseException as error:
            cancelled = isinstance(error, anyio.get_cancelled_exc_class()) or not isinstance(error, Exception)
            await link.abort(
                session, error, session.failed_at(), cancelled=cancelled or isinstance(error, TimeoutError)
            )
            raise
        finally:
            session_here.reset(token)
            link.end(session)

    def _connect(self, raised: list[Exception]) -> None:
        try:
            self._join_and_tie()
        except Exception as error:
            raised.append(error)

    def _join_and_tie(self) -> None:
        with self._lock:
            if self._graph is not None:
                return
            self._joins(current())
            if self._world is None or self._names is None:
                unit = self._units[0]
                peers = ", ".join(map(str, unit.peers))
                raise RemoteException(
                    f"{unit.node!r} would talk to rank {peers}, and this process belongs to no world of ranks: initialise "
                    "torch.distributed before the run (init_process_group under torchrun), call weave.remote.join(...), or "
                    "try it in threads with weave.remote.run_local(...)",
                    node=unit.node,
                    rank=unit.peers[0],
                )
            self._link = self._world.link(self._scheme or self._world.scheme, self._find)
            self._graph = self._link.tie(self._units, self._names)

    def close(self) -> None:
        """Give the graph's channels back; the last graph closes the link."""
        with self._lock:
            if (
                self._link is not None
                and self._graph is not None
                and self._world is not None
                and not self._world.forked
            ):
                self._link.untie(self._graph)
                self._world.release(self._link)
