"""The link: one a process and world, over a transport's endpoint. Handshake, channels, runs and their failures.

Transports tell it what comes, from threads of theirs; runs use it from any number of loops. One lock guards all state; it
is held for a few dictionary operations, and never while anything is sent, woken or raised to others.

How a failure goes round: a run that ends by an exception tells every peer of its graph (`Abort`), with the rank, node
and cause where it began. A peer whose run is under way calls that off, and tells *its* peers the same. One that has not
come to that run remembers it. A lost peer fails every run that may still need it.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import anyio

from weave.errors import PeerLostException, RemoteException, StitchedModuleException, WireException
from weave.observe.recording import text_of
from weave.remote.channels import Overrun, Steps
from weave.remote.graph import Pair, RemoteGraph, RemoteUnit, plain
from weave.remote.options import LinkOptions
from weave.remote.session import Session, text
from weave.remote.waiter import Waiter
from weave.remote.wire import Abort, Bye, RunKey, Taken, Tie, Untie, Value, Want, check_frames, pack, unpack
from weave.spi.transport import Endpoint

if TYPE_CHECKING:
    from weave.remote.codec import Encoded

log = logging.getLogger("weave")

_HEARD = 0.2  # seconds that a failing run gives its peers' transports to take its word


class Link:
    """This process's link to the other ranks of a world."""

    def __init__(self, endpoint: Endpoint, rank: int, world_size: int, options: LinkOptions) -> None:
        self.rank = rank
        self.world_size = world_size
        self.options = options
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._graphs: dict[tuple[int, str], RemoteGraph] = {}  # by peer and the name that both sides know
        self._early: dict[tuple[int, str], list[tuple[Any, Sequence[Any]]]] = {}  # for graphs not tied here yet
        self._lost: dict[int, str] = {}
        self._bye: dict[int, int] = {}  # by peer that said goodbye: how many values it has sent
        self._sent: dict[int, int] = {}
        self._came: dict[int, int] = {}
        self._tying: set[Waiter] = set()
        self.closed = False
        self._process = os.getpid()
        endpoint.start(self)
        # Registered behind the endpoint's own, hence called before it: the word still gets out.
        atexit.register(self._at_exit)

    # --- graphs ---

    def tie(self, units: Iterable[RemoteUnit], names: dict[int, str]) -> RemoteGraph:
        """Tell the peers which edges a graph has with each. What they say is compared in `agree`."""
        graph = RemoteGraph(self.rank, units, names, self.options.credits)
        with self._lock:
            for peer, pair in graph.pairs.items():
                self._graphs[peer, pair.name] = graph
                pair.gone = self._lost.get(peer, "") or ("it has closed its link" if peer in self._bye else "")
            early = [
                (peer, *heard) for peer, pair in graph.pairs.items() for heard in self._early.pop((peer, pair.name), [])
            ]
            for peer, pair in graph.pairs.items():
                self._counts_sent(peer, pair)
        for peer, pair in graph.pairs.items():
            self._send(peer, Tie(pair.name, pair.edges, self.options.to_agree()), urgent=True)
        for peer, message, frames in early:
            self._message(peer, message, frames)
        return graph

    async def agree(self, graph: RemoteGraph, timeout: float | None = None) -> None:
        """Wait until every peer has said which edges it has, and compare.

        Raises:
            GraphMismatchException: they differ; on both ranks.
            PeerLostException, RemoteException: a peer is gone, or doesn't come within the time-out.
        """
        limit = self.options.timeout if timeout is None else timeout
        with anyio.move_on_after(limit):
            while True:
                waiter = Waiter()
                with self._lock:
                    if self._agreed(graph):
                        return
                    self._tying.add(waiter)
                try:
                    await waiter.wait()
                finally:
                    with self._lock:
                        self._tying.discard(waiter)
        absent = [pair for pair in graph.pairs.values() if pair.theirs is None]
        raise RemoteException(
            f"rank {self.rank} waited {limit:g} s for rank {', '.join(str(pair.peer) for pair in absent)} to tie its part of "
            f"the graph ({absent[0].name if absent else ''}), in vain. Each rank must tie (and run) a graph with these edges: "
            + "; ".join(f"{key!r}" for pair in absent for _, _, key in pair.edges[:4]),
            rank=absent[0].peer if absent else None,
        )

    def _agreed(self, graph: RemoteGraph) -> bool:
        for pair in graph.pairs.values():
            mismatch = pair.mismatch(self.rank, self.options)
            if mismatch is not None:
                raise mismatch
            if pair.theirs is None and pair.gone:
                raise self._lost_error(pair)
        return all(pair.theirs is not None for pair in graph.pairs.values())

    def untie(self, graph: RemoteGraph) -> None:
        """A graph is closed."""
        with self._lock:
            if graph.closed:
                return
            graph.closed = True
            for peer, pair in graph.pairs.items():
                self._graphs.pop((peer, pair.name), None)
        for peer, pair in graph.pairs.items():
            self._send(peer, Untie(pair.name, pair.sent))

    @property
    def idle(self) -> bool:
        """Whether no graph is tied."""
        with self._lock:
            return not self._graphs

    def close(self) -> None:
        """Say goodbye and leave nothing behind."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
        atexit.unregister(self._at_exit)
        self._say_goodbye()
        self._endpoint.close(self.options.linger)

    def _say_goodbye(self) -> None:
        for peer, sent in list(self._sent.items()):  # those with whom a graph was tied, and no others
            if peer not in self._lost:
                self._send(peer, Bye(sent))

    def _at_exit(self) -> None:
        """A program that ends without closing has gone in good order: who needs nothing more of it goes on.

        The endpoint sees to its own end. A forked child has no link.
        """
        if os.getpid() == self._process:
            with contextlib.suppress(Exception):  # nobody is left to tell
                self._say_goodbye()

    # --- runs ---

    def begin(self, graph: RemoteGraph, key: int | str | None, item: tuple[int, int] | None) -> Session:
        """A run begins. Before its arguments are checked, so that a run refused on one rank counts on all."""
        with self._lock:
            if self.closed or graph.closed:
                raise StitchedModuleException("the graph was closed; tie it anew: needle.knot()")
            session = graph.begin(key, item)
            session.link = self
            for peer, abort in graph.recalled(session.key):
                session.fail(self._abort_error(peer, abort))
                session.told.add(peer)
            for pair in graph.pairs.values():
                if pair.gone and pair.peer in self._lost:
                    session.fail(self._lost_error(pair))
        return session

    def end(self, session: Session) -> None:
        """A run is over here, whichever way."""
        steps: dict[int, Steps] = {}
        with self._lock:
            session.graph.runs.pop(session.key, None)
            for peer, pair in session.graph.pairs.items():
                pair.sending.forget(session.key)
                pair.receiving.forget(session.key, steps.setdefault(peer, Steps()))
        for peer, due in steps.items():
            self._do(peer, due)

    async def abort(self, session: Session, error: BaseException, node: str, *, cancelled: bool) -> None:
        """A run has failed here: tell every peer that doesn't know, and give their transports a moment to take it."""
        origin = session.failure if session.failure is not None else error
        while isinstance(origin, BaseExceptionGroup):
            origin = origin.exceptions[0]
        if isinstance(origin, RemoteException) and origin.rank is not None:
            rank, node, cause = origin.rank, origin.node, origin.cause_text or text_of(origin)
            kind = origin.kind or type(origin).__qualname__
            cancelled = origin.cancelled  # heard of: what it was where it began
        else:
            rank, kind, cause = self.rank, type(origin).__qualname__, text_of(origin)
        left = threading.Semaphore(0)
        peers = [peer for peer in session.graph.pairs if peer not in session.told and peer not in self._lost]
        all_gone = Waiter()

        def gone() -> None:
            left.release()
            all_gone.wake()

        for peer in peers:
            name = session.graph.pairs[peer].name
            self._send(
                peer, Abort(name, session.key, rank, node, kind, cause[:2000], cancelled), urgent=True, gone=gone
            )
        heard = 0
        with anyio.move_on_after(_HEARD, shield=True):
            while heard < len(peers):
                while left.acquire(blocking=False):
                    heard += 1
                if heard < len(peers):
                    await all_gone.wait()
                    all_gone = Waiter()

    async def send(
        self, session: Session, edge: tuple[int, int, str], value: Encoded, node: str, *, blocking: bool
    ) -> None:
        """Send a value on an edge: waits for credit, and where it is `blocking`, until its memory is free again."""
        pair = session.graph.pairs[edge[1]]
        slot = (pair.channels[edge], session.key)
        waiter: Waiter | None = None
        others: list[Waiter] = []
        try:
            while True:
                with self._lock:
                    session.raise_failure()
                    if pair.gone:
                        raise self._lost_error(pair, node)
                    if waiter is not None:
                        pair.sending.unblock(slot, waiter)
                        session.waiters.discard(waiter)
                        waiter = None
                    if pair.sending.try_send(slot):
                        # One waiter may have been woken for two credits, or for one that it did not need: pass it on.
                        others = pair.sending.again(slot[0])
                        break
                    waiter = Waiter()
                    pair.sending.block(slot, waiter)
                    session.waiters.add(waiter)
                await waiter.wait()
        except BaseException:
            if waiter is not None:
                with self._lock:
                    pair.sending.unblock(slot, waiter)
                    session.waiters.discard(waiter)
                    others = pair.sending.again(slot[0])
            raise
        finally:
            for other in others:
                other.wake()
        await self._send_value(session, pair, slot, value, node, blocking=blocking)

    async def _send_value(
        self, session: Session, pair: Pair, slot: tuple[int, RunKey], value: Encoded, node: str, *, blocking: bool
    ) -> None:
        message = Value(pair.name, slot[0], session.key, value.head)
        waiter = Waiter() if blocking else None
        tensors = value.tensors if self.options.debug else []

        def gone() -> None:
            changed = [place for place, (tensor, version) in enumerate(tensors) if tensor._version != version]
            if changed:
                self._changed(session, node)
            if waiter is not None:
                waiter.wake()

        with self._lock:
            self._counts_sent(pair.peer, pair)
            if waiter is not None:
                session.waiters.add(waiter)
        try:
            self._send(pair.peer, message, value.frames, gone=gone if blocking or tensors else None)
            if waiter is not None:
                await waiter.wait()
                with self._lock:
                    session.raise_failure()
        finally:
            if waiter is not None:
                with self._lock:
                    session.waiters.discard(waiter)

    def _changed(self, session: Session, node: str) -> None:
        error = RemoteException(
            f"a tensor that {node!r} sends was changed in place before it had gone: keep it as it is until then "
            '(blocking=True waits for that), or send a copy: adapter="clone"',
            node=node,
            rank=self.rank,
        )
        with self._lock:
            under_way = session.key in session.graph.runs
            waiters = session.fail(error) if under_way else []
        if not under_way:
            log.error("weave: %s", error)
        for waiter in waiters:
            waiter.wake()

    async def receive(self, session: Session, edge: tuple[int, int, str], node: str) -> tuple[bytes, Sequence[Any]]:
        """Wait for the value of an edge: its head and its frames."""
        pair = session.graph.pairs[edge[0]]
        slot = (pair.channels[edge], session.key)
        while True:
            steps = Steps()
            with self._lock:
                session.raise_failure()
                arrived = pair.receiving.take(slot, steps)
                if arrived is None:
                    if pair.gone:
                        raise self._lost_error(pair, node)
                    waiter = Waiter()
                    session.waiters.add(waiter)
                    pair.receiving.wait(slot, waiter, steps)
            self._do(pair.peer, steps)
            if arrived is not None:
                return arrived.head, arrived.frames
            try:
                await waiter.wait()
            finally:
                with self._lock:
                    pair.receiving.unwait(slot)
                    session.waiters.discard(waiter)

    # --- what comes ---

    def came(self, peer: int, frames: Sequence[Any]) -> None:
        """A message from a peer."""
        try:
            check_frames(frames, self.options)
            message = unpack(frames[0])
        except WireException as error:
            self.lost(peer, f"it sent what is no message of weave's ({error})")
            return
        try:
            self._message(peer, message, frames[1:])
        except Overrun as error:
            self.lost(peer, f"it sent more than it was granted ({error})")
        except Exception as error:
            log.error("weave: a message from rank %s could not be handled: %r", peer, error, exc_info=error)
            self.lost(peer, f"its message could not be handled ({error!r})")

    def _message(self, peer: int, message: Any, frames: Sequence[Any]) -> None:
        steps = Steps()
        if isinstance(message, Bye):
            with self._lock:
                self._bye[peer] = message.sent
                self._see_goodbye(peer, steps)
            self._do(peer, steps)
            return
        with self._lock:
            graph = self._graphs.get((peer, message.graph))
            if graph is None:
                self._for_later(peer, message, frames)
                return
            pair = graph.pairs[peer]
            if isinstance(message, Tie):
                pair.theirs, pair.their_options = plain(message.edges), message.options
                self._counts_come(peer, pair)
                steps.wake += list(self._tying)
            elif isinstance(message, Untie):
                pair.last = message.sent
            elif isinstance(message, Value):
                if not 0 <= message.channel < len(pair.edges) or pair.edges[message.channel][0] != peer:
                    raise Overrun(f"there is no channel {message.channel} from it")
                self._counts_come(peer, pair)
                pair.receiving.came(message, frames, over=graph.over(message.run), steps=steps)
            elif isinstance(message, Want):
                if not graph.over(message.run):
                    pair.sending.want((message.channel, message.run), steps)
            elif isinstance(message, Taken):
                pair.sending.taken((message.channel, message.run), steps)
            elif isinstance(message, Abort):
                session = graph.runs.get(message.run)
                if session is not None:
                    session.told.add(peer)
                    steps.wake += session.fail(self._abort_error(peer, message))
                elif not graph.over(message.run):
                    graph.remember(peer, message)
            self._see_end(graph, pair, steps)
        self._do(peer, steps)

    def _for_later(self, peer: int, message: Any, frames: Sequence[Any]) -> None:
        """For a graph that is not tied here yet, or no more."""
        early = self._early.setdefault((peer, message.graph), [])
        if isinstance(message, Tie):
            early[:] = [heard for heard in early if not isinstance(heard[0], Tie)]
        if isinstance(message, Untie | Taken | Want):
            return
        if len(early) < 256:
            early.append((message, frames))

    def lost(self, peer: int, why: str) -> None:
        """A peer is gone."""
        with self._lock:
            if peer in self._lost or self.closed:
                return
            clean = peer in self._bye
            if not clean:
                self._lost[peer] = why
            wake = self._gone(peer, why, every_run=not clean)
        for waiter in wake:
            waiter.wake()

    # A transport may bring a goodbye before what was sent before it, so goodbyes say how much that was.

    def _counts_sent(self, peer: int, pair: Pair) -> None:
        pair.sent += 1
        self._sent[peer] = self._sent.get(peer, 0) + 1

    def _counts_come(self, peer: int, pair: Pair) -> None:
        pair.came += 1
        self._came[peer] = self._came.get(peer, 0) + 1

    def _see_end(self, graph: RemoteGraph, pair: Pair, steps: Steps) -> None:
        """The peer has closed its part of a graph: nothing more will come, once all that it sent has."""
        if pair.last is not None and pair.came >= pair.last and not pair.gone:
            pair.gone = f"rank {pair.peer} has closed its part of the graph"
            steps.wake += [waiter for session in graph.runs.values() for waiter in session.waiters] + list(self._tying)
        if pair.peer in self._bye:
            self._see_goodbye(pair.peer, steps)

    def _see_goodbye(self, peer: int, steps: Steps) -> None:
        if self._came.get(peer, 0) >= self._bye[peer]:
            steps.wake += self._gone(peer, f"rank {peer} has closed its link", every_run=False)

    def _gone(self, peer: int, why: str, *, every_run: bool) -> list[Waiter]:
        """Nothing more will come from a peer. Where it said goodbye, only who still waits for it fails."""
        wake = list(self._tying)
        for (known, _), graph in self._graphs.items():
            if known == peer:
                pair = graph.pairs[peer]
                pair.gone = why
                for session in list(graph.runs.values()):
                    session.told.add(peer)
                    wake += session.fail(self._lost_error(pair)) if every_run else list(session.waiters)
        return wake

    # --- words for it ---

    def _lost_error(self, pair: Pair, node: str = "") -> PeerLostException:
        who = f"{node!r} needs rank {pair.peer}, which" if node else f"rank {pair.peer}"
        return PeerLostException(
            f"{who} is gone (seen from rank {self.rank}): {pair.gone}. Runs that need it can't go on; start the ranks anew",
            node=node,
            rank=pair.peer,
        )

    def _abort_error(self, peer: int, abort: Abort) -> RemoteException:
        way = "" if abort.rank == peer else f" (heard from rank {peer})"
        where = f"in node {abort.node!r} " if abort.node else ""
        what = "was cancelled" if abort.cancelled else f"failed {where}by {abort.kind}: {abort.text}"
        # A loss is a loss, also where another rank saw it first.
        kind = PeerLostException if abort.kind == PeerLostException.__name__ else RemoteException
        if kind is PeerLostException:
            what, way = abort.text, f" (heard from rank {peer})"
        else:
            what = f"rank {abort.rank} {what}"
        return kind(
            f"{what}{way}, in {text(abort.run)} of the graph {abort.graph!r}",
            node=abort.node,
            rank=abort.rank,
            kind=abort.kind,
            cause_text=abort.text,
            cancelled=abort.cancelled,
        )

    # --- sending ---

    def _do(self, peer: int, steps: Steps) -> None:
        for message in steps.messages:
            self._send(peer, message, urgent=True)
        for waiter in steps.wake:
            waiter.wake()

    def _send(
        self, peer: int, message: Any, frames: Sequence[Any] = (), *, urgent: bool = False, gone: Any = None
    ) -> None:
        self._endpoint.send(peer, [pack(message), *frames], urgent=urgent, gone=gone)
