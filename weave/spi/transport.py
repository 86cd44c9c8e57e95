"""The transport protocol: how bytes get from rank to rank. Nothing else of weave's knows how.

A transport carries *messages*, each a few frames of bytes, between the ranks of a world. It says when a message's memory
is free again and when a peer is lost. It need not keep messages in order, know what they mean, or hold them back: runs,
channels, credits, failures and the handshake are the link's (`weave.remote.link`), the same for all transports.

`TransportType.connect(meeting)` makes a rank's end of it, an `Endpoint`; what ranks must tell each other first (where
they listen, say) goes through `meeting.share` and `meeting.ask`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


class Hears(Protocol):
    """Who is told what an endpoint hears. Its methods are quick, never block, and may be called from any thread."""

    def came(self, peer: int, frames: Sequence[Buffer]) -> None:
        """A message from a peer. The frames' memory is the receiver's from now on, as long as it holds them."""

    def lost(self, peer: int, why: str) -> None:
        """A peer that was talked to is gone: killed, frozen, cut off, or it has closed its end. Nothing more will come from
        it; what it sent before it closed has come. Said once a peer."""


class Meeting(Protocol):
    """What a transport is given to find the others. Methods block, at most for `options.timeout` seconds."""

    @property
    def rank(self) -> int:
        """This rank."""

    @property
    def world_size(self) -> int:
        """How many ranks there are."""

    @property
    def options(self) -> Any:
        """The link's `weave.remote.LinkOptions`."""

    def share(self, key: str, value: bytes) -> None:
        """Let every rank know this, under a key."""

    def look(self, key: str) -> bytes | None:
        """What some rank shares under a key now, `None` where nobody does. Waits for nobody."""

    def ask(self, key: str) -> bytes:
        """What some rank shares under a key, waiting for it. Raises `RemoteException` when the time is over."""


class Endpoint(Protocol):
    """One rank's end. Every method may be called from any thread, and none of them waits for a peer.

    What a `Hears` or a `gone` raises is nothing to it; they may call `send`.
    """

    def start(self, hears: Hears) -> None:
        """Begin to tell what comes, and what has come before. Called once, before anything is sent."""

    def send(
        self, peer: int, frames: Sequence[Buffer], *, urgent: bool = False, gone: Callable[[], None] | None = None
    ) -> None:
        """Send a message. It is sent whole or, where the peer is lost, not at all; a lost peer is no error here.

        One that is late gets it when it is there. After `close` it is as if the peer were lost.

        Args:
            peer: a rank of the world, not this one.
            frames: at least one, and none is changed before `gone` is called.
            urgent: may overtake others: a few bytes that should not wait behind a gigabyte.
            gone: called once, from any thread, when the frames' memory is no longer needed here (whether it was sent or
                the peer was lost).
        """

    def close(self, linger: float) -> None:
        """Give what was sent at most `linger` seconds to get out, tell nobody anything any more, and leave nothing
        behind: no thread, no socket, no file descriptor. Idempotent."""
