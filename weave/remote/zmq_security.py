"""Who gets in. ZeroMQ asks the gate, in the link's own thread, about every connection before a message can come of it.

A *card* is what a rank shares of itself with the others through the store: where it listens, and what lets a peer in.
Everybody who can read the store is trusted, nobody else. Each time a rank makes an endpoint it is a new *life* of that
rank, so that what is left over from an earlier one can't be taken for it.

- `token`: ZeroMQ's PLAIN mechanism. The password is an HMAC, keyed by the listener's secret on its card, of who calls
  and who listens. It proves that the caller has read the store. What is sent can be read, and by who reads it the
  password be used again: for networks that one trusts.
- `curve`: CurveZMQ. Each endpoint makes a pair of keys, and only the public one is on its card. A caller is known by
  its key; whose it is, is looked up in the store. Who doesn't know the listener's key can't even ask to be let in.

ZeroMQ hands the gate's word, the *user id*, on with every message of a connection. That says whom a message is from,
never anything the peer itself writes: one rank can't speak for another.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
import zmq
import zmq.utils.z85

from weave.remote.options import PROTOCOL

log = logging.getLogger("weave")

Lane: TypeAlias = Literal["control", "data"]
LATER = 500  # the gate's answer after which a caller tries again
LANES: tuple[Lane, Lane] = ("control", "data")


class Card(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a rank shares of itself. Empty bytes in its place: it has closed its link."""

    protocol: int
    rank: int
    life: str
    security: str
    key: bytes
    control: str
    data: str
    max_message_bytes: int
    max_frames: int
    host: str


_read_card = msgspec.msgpack.Decoder(Card).decode


def write(card: Card) -> bytes:
    """A card as bytes."""
    return msgspec.msgpack.encode(card)


def read(data: bytes, rank: int, security: str) -> Card | str:
    """A card, or what is wrong with it."""
    try:
        card = _read_card(data)
    except msgspec.DecodeError as error:
        return f"what it shares of itself can't be read ({error}): all ranks need the same version of weave"
    if card.protocol != PROTOCOL:
        return f"it speaks version {card.protocol} of the link and this rank {PROTOCOL}: all ranks need the same version of weave"
    if card.security != security:
        how = f"its link has security={card.security!r} and this rank's {security!r}"
        return f"{how}: give all ranks the same WEAVE_LINK_SECURITY"
    if card.rank != rank:
        return f"what it shares of itself is rank {card.rank}'s"
    return card


def card_key(rank: int) -> str:
    """Under what a rank's card is shared."""
    return f"zmq/{rank}"


def life_key(life: str) -> str:
    """Under what is shared whose life it is."""
    return f"zmq/life/{life}"


class Token:
    """A secret that whoever reads the card can show to have read."""

    looked_up = False

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.life = secrets.token_hex(8)
        self.key = secrets.token_bytes(32)

    def listen(self, listener: Any) -> None:
        """Have a socket ask for it."""
        listener.plain_server = True

    def call(self, caller: Any, card: Card) -> None:
        """Have a socket show it to the rank of a card."""
        who = f"{self.rank}:{self.life}"
        caller.plain_username = who.encode()
        caller.plain_password = self._password(card.key, who, f"{card.rank}:{card.life}").encode()

    def admit(self, mechanism: bytes, credentials: Sequence[bytes]) -> tuple[int, str] | str | None:
        """The rank and life that shows it, or `None`."""
        if mechanism != b"PLAIN" or len(credentials) != 2:
            return None
        who = credentials[0].decode("ascii", "replace")
        password = self._password(self.key, who, f"{self.rank}:{self.life}")
        if not hmac.compare_digest(password.encode(), credentials[1]):
            return None
        rank, _, life = who.partition(":")
        return int(rank), life

    @staticmethod
    def _password(key: bytes, caller: str, listener: str) -> str:
        return hmac.new(key, f"{caller}->{listener}".encode(), hashlib.sha256).hexdigest()


class Curve:
    """A pair of keys for each endpoint. Its life is named by the public one."""

    looked_up = True

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.key, self._private = zmq.curve_keypair()
        self.life = self.key.hex()

    def listen(self, listener: Any) -> None:
        """Have a socket ask for a caller's key."""
        listener.curve_server = True
        listener.curve_secretkey = self._private

    def call(self, caller: Any, card: Card) -> None:
        """Have a socket show its key to the rank of a card, and nobody else."""
        caller.curve_serverkey = card.key
        caller.curve_publickey, caller.curve_secretkey = self.key, self._private

    def admit(self, mechanism: bytes, credentials: Sequence[bytes]) -> tuple[int, str] | str | None:
        """The life whose key it is; the rank is to be looked up."""
        if mechanism != b"CURVE" or len(credentials) != 1 or len(credentials[0]) != 32:
            return None
        return zmq.utils.z85.encode(credentials[0]).hex()


def security_of(name: str, rank: int) -> Token | Curve:
    """A rank's, new for each endpoint."""
    if name == "curve" and not zmq.has("curve"):
        raise ValueError('security="curve": this pyzmq was built without it (libsodium); install the wheel from PyPI')
    return Curve(rank) if name == "curve" else Token(rank)


class Gate:
    """ZeroMQ's authentication protocol (RFC 27), served in the link's thread.

    Args:
        context: whose sockets ask.
        security: how a caller shows who it is.
        decide: is asked with rank and life; says "in" (let in), "later" (the caller is to try again) or
            "out".
        look_up: is told a life whose rank is not known, and whom to tell once it is; says whether it will.
    """

    def __init__(
        self,
        context: zmq.Context[Any],
        security: Token | Curve,
        decide: Callable[[int, str], Literal["in", "later", "out"]],
        look_up: Callable[[str, Callable[[str, int | None], None]], bool],
    ) -> None:
        # A ROUTER, not the usual REP, so that an answer that takes a look into the store keeps no other waiting.
        self.socket = context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.bind("inproc://zeromq.zap.01")
        self._security = security
        self._decide = decide
        self._look_up = look_up
        self._ranks: dict[str, int] = {}
        self._waiting: dict[str, list[list[bytes]]] = {}

    def serve(self) -> None:
        """Answer what is asked."""
        while True:
            try:
                request = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(request) < 8 or request[2] != b"1.0":
                continue  # not from libzmq, which asks so
            try:
                who = self._security.admit(request[7], request[8:])
            except ValueError:
                who = None
            if isinstance(who, str):
                if who in self._ranks:
                    self._answer(request, (self._ranks[who], who))
                elif who in self._waiting or self._look_up(who, self.known):
                    self._waiting.setdefault(who, []).append(request)
                else:
                    self._answer(request, None)
            else:
                self._answer(request, who)

    def known(self, life: str, rank: int | None) -> None:
        """Whose life it is has been looked up; `None`: nobody's."""
        if rank is not None:
            self._ranks[life] = rank
        for request in self._waiting.pop(life, ()):
            self._answer(request, None if rank is None else (rank, life))

    def _answer(self, request: list[bytes], who: tuple[int, str] | None) -> None:
        verdict = "out" if who is None else self._decide(*who)
        if verdict == "out":
            log.warning(
                "weave: refused a connection from %s that didn't show who it is", request[5].decode("ascii", "replace")
            )
        # Not 300, "for the time being": with it libzmq 4.3.5 leaves the caller without an answer until its handshake is
        # over time. A 500 is told to the caller's monitor.
        status = {"in": b"200", "later": b"%d" % LATER, "out": b"400"}[verdict]
        user = f"{who[0]}:{who[1]}".encode() if who is not None and verdict == "in" else b""
        self.socket.send_multipart([request[0], b"", b"1.0", request[3], status, b"", user, b""])
