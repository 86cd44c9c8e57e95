"""What links say to each other: a few messages, each a msgpack array that begins with its kind.

Read with their types and limits: what comes is one of these messages, in full, or a `WireException`. Nothing that is
declared in a message is believed before its bytes are there. Tensors' bytes are not in here, they are frames of their own.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from weave.errors import WireException
from weave.remote.options import LinkOptions
from weave.spi.transport import Buffer

LONGEST_NAME = 1024  # of a graph, in characters
LONGEST_KEY = 1024  # of an edge, a node
LONGEST_RUN_KEY = 256
LONGEST_TEXT = 4000  # of an exception
MOST_EDGES = 1 << 16
_MOST_OPTIONS = 64
_LARGEST = (1 << 63) - 1

_Count = Annotated[int, Meta(ge=0, le=_LARGEST)]
_Rank = Annotated[int, Meta(ge=0, lt=1 << 31)]
_Name = Annotated[str, Meta(max_length=LONGEST_NAME)]
_Key = Annotated[str, Meta(max_length=LONGEST_KEY)]
_Text = Annotated[str, Meta(max_length=LONGEST_TEXT)]
_Edges = Annotated[list[tuple[_Rank, _Rank, _Key]], Meta(max_length=MOST_EDGES)]
_Options = Annotated[dict[_Key, bool | int | float | _Key | None], Meta(max_length=_MOST_OPTIONS)]


class RunKey(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """Which run: a key of the user's and how often it was used before, an item of a stream, or the how-manyth run."""

    key: int | str | None
    nth: _Count
    index: _Count | None

    def __post_init__(self) -> None:
        if isinstance(self.key, bool) or (isinstance(self.key, int) and not -_LARGEST <= self.key <= _LARGEST):
            raise ValueError(f"run_key={self.key!r}: an int of 64 bits or a string")
        if isinstance(self.key, str) and (len(self.key) > LONGEST_RUN_KEY or not _encodable(self.key)):
            raise ValueError(f"run_key={self.key[:40]!r}: a string of at most {LONGEST_RUN_KEY} characters")


class _Message(msgspec.Struct, array_like=True, frozen=True, tag_field="message", forbid_unknown_fields=True):
    pass


class Tie(_Message, frozen=True, tag=1):
    """The edges that a rank has with the receiver in a graph, and the settings that must be alike."""

    graph: _Name
    edges: _Edges
    options: _Options


class Untie(_Message, frozen=True, tag=2):
    """The sender has closed its part of a graph, for which it sent so many ties and values; a transport may bring some later."""

    graph: _Name
    sent: _Count


class _OnChannel(_Message, frozen=True):
    graph: _Name
    channel: _Count
    run: RunKey


class Value(_OnChannel, frozen=True, tag=3):
    """A value on an edge: `head` describes it, its tensors are the frames behind."""

    head: bytes


class Want(_OnChannel, frozen=True, tag=4):
    """The sender waits for this very value."""


class Taken(_OnChannel, frozen=True, tag=5):
    """The sender has taken a value, or thrown it away: its credit is free again."""


class Abort(_Message, frozen=True, tag=6):
    """A run has failed, or was cancelled: on which rank, in which node, by what. Texts are cut to what may be sent."""

    graph: _Name
    run: RunKey
    rank: _Rank
    node: _Key
    kind: _Key
    text: _Text
    cancelled: bool


class Bye(_Message, frozen=True, tag=7):
    """The sender closes its link, over which it sent so many ties and values; a transport may bring some later."""

    sent: _Count


Message: TypeAlias = Tie | Untie | Value | Want | Taken | Abort | Bye

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


def pack(message: Message) -> bytes:
    """The bytes of a message.

    Raises:
        WireException: a name in it can't be sent. The text of an `Abort` is cut and mended instead: a failure's word
            must get through.
    """
    if isinstance(message, Abort):
        message = msgspec.structs.replace(
            message,
            node=_mended(message.node, LONGEST_KEY),
            kind=_mended(message.kind, LONGEST_KEY),
            text=_mended(message.text, LONGEST_TEXT),
        )
    try:
        data = _encoder.encode(message)
        if isinstance(message, Tie):  # everything later is about what was tied: names are looked at once, here
            _decoder.decode(data)
    except Exception as error:
        raise WireException(
            f"{type(message).__name__} of the graph {getattr(message, 'graph', '')[:80]!r} can't be sent: {error}. Names of "
            f"graphs, nodes and ports take at most {LONGEST_KEY} characters, all of which UTF-8 can write; two ranks "
            f"share at most {MOST_EDGES} edges"
        ) from error
    return data


def unpack(data: Buffer) -> Message:
    """The message in a frame.

    Raises:
        WireException: it is none.
    """
    try:
        return _decoder.decode(data)
    except Exception as error:  # whatever is wrong with what a stranger sent, there is one way to say it
        raise WireException(f"not a message between links of weave: {error}") from error


def check_frames(frames: Any, most: LinkOptions) -> None:
    """Refuse a message of too many or too large frames (a transport may have refused it before).

    Raises:
        WireException: it is empty, or has more or larger frames than `most` allows.
    """
    if not 1 <= len(frames) <= most.max_frames:
        raise WireException(f"a message of {len(frames)} frames; from 1 to {most.max_frames} are taken")
    largest = max(memoryview(frame).nbytes for frame in frames)
    if largest > most.max_message_bytes:
        raise WireException(f"a frame of {largest} bytes; at most {most.max_message_bytes} are taken")


def _mended(text: str, most: int) -> str:
    """A text that UTF-8 can write, of limited length."""
    return text[:most].encode("utf-8", "replace").decode()


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
