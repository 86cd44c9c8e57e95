"""`LinkOptions`: the link's settings, fixed before it binds. By argument or by environment variables `WEAVE_LINK_*`."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Literal, cast

PROTOCOL = 1  # counts up when messages change, so that two versions of weave say so rather than misread each other
PREFIX = "WEAVE_LINK_"

# What describes a value, and plain values themselves, are objects once they are read, and those take up to some eighty
# times the memory of their bytes. So they have a cap of their own, far below that on a tensor's bytes.
_MOST_HEAD = 16 << 20
_ENVELOPE = 8 << 10  # what is around a head in its message: names and numbers, each of limited length
_LEAST = 64 << 10

_UNITS = {"": 0, "k": 10, "ki": 10, "m": 20, "mi": 20, "g": 30, "gi": 30, "t": 40, "ti": 40}
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_EVERYWHERE = ("*", "0.0.0.0", "::", "[::]")


@dataclass(frozen=True, kw_only=True)
class LinkOptions:
    """How this process talks to other ranks.

    Args:
        security: `"token"`: only who has the link's secret gets in, what is sent can be read on the network. `"curve"`:
            encrypted as well (some four times slower for large tensors). The secret travels through the rendezvous
            store, so whoever can read that is trusted.
        timeout: seconds to wait for a peer: to find it, and to tie its part of a graph.
        max_message_bytes: the largest part of a message that is taken, hence the largest tensor. Refused before memory
            is set aside for it.
        max_frames: of so many parts a message has at most, one for each tensor in a value and one that describes it.
        heartbeat: seconds after which a silent peer is taken for lost.
        linger: seconds that closing gives what was sent to get out.
        credits: how many values of an edge may lie at the receiver before it has taken one.
        debug: a sent tensor that is changed before it has gone is an error.
        address: `"host:port"` of a rendezvous store that rank 0 opens, for use without `torch.distributed`.
        interface: the address to bind to; by default the one that reaches the store.
    """

    security: Literal["token", "curve"] = "token"
    timeout: float = 300.0
    max_message_bytes: int = 4 << 30
    max_frames: int = 4096
    heartbeat: float = 1.0
    linger: float = 1.0
    credits: int = 2
    debug: bool = False
    address: str | None = None
    interface: str | None = None

    def __post_init__(self) -> None:
        for name, (allowed, holds, _) in _RULES.items():
            value = getattr(self, name)
            if not holds(value):
                raise ValueError(f"LinkOptions({name}={value!r}): {allowed}")

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> LinkOptions:
        """The settings that `WEAVE_LINK_SECURITY`, `WEAVE_LINK_TIMEOUT` and so on give; defaults for the rest.

        A variable that is empty counts as not set.

        Raises:
            ValueError: names the variable, its value and what is allowed.
        """
        given: dict[str, Any] = {}
        for variable, written in environ.items():
            if not variable.startswith(PREFIX) or not written.strip():
                continue
            name = variable.removeprefix(PREFIX).lower()
            if name not in _RULES:
                near = get_close_matches(name, _RULES, n=1)
                known = ", ".join(PREFIX + rule.upper() for rule in _RULES)
                said = f"did you mean {PREFIX}{near[0].upper()}?" if near else f"there are {known}"
                raise ValueError(f"{variable}={written!r} is no setting of the link: {said}")
            allowed, holds, read = _RULES[name]
            try:
                given[name] = read(written.strip())
            except ValueError:
                raise ValueError(f"{variable}={written!r}: {allowed}") from None
            if not holds(given[name]):
                raise ValueError(f"{variable}={written!r}: {allowed}")
        return cls(**given)

    @property
    def head_bytes(self) -> int:
        """The most bytes that a value's description takes, plain values included."""
        return min(_MOST_HEAD, self.max_message_bytes - _ENVELOPE)

    @property
    def rendezvous(self) -> tuple[str, int] | None:
        """Host and port of `address`."""
        return None if self.address is None else cast("tuple[str, int]", _host_port(self.address))

    def to_agree(self) -> dict[str, bool | int | float | str | None]:
        """What two ranks must have alike, for the handshake. `disagreements` compares it."""
        return {"protocol": PROTOCOL, **{name: getattr(self, name) for name in _ALIKE}}

    def disagreements(self, theirs: Mapping[str, Any]) -> list[str]:
        """How a peer's `to_agree()` differs from ours, in sentences; empty where it doesn't."""
        ours = self.to_agree()
        return [
            f"{name}: {ours.get(name, 'nothing')!r} here, {theirs.get(name, 'nothing')!r} there"
            for name in [*ours, *sorted(set(theirs) - set(ours))]
            if ours.get(name) != theirs.get(name)
        ]


_ALIKE = ("security", "max_message_bytes", "max_frames", "credits")


def _whole(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and low <= value <= high


def _seconds(value: Any, *, zero: bool = False) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and (value >= 0 if zero else value > 0)


def _bytes(written: str) -> int:
    found = re.fullmatch(r"(\d{1,20})\s*([kmgt]?i?)b?", written.lower())
    if found is None or found[2] not in _UNITS:
        raise ValueError
    return int(found[1]) << _UNITS[found[2]]


def _yes_no(written: str) -> bool:
    if written.lower() in _TRUE:
        return True
    if written.lower() in _FALSE:
        return False
    raise ValueError


def _host_port(address: Any) -> tuple[str, int] | None:
    if not isinstance(address, str):
        return None
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.%\w]+\]|[^\s:\[\]/]+):(\d{1,5})", address)
    if found is None or not 0 < int(found[2]) < 1 << 16:
        return None
    return found[1].strip("[]"), int(found[2])


def _interface(value: Any) -> bool:
    return isinstance(value, str) and bool(re.fullmatch(r"[^\s/]+", value)) and value not in _EVERYWHERE


# By setting: what is allowed, in words; whether a value is; how it is read from a variable's text.
_RULES: dict[str, tuple[str, Callable[[Any], bool], Callable[[str], Any]]] = {
    "security": ("it is 'token' or 'curve'", lambda v: v in ("token", "curve"), str),
    "timeout": ("seconds, more than 0", _seconds, float),
    "max_message_bytes": (
        f"bytes, from {_LEAST} on: a whole number; in a variable also such as 512MiB or 4GiB",
        _whole(_LEAST, (1 << 63) - 1),
        _bytes,
    ),
    "max_frames": ("a whole number from 2 to 65536", _whole(2, 1 << 16), int),
    "heartbeat": ("seconds, more than 0", _seconds, float),
    "linger": ("seconds, 0 or more", lambda v: _seconds(v, zero=True), float),
    "credits": ("a whole number from 1 to 1024", _whole(1, 1024), int),
    "debug": (f"a bool; in a variable one of {', '.join(_TRUE + _FALSE)}", lambda v: isinstance(v, bool), _yes_no),
    "address": (
        "'host:port' of the store that rank 0 opens, such as '10.0.0.1:29500' or '[::1]:29500'",
        lambda v: v is None or _host_port(v) is not None,
        str,
    ),
    "interface": (
        "one address of this machine, such as '10.0.0.1', never all of them",
        lambda v: v is None or _interface(v),
        str,
    ),
}
assert set(_RULES) == {field.name for field in fields(LinkOptions)}, "a setting without a rule"
