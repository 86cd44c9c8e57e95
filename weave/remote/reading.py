"""From a head and frames to the value, or to a description of it. Nothing that a head says is believed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from weave.graph.descriptors import RemoteDataDescriptor, RemotePythonDataDescriptor, RemoteTensorDataDescriptor
from weave.remote.heads import BYTES, DEEPEST, DICT, LIST, OBJECT, TENSOR, TUPLE, Node, has_frames, step
from weave.remote.options import LinkOptions
from weave.remote.registered import Codec, codec_named
from weave.remote.tensors import Malformed, Refused, checked, read


class Reader:
    """Makes a value of a head and frames."""

    def __init__(self, frames: Sequence[Any], most: LinkOptions) -> None:
        self.used = 0
        self._frames = frames
        self._most = most
        self._deep = 0

    def node(self, said: Node) -> Any:
        """The value that a part of a head says."""
        kind = type(said)
        if said is None or kind is str or kind is int or kind is float or kind is bool or kind is bytes:
            return said
        if kind is not list or not said or type(said[0]) is not int or not 0 <= said[0] < len(_READ):
            raise Malformed("has something in it that is no value")
        return _READ[said[0]](self, said)

    def _next(self) -> Any:
        if self.used == len(self._frames):
            raise Malformed(f"has more frames by its head than the {len(self._frames)} that came")
        self.used += 1
        return self._frames[self.used - 1]

    def _list(self, said: list[Node]) -> list[Any]:
        made: list[Any] = []
        self._enter()
        try:
            for place in range(1, len(said)):
                made.append(self.node(said[place]))
        except Refused as refused:
            refused.path.append(f"[{len(made)}]")
            raise
        self._deep -= 1
        return made

    def _enter(self) -> None:
        self._deep += 1
        if self._deep > 2 * DEEPEST:  # an object and the plain value in it are two
            raise Malformed("is nested too deep")

    def _tuple(self, said: list[Node]) -> tuple[Any, ...]:
        return tuple(self._list(said))

    def _dict(self, said: list[Node], fields: bool = False) -> dict[Any, Any]:
        if len(said) % 2 == 0:
            raise Malformed("is a dict with a key that has no value")
        made: dict[Any, Any] = {}
        self._enter()
        for place in range(1, len(said), 2):
            key = self.node(said[place])
            try:
                made[key] = self.node(said[place + 1])
            except TypeError as error:
                raise Malformed(f"is a dict with a key that is a {type(key).__name__}") from error
            except Refused as refused:
                refused.path.append(step(key, fields))
                raise
        if len(made) != len(said) // 2:
            raise Malformed("is a dict that has a key twice")
        self._deep -= 1
        return made

    def _tensor(self, said: list[Node]) -> torch.Tensor:
        return read(said[1:], self._next(), self._most.max_message_bytes)

    def _large_int(self, said: list[Node]) -> int:
        return int.from_bytes(_part(said, bytes), "big", signed=True)

    def _bytes(self, said: list[Node]) -> bytes:
        count = _part(said, int)
        data = memoryview(self._next())
        if data.nbytes != count or count > self._most.max_message_bytes:
            raise Malformed(f"is bytes, {count} by its head and {data.nbytes} that came")
        return data.tobytes()

    def _surrogates(self, said: list[Node]) -> str:
        return str(_part(said, bytes), "utf-8", "surrogatepass")

    def codec(self, said: list[Node]) -> Codec:
        """What an object's name stands for here."""
        if len(said) != 3 or type(said[1]) is not str:
            raise Malformed("is an object without a name and a plain value")
        codec = codec_named(said[1])
        if codec is None:
            raise Refused(
                f"is what the rank that sent it has registered as {said[1][:80]!r}, and this rank has not: give the same "
                "weave.remote.register_class(...) or register_codec(...) here"
            )
        return codec

    def _object(self, said: list[Node]) -> Any:
        codec = self.codec(said)
        self._enter()
        inside = said[2]
        fields = codec.fields and type(inside) is list and inside[:1] == [DICT]
        plain = self._dict(inside, True) if fields else self.node(inside)
        self._deep -= 1
        try:
            return codec.from_plain(plain)
        except Exception as error:
            raise Refused(f"is a {codec.name}, which can't be made of what came: {error!r}") from error


_READ: tuple[Callable[[Reader, list[Node]], Any], ...] = (
    Reader._list,
    Reader._tuple,
    Reader._dict,
    Reader._tensor,
    Reader._large_int,
    Reader._bytes,
    Reader._object,
    Reader._surrogates,
)


def _part(said: list[Node], kind: type) -> Any:
    """The one part of a node, of one type."""
    if len(said) != 2 or type(said[1]) is not kind:
        raise Malformed("has something in it that is no value")
    return said[1]


class Describer:
    """Says what a head describes, without its frames."""

    def __init__(self, most: LinkOptions) -> None:
        self.found: list[RemoteDataDescriptor] = []
        self._plain = Reader((), most)

    def describe(self, said: Node, key: str) -> None:
        """Add what a part of a head says, under `key`."""
        kind = said[0] if type(said) is list and said and type(said[0]) is int else None
        if kind == TENSOR:
            device, dtype, shape, _ = checked(said[1:])
            self.found.append(RemoteTensorDataDescriptor(key, device, dtype, shape))  # type: ignore[arg-type]
        elif kind == BYTES:
            count = _part(said, int)
            if count < 0:
                raise Malformed(f"is bytes, {count} of them")
            self.found.append(RemoteTensorDataDescriptor(key, "cpu", torch.uint8, torch.Size([count])))
        elif kind in (LIST, TUPLE) and len(said) > 1:
            for place, item in enumerate(said[1:]):
                self.describe(item, f"{key}[{place}]")
        elif kind == DICT and len(said) > 1 and len(said) % 2:
            self._describe_dict(said, key, False)
        elif kind == OBJECT and has_frames(said):
            fields = self._plain.codec(said).fields and type(said[2]) is list and said[2][:1] == [DICT]
            if fields:
                self._describe_dict(said[2], key, True)
            else:
                self.describe(said[2], key)
        else:
            self.found.append(RemotePythonDataDescriptor(key, self._plain.node(said)))

    def _describe_dict(self, said: list[Node], key: str, fields: bool) -> None:
        for name, item in zip(said[1::2], said[2::2], strict=False):
            self.describe(item, f"{key}{step(name if has_frames(name) else self._plain.node(name), fields)}")
