"""Values between ranks: `encode` makes of one a head and frames, `decode` a value of those. Without pickle.

The head says in msgpack what the value is: plain values as they are, and an array that begins with a number for each
container, tensor and registered object. Tensors' bytes, and large `bytes`, are the frames, in the order of the head.

Tensors, `None`, `bool`, `int` and `float` of any size, `str`, `bytes`; `list`, `tuple` and `dict` of them; and what is
registered (`weave.remote.registered`). Each exactly: an object of a subclass has more to it than we would send. An object
that is in a value twice is sent twice; one that holds itself is refused.

What comes from a peer is not trusted: nothing is imported, called or allocated because a head says so, but what this
process registered, and memory in proportion to the bytes that are there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec
import torch

from weave.errors import RemoteException, WireException
from weave.graph.descriptors import RemoteDataDescriptor
from weave.observe import describe
from weave.remote.heads import Node
from weave.remote.options import LinkOptions
from weave.remote.reading import Describer, Reader
from weave.remote.registered import register_class as register_class
from weave.remote.registered import register_codec as register_codec
from weave.remote.tensors import Malformed, Refused
from weave.remote.writing import Writer
from weave.spi.transport import Buffer

_LONG = 12  # steps of a place that are written

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder()


@dataclasses.dataclass(slots=True)
class Encoded:
    """A value that is ready to go.

    `frames` are views of the tensors' memory and keep it alive; with `LinkOptions(debug=True)`, `tensors` are those whose
    own memory is sent, each with its version, to see whether they were changed before they had gone.
    """

    head: bytes
    frames: list[Buffer]
    tensors: list[tuple[torch.Tensor, int]]
    facts: Any

    @property
    def bytes(self) -> int:
        """How many bytes go."""
        return len(self.head) + sum(memoryview(frame).nbytes for frame in self.frames)

    @property
    def text(self) -> str:
        """What it looks like: `float32[8, 16]`."""
        return describe.text(self.facts)


def encode(value: Any, *, where: str, node: str, most: LinkOptions) -> Encoded:
    """A value as bytes.

    Args:
        value: what to send.
        where: the key of the edge, for messages.
        node: the node that sends.
        most: the limits, which are also the receiver's.

    Raises:
        RemoteException: something in it can't be sent; names node, key, the place in the value and the remedy.
    """
    writer = Writer(most)
    try:
        said = writer.node(value)
        head = _encoder.encode(said)
        if len(head) > most.head_bytes:
            raise Refused(
                f"has plain values of {len(head)} bytes, and at most {most.head_bytes} are sent: make tensors or bytes of them"
            )
    except Exception as error:
        _raise(error, RemoteException, f"{node!r} can't send {where!r}", node)
    return Encoded(head, writer.frames, writer.tensors, describe.facts(value))


def decode(head: Buffer, frames: Sequence[Any], *, where: str, node: str, most: LinkOptions) -> Any:
    """The value that a head and frames are. Frames that are aligned and may be written to are used where they lie.

    Raises:
        WireException: they can't be what `encode` made.
        RemoteException: they can, but the value can't be had here (a class isn't registered, there is no CUDA device).
    """
    reader = Reader(frames, most)
    try:
        made = reader.node(_read_head(head, most))
        if reader.used != len(frames):
            raise Malformed(f"has {reader.used} frames by its head, and {len(frames)} came")
    except Exception as error:
        _raise(error, WireException, f"{node!r} can't take {where!r}", node)
    return made


def describe_head(head: Buffer, key: str = "value", most: LinkOptions | None = None) -> list[RemoteDataDescriptor]:
    """What is under way, by its head: each tensor and each other value with its place in the whole as `key`.

    Large `bytes` are described as what their frame is, a tensor of bytes.

    Raises:
        WireException, RemoteException: as `decode`.
    """
    most = most or LinkOptions()
    try:
        describer = Describer(most)
        describer.describe(_read_head(head, most), key)
    except Exception as error:
        _raise(error, WireException, f"{key!r} can't be described", "")
    return describer.found


def _read_head(head: Buffer, most: LinkOptions) -> Node:
    if memoryview(head).nbytes > most.head_bytes:
        raise Malformed(f"has plain values of {memoryview(head).nbytes} bytes; at most {most.head_bytes} are taken")
    return _decoder.decode(head)


def _raise(error: Exception, otherwise: type[RemoteException], what: str, node: str) -> NoReturn:
    """Say what is wrong, and where in the value. Whatever it is, there is one kind of exception for it."""
    if isinstance(error, Refused):
        kind = WireException if isinstance(error, Malformed) else RemoteException
        path = error.path[::-1]
        if len(path) > _LONG:
            path = [*path[: _LONG - 2], " ... ", *path[-2:]]
        raise kind(f"{what}: value{''.join(path)} {error}", node=node) from error.__cause__
    raise otherwise(f"{what}: {type(error).__name__}: {error}", node=node) from error
