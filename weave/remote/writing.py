"""From a value to its head and frames. `weave.remote.codec` says what travels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import torch

from weave.remote.heads import (
    BYTES,
    DEEPEST,
    DICT,
    FRAMED,
    LARGE_INT,
    LIST,
    MOST_ITEMS,
    OBJECT,
    SURROGATES,
    TENSOR,
    TUPLE,
    Node,
    step,
)
from weave.remote.options import LinkOptions
from weave.remote.registered import Codec, codec_for
from weave.remote.tensors import Refused, written
from weave.spi.transport import Buffer

_SMALLEST, _LARGEST = -(1 << 63), (1 << 64) - 1  # of msgpack's integers


class Writer:
    """Makes a head of a value, gathering its frames."""

    def __init__(self, most: LinkOptions) -> None:
        self.frames: list[Buffer] = []
        self.tensors: list[tuple[torch.Tensor, int]] = []
        self._most = most
        self._open: set[int] = set()  # the containers around the one at hand
        self._items = 0

    def node(self, value: Any) -> Node:
        """What the head says of a value."""
        self._items += 1
        if self._items > MOST_ITEMS:
            raise Refused(f"has more than {MOST_ITEMS} values in it: make tensors of them")
        kind = type(value)
        if value is None or kind is bool or kind is float:
            return value
        if kind is int:
            if _SMALLEST <= value <= _LARGEST:
                return value
            return [LARGE_INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)]
        if kind is str:
            return self._str(value)
        if kind is bytes:
            return value if len(value) < FRAMED else [BYTES, self._frame(value)]
        if kind is list or kind is tuple:
            return self._inside(value, lambda: [LIST if kind is list else TUPLE, *self._each(value)])
        if kind is dict:
            return self._inside(value, lambda: self._dict(value, False))
        codec = codec_for(value)
        if codec is not None:
            return self._inside(value, lambda: self._object(value, codec))
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        raise Refused(_unknown(value))

    def _str(self, value: str) -> Node:
        if value.isascii():
            return value
        try:
            value.encode()
        except UnicodeEncodeError:  # half of a character: a file's name, a tokenizer's piece
            return [SURROGATES, value.encode("utf-8", "surrogatepass")]
        return value

    def _frame(self, frame: Buffer) -> int:
        count = memoryview(frame).nbytes
        if count > self._most.max_message_bytes:
            raise Refused(
                f"is of {count} bytes, and at most {self._most.max_message_bytes} are sent: send it in pieces"
            )
        if len(self.frames) + 2 > self._most.max_frames:  # this one, and the message's own
            raise Refused(
                f"is one tensor too many: a message has at most {self._most.max_frames} parts. Send them in fewer, larger "
                "tensors, or raise LinkOptions(max_frames=...) or WEAVE_LINK_MAX_FRAMES on every rank"
            )
        self.frames.append(frame)
        return count

    def _tensor(self, tensor: torch.Tensor) -> Node:
        said, frame, own = written(tensor, self._most.max_message_bytes)
        self._frame(frame)
        if own and self._most.debug and not tensor.is_inference():  # inference tensors count no versions
            self.tensors.append((tensor, tensor._version))
        return [TENSOR, *said]

    def _inside(self, value: Any, make: Callable[[], Node]) -> Node:
        if id(value) in self._open:
            raise Refused("holds itself")
        if len(self._open) >= DEEPEST:
            raise Refused(f"is nested more than {DEEPEST} deep")
        self._open.add(id(value))
        try:
            return make()
        finally:
            self._open.discard(id(value))

    def _each(self, values: Iterable[Any]) -> list[Node]:
        nodes: list[Node] = []
        try:
            for value in values:
                nodes.append(self.node(value))
        except Refused as refused:
            refused.path.append(f"[{len(nodes)}]")
            raise
        return nodes

    def _dict(self, value: dict[Any, Any], fields: bool) -> Node:
        nodes: list[Node] = [DICT]
        key: Any = None
        try:
            for key, item in value.items():
                nodes += (self.node(key), self.node(item))
        except Refused as refused:
            refused.path.append(step(key, fields))
            raise
        return nodes

    def _object(self, value: Any, codec: Codec) -> Node:
        try:
            plain = codec.to_plain(value)
        except Exception as error:
            raise Refused(f"is a {codec.name}, and its codec can't make it plain: {error!r}") from error
        if codec.fields and type(plain) is dict:
            return [OBJECT, codec.name, self._dict(plain, True)]
        return [OBJECT, codec.name, self.node(plain)]


def _unknown(value: Any) -> str:
    kind = type(value)
    name = kind.__qualname__
    for plain in (bool, int, float, str, bytes, list, tuple, dict, set):
        by_fields = plain is tuple and hasattr(kind, "_make")
        if isinstance(value, plain) and not by_fields and not dataclasses.is_dataclass(kind):
            return (
                f"is of class {name}, a subclass of {plain.__name__}: send {plain.__name__}(...) of it (an adapter can do "
                f"that), or give weave.remote.register_codec({name}, ...) on every rank"
            )
    if isinstance(value, tuple) or dataclasses.is_dataclass(kind):
        return f"is of class {name}: give weave.remote.register_class({name}) on every rank"
    return (
        f"is of class {name}, which ranks don't know how to send: make tensors, plain values and containers of it (an "
        f"adapter can do that), or give weave.remote.register_codec({name}, ...) on every rank"
    )
