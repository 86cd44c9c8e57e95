"""What a `RemoteTarget` does when it fires: sends what was stitched to it, or waits for what is stitched from it."""

from __future__ import annotations

from typing import Any

import anyio

from weave.errors import StitchedModuleException
from weave.graph.targets import RemoteTarget
from weave.remote.codec import decode, encode
from weave.remote.graph import global_peers
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
        where = {"where": f"{port.name!r}", "node": firing.node, "most": link.options}
        encoded = await firing.blocking(lambda: encode(value, **where))
        peers = global_peers(target)
        async with anyio.create_task_group() as group:
            for peer in peers[1:]:
                edge = (link.rank, peer, port.name)
                group.start_soon(_one, link, session, edge, encoded, firing.node, target.blocking)
            edge = (link.rank, peers[0], port.name)
            await link.send(session, edge, encoded, firing.node, blocking=target.blocking)

    async def _receive(self, firing: Firing, target: RemoteTarget, session: Any) -> None:
        (port,) = firing.prepared.outputs
        link = session.link
        (peer,) = global_peers(target)
        head, frames = await link.receive(session, (peer, link.rank, port.name), firing.node)
        where = {"where": f"{port.name!r}", "node": firing.node, "most": link.options}
        large = sum(len(frame) for frame in frames) > _LARGE
        adapts = any(way.adapter is not None for way in port.exits)

        def hand_on() -> None:
            firing.deliver(port, decode(head, frames, **where))

        if large or adapts:
            await firing.blocking(hand_on)
        else:
            hand_on()


async def _one(link: Any, session: Any, edge: Any, encoded: Any, node: str, blocking: bool) -> None:
    await link.send(session, edge, encoded, node, blocking=blocking)


class Prepared:
    """A remote unit's ports."""

    def __init__(self, node: Any) -> None:
        self.inputs = node.inputs
        self.outputs = node.outputs
        self.sends = bool(node.inputs)
