"""What a `RemoteTarget` does when it fires: sends what was stitched to it, or waits for what is stitched from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio

from weave.engine.watch import watching
from weave.errors import StitchedModuleException
from weave.graph.targets import RemoteTarget
from weave.observe.describe import facts, size
from weave.observe.recording import clock
from weave.remote.codec import decode, encode
from weave.remote.graph import Edge, global_peers
from weave.remote.session import session_here
from weave.spi.executor import Firing

# A value of more bytes is encoded or decoded in a worker thread where it has to be copied: 5 ms at 16 MB.
_LARGE = 1 << 20


class RemoteExecutor:
    """Sends and receives, over the link of the run's session."""

    async def fire(self, firing: Firing) -> None:
        """One key: a unit of the plan for each that is sent or received."""
        target: Any = firing.target
        session = session_here.get()
        if session is None:
            raise StitchedModuleException(f"{firing.node!r} fires outside a run of its graph")
        if firing.prepared.sends:
            await self._send(firing, target, session)
        else:
            await self._receive(firing, target, session)

    async def _send(self, firing: Firing, target: RemoteTarget, session: Any) -> None:
        (port,) = firing.prepared.inputs
        link = session.link
        reduces = any(edge.reducer is not None for edge in port.edges)
        value = await firing.blocking(firing.inputs, port) if reduces else firing.inputs(port)
        where = {"where": port.name, "node": firing.node, "most": link.options}
        if size(facts(value)) > _LARGE:
            encoded = await firing.blocking(lambda: encode(value, **where))
        else:
            encoded = encode(value, **where)
        edges = [(link.rank, peer, port.name) for peer in global_peers(target)]
        if len(edges) == 1:
            await _one(link, session, edges[0], encoded, firing.node, target.blocking)
            return
        raised: list[Exception] = []

        async def one(edge: Edge) -> None:  # a group would wrap what it raises
            try:
                await _one(link, session, edge, encoded, firing.node, target.blocking)
            except Exception as error:
                raised.append(error)
                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for edge in edges:
                group.start_soon(one, edge)
        if raised:
            raise raised[0]

    async def _receive(self, firing: Firing, target: RemoteTarget, session: Any) -> None:
        (port,) = firing.prepared.outputs
        link = session.link
        (peer,) = global_peers(target)
        edge = (peer, link.rank, port.name)
        with _told(link, session, edge, firing.node, "receive") as told:
            head, frames = await link.receive(session, edge, firing.node)
            told["bytes"] = came = sum(len(frame) for frame in frames)
        where = {"where": port.name, "node": firing.node, "most": link.options}
        adapts = any(way.adapter is not None for way in port.exits)

        def hand_on() -> None:
            firing.deliver(port, decode(head, frames, **where))

        if came > _LARGE or adapts:
            await firing.blocking(hand_on)
        else:
            hand_on()


async def _one(link: Any, session: Any, edge: Edge, encoded: Any, node: str, blocking: bool) -> None:
    with _told(link, session, edge, node, "send") as told:
        told["value"], told["bytes"] = encoded.text, sum(memoryview(frame).nbytes for frame in encoded.frames)
        await link.send(session, edge, encoded, node, blocking=blocking)


@contextmanager
def _told(link: Any, session: Any, edge: Edge, node: str, direction: str) -> Iterator[dict[str, Any]]:
    """Around a transfer, for whoever watches the run. What is put into the dict is told at its end."""
    told: dict[str, Any] = {}
    notes = watching.get()
    if notes is None:
        yield told
        return
    peer = edge[1] if edge[0] == link.rank else edge[0]
    said = {
        "transfer": session.transfer(edge),
        "node": node,
        "direction": direction,
        "peer": peer,
        "port": edge[2],
    }
    since = clock()
    notes.transfer("transfer.started", said)
    try:
        yield told
    except BaseException as error:
        notes.transfer("transfer.failed", {**said, "duration_ms": (clock() - since) / 1e6}, error)
        raise
    notes.transfer("transfer.finished", {**said, "duration_ms": (clock() - since) / 1e6, **told})


class Prepared:
    """A remote unit's ports."""

    def __init__(self, node: Any) -> None:
        self.inputs = node.inputs
        self.outputs = node.outputs
        self.sends = bool(node.inputs)
