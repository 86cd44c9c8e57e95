"""What a hostile or broken peer could send: never more than a clear error, never more memory than came.

`python -m tests.remote.fuzz 50000` tries that many.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias
from unittest import mock

import msgspec
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.remote import values
from weave.errors import RemoteException, WireException
from weave.remote import tensors as tensors_of_wire
from weave.remote.codec import decode, describe_head, encode
from weave.remote.options import LinkOptions
from weave.remote.tensors import DTYPES
from weave.remote.wire import Abort, RunKey, Tie, Value, pack, unpack

MOST = LinkOptions(max_message_bytes=1 << 20, max_frames=64)

Mutation: TypeAlias = list[tuple[str, float, bytes]]

mutations: st.SearchStrategy[Mutation] = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "add", "cut", "end", "twice"]),
        st.floats(0, 1, exclude_max=True),
        st.binary(min_size=1, max_size=5)
        | st.sampled_from([b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\x91"]),
    ),
    min_size=1,
    max_size=4,
)


def mutated(data: bytes, mutation: Mutation) -> bytes:
    """Bytes, changed here and there."""
    for what, where, piece in mutation:
        at = int(where * len(data))
        if what == "put":
            data = data[:at] + piece + data[at + len(piece) :]
        elif what == "add":
            data = data[:at] + piece + data[at:]
        elif what == "cut":
            data = data[:at] + data[at + len(piece) :]
        elif what == "end":
            data = data[:at]
        else:
            data = data[:at] + data[at : at + 9] * 2 + data[at + 9 :]
    return data


def try_message(data: bytes) -> None:
    """A message, or a `WireException`."""
    with _memory(len(data)):
        try:
            unpack(data)
        except WireException:
            return


def try_value(head: bytes, frames: Sequence[Any]) -> None:
    """A value, or a `RemoteException` that says whose it is."""
    made: Any = None
    refused: RemoteException | None = None
    with _memory(len(head) + sum(len(frame) for frame in frames)):
        try:
            made = decode(head, frames, where="hidden", node="student", most=MOST)
        except RemoteException as error:
            refused = error
        try:
            describe_head(head, most=MOST)
        except RemoteException:
            assert made is None, "what can be had can be described"
    if refused is not None:
        assert refused.node == "student"
        assert "'student' can't take 'hidden': " in str(refused)


@contextmanager
def _memory(came: int) -> Iterator[None]:
    """At most so much memory as is in proportion to what came: Python's by tracemalloc, torch's by watching `empty`.

    An exception's traceback and its text, and caches that fill, are a few dozen kilobytes whatever came.
    """
    empty, asked = torch.empty, [0]

    def watched(count: int, **kwargs: Any) -> torch.Tensor:
        asked[0] += count
        assert asked[0] <= came, f"{asked[0]} bytes asked of torch, {came} came"
        return empty(count, **kwargs)

    tracemalloc.start()
    try:
        with mock.patch.object(tensors_of_wire.torch, "empty", watched):
            yield
        peak = tracemalloc.get_traced_memory()[1]
        assert peak < 200 * came + (1 << 18), f"{peak} bytes of memory for {came} that came"
    finally:
        tracemalloc.stop()


_words = st.sampled_from(["cpu", "cuda", "meta", "float32", "uint8", "bool", "complex128", "InputArgs", "set", "range"])
_names = st.sampled_from(
    ["bytearray", "torch.Size", "torch.device", "torch.dtype", "OrderedDict", "os.system", "slice"]
)
_parts = st.one_of(
    st.integers(-2, 9),
    st.integers(),
    _words,
    _names,
    st.sampled_from([*DTYPES, "torch.return_types.max", "tests.remote.values.Pair"]),
    st.floats(),
    st.none(),
    st.booleans(),
    st.binary(max_size=9),
    st.text(max_size=3),
    st.lists(st.integers(0, 4) | st.integers(0, 1 << 62), max_size=4),
).filter(lambda part: type(part) is not int or -(1 << 63) <= part < 1 << 64)
_shape = st.lists(st.integers(0, 3) | st.sampled_from([1 << 40, (1 << 63) - 1]), max_size=3)
_tensor_nodes = st.builds(
    lambda dtype, shape, order: [3, "cpu", dtype, shape, *order],
    st.sampled_from([*DTYPES]),
    _shape,
    st.lists(_shape, max_size=1),
)
_nodes = st.recursive(
    _parts | _tensor_nodes,
    lambda inner: st.one_of(
        st.builds(lambda tag, rest: [tag, *rest], st.integers(0, 8), st.lists(inner, max_size=4)),
        st.builds(lambda name, item: [6, name, item], _names | _words, inner),
        st.dictionaries(st.integers(0, 3), inner, max_size=2),
    ),
    max_leaves=8,
)
_frames = st.lists(st.binary(max_size=40) | st.integers(0, 24).map(bytearray), max_size=3)


def _mutated_value(value: Any, of_head: Mutation | None, of_frames: Mutation | None) -> None:
    sent = encode(value, where="hidden", node="teacher", most=LinkOptions())
    head, frames = sent.head, [bytes(frame) for frame in sent.frames]
    if of_head:
        head = mutated(head, of_head)
    if of_frames and frames:
        frames = [mutated(frames[0], of_frames), *frames[1:]] if of_frames[0][1] < 0.7 else frames[1:]
    try_value(head, frames)


def _mutated_message(head: bytes, mutation: Mutation) -> None:
    run = RunKey("k", 3, None)
    for message in (
        Value("g", 7, run, head),
        Tie("g", [(0, 1, "hidden")], {"a": 1}),
        Abort("g", run, 0, "n", "k", "t", False),
    ):
        try_message(mutated(pack(message), mutation))


PROPERTIES: dict[str, Callable[..., Any]] = {
    "mutated values": given(values.values, st.none() | mutations, st.none() | mutations)(_mutated_value),
    "heads of anything": given(_nodes, _frames)(lambda node, frames: try_value(msgspec.msgpack.encode(node), frames)),
    "random bytes": given(st.binary(max_size=300), _frames)(try_value),
    "mutated messages": given(st.binary(max_size=20), mutations)(_mutated_message),
    "random messages": given(st.binary(max_size=300))(try_message),
}


def examples(name: str, count: int) -> Callable[[], None]:
    """One of the properties, for so many examples."""
    unhurried = settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    return unhurried(PROPERTIES[name])


def main(count: int) -> None:
    """Try so many in all."""
    for name in PROPERTIES:
        examples(name, count // len(PROPERTIES))()
        print(f"{name}: {count // len(PROPERTIES)}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]))
