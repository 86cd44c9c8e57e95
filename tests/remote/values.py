"""Values of all kinds that travel, drawn at random; and whether two are the same to the bit."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st

from weave.graph.args import InputArgs
from weave.remote.registered import register_class
from weave.remote.tensors import DTYPES

QUANTIZED = {torch.qint8, torch.qint32, torch.quint8, torch.quint4x2, torch.quint2x4}
SENDABLE = sorted(set(DTYPES.values()) - QUANTIZED, key=str)
LAYOUTS = ("plain", "turned", "stepped", "expanded", "channels_last", "offset", "conj", "neg", "grad")


@register_class
@dataclass
class Pair:
    left: Any
    right: Any = None
    size: int = field(init=False, default=2)


@register_class
class Point(NamedTuple):
    x: Any
    y: Any = 0


def bits(count: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """So many elements of any dtype, of random bytes."""
    made = torch.Generator().manual_seed(seed)
    top = 2 if dtype is torch.bool else 256
    raw = torch.randint(0, top, (count * dtype.itemsize,), dtype=torch.uint8, generator=made)
    return raw.view(dtype)


def tensor(dtype: torch.dtype, shape: list[int], layout: str, seed: int = 0) -> torch.Tensor:
    """A tensor whose memory lies in one of the ways that torch knows. Where the way isn't open to it, plain."""
    count = math.prod(shape)
    plain = bits(count, dtype, seed).view(shape)
    if layout == "turned":
        return plain.permute(list(range(len(shape)))[::-1])
    if layout == "stepped" and shape:
        return bits(2 * count, dtype, seed).view([*shape[:-1], 2 * shape[-1]])[..., ::2]
    if layout == "expanded":
        return plain.unsqueeze(0).expand(3, *shape)
    if layout == "channels_last" and len(shape) == 4:
        return bits(count, dtype, seed).view([shape[n] for n in (0, 2, 3, 1)]).permute(0, 3, 1, 2)
    if layout == "offset":
        return bits(count + 1, dtype, seed)[1:].view(shape)
    if layout == "conj" and dtype in (torch.complex64, torch.complex128):  # torch warns of complex32
        return plain.conj()
    if layout == "neg" and dtype in (torch.complex64, torch.complex128):
        return plain.conj().imag
    if layout == "grad" and (dtype.is_floating_point or dtype.is_complex) and dtype.itemsize >= 4:
        return plain.requires_grad_()
    return plain


tensors = st.builds(
    tensor,
    st.sampled_from(SENDABLE),
    st.lists(st.integers(0, 4), max_size=4),
    st.sampled_from(LAYOUTS),
    st.integers(0, 1 << 30),
)
texts = st.text(st.characters(exclude_categories=()), max_size=8)  # halves of characters too
numbers = st.one_of(st.booleans(), st.integers(), st.sampled_from([2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 2**500]))
floats = st.floats(allow_nan=True)
keys = st.recursive(
    st.one_of(texts, numbers, st.none(), floats, st.binary(max_size=4)),
    lambda inner: st.tuples(inner, inner),
    max_leaves=3,
)
leaves = st.one_of(
    st.none(),
    numbers,
    floats,
    st.complex_numbers(allow_nan=True),
    texts,
    st.binary(max_size=8),
    st.sampled_from([bytes(4095), bytes(4096), b"\xff" * 5000]),
    st.binary(max_size=8).map(bytearray),
    st.sampled_from(sorted(DTYPES.values(), key=str)),
    st.sampled_from([torch.device("cpu"), torch.device("cuda", 1), torch.device("meta"), ..., torch.channels_last]),
    st.sampled_from([torch.strided, torch.sparse_coo, torch.preserve_format, range(3), range(9, -3, -2)]),
    st.builds(slice, st.none() | st.integers(), st.none() | st.integers(), st.none() | st.integers()),
    st.lists(st.integers(0, 9), max_size=3).map(torch.Size),
    st.sets(keys, max_size=3),
    st.frozensets(keys, max_size=3),
    tensors,
)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, max_size=3)
    named = st.dictionaries(st.text(max_size=4), inner, max_size=3)
    return st.one_of(
        some,
        some.map(tuple),
        st.dictionaries(keys, inner, max_size=3),
        named.map(OrderedDict),
        st.builds(InputArgs.of, some, named),
        st.builds(Pair, inner, inner),
        st.builds(Point, inner, inner),
    )


values = st.recursive(leaves, _containers, max_leaves=8)


def raw(value: torch.Tensor) -> list[int]:
    """A tensor's elements in order, as bytes."""
    settled = value.detach().resolve_conj().resolve_neg()
    step = settled.view(torch.uint8) if settled.dtype.itemsize == 1 else settled.unsqueeze(-1).view(torch.uint8)
    return [int(byte) for byte in step.flatten().tolist()]


def same(one: Any, other: Any) -> bool:
    """Whether two values are of the same types throughout and the same to the bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and raw(one) == raw(other)
    if isinstance(one, float):
        return repr(one) == repr(other)  # -0.0 and nan as well
    if isinstance(one, complex):
        return same(one.real, other.real) and same(one.imag, other.imag)
    if isinstance(one, InputArgs):
        return same(one.args, other.args) and same(one.kwargs, other.kwargs)
    if isinstance(one, Pair):
        return same((one.left, one.right, one.size), (other.left, other.right, other.size))
    if isinstance(one, dict):
        return same(list(one), list(other)) and same(list(one.values()), list(other.values()))
    if isinstance(one, set | frozenset):
        return sorted(map(repr, one)) == sorted(map(repr, other))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
