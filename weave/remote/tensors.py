"""A tensor as a few words (device, dtype, shape) and a frame with its bytes; and back.

One path for every dtype: the bytes, whatever they mean. Nothing is copied where the tensor's memory has no gaps: a frame
is a view of it and keeps it alive, and a transposed or channels-last tensor goes as it lies, with the order of its axes,
so that the receiver computes on the same strides and gets the same bits. What arrives is used where it lies if a tensor
may lie there, else copied once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import torch

from weave.spi.transport import Buffer

DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_DEVICES = ("cpu", "cuda")
_MOST_AXES = 64
# What is copied is copied as these: torch can't copy each dtype that it can hold (`uint4`, `bits8`).
_RAW = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


class Refused(Exception):
    """A value that can't be sent, or taken. `path`: where it is in the whole, from the inside out."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.path: list[str] = []


class Malformed(Refused):
    """What came can't be what was sent."""


def written(tensor: torch.Tensor, most: int) -> tuple[list[Any], Buffer, bool]:
    """What describes a tensor, its bytes, and whether these are its own memory rather than a copy.

    Gradients don't travel: what arrives doesn't require any.

    Raises:
        Refused: it has no bytes, or more than `most`, or they don't say what it is.
    """
    _refuse(tensor)
    try:
        plain = tensor.detach().resolve_conj().resolve_neg()
        if tensor.device.type != "cpu":
            plain = plain.cpu()
        turned = plain = plain.view(_RAW[plain.itemsize])
        order = None
        if not plain.is_contiguous():
            strides = plain.stride()
            axes = sorted(range(plain.dim()), key=lambda axis: -strides[axis])
            turned = plain.permute(axes)
            if turned.is_contiguous():
                order = axes
            else:
                _limit(plain, most)  # an expanded one grows as it is copied
                turned = plain.contiguous()
        _limit(turned, most)
        frame = memory(turned).toreadonly()
        own = frame.nbytes > 0 and turned.data_ptr() == tensor.data_ptr()
    except Refused:
        raise
    except Exception as error:  # a functorch wrapper, a freed storage
        raise Refused(f"is a tensor whose memory can't be read: {error}") from error
    said: list[Any] = [tensor.device.type, _NAMES[tensor.dtype], list(tensor.shape)]
    return said if order is None else [*said, order], frame, own


def _refuse(tensor: torch.Tensor) -> None:
    kind = type(tensor)
    if kind is not torch.Tensor and kind is not torch.nn.Parameter:
        if kind.__name__ == "FakeTensor":
            raise Refused("is a fake tensor, which has no data: send its shape and dtype, or what it stands for")
        raise Refused(
            f"is a tensor of class {kind.__qualname__}: send tensor.as_subclass(torch.Tensor) (an adapter can do that), "
            f"or give weave.remote.register_codec({kind.__name__}, ...) on every rank"
        )
    if tensor.is_nested:
        raise Refused("is a nested tensor: send its unbind(), or to_padded_tensor(...) of it (an adapter can do that)")
    if tensor.layout is not torch.strided:
        raise Refused(
            f"is a tensor of layout {tensor.layout}: send to_dense() of it, or the tensors that it is made of (an adapter can "
            f"do that), or give weave.remote.register_codec({tensor.layout}, ...) on every rank"
        )
    if tensor.is_meta:
        raise Refused("is a meta tensor, which has no data: send its shape and dtype, or what it stands for")
    if tensor.is_quantized:
        raise Refused(f"is a quantized tensor ({tensor.dtype}): send int_repr() with its scale and zero point")
    if tensor.device.type not in _DEVICES:
        raise Refused(f"is on {tensor.device}: send tensor.cpu() (an adapter can do that)")


def _limit(tensor: torch.Tensor, most: int) -> None:
    count = tensor.numel() * tensor.itemsize
    if count > most:
        raise Refused(
            f"is a tensor of {count} bytes, and a part of a message has at most {most}: send it in pieces, or raise "
            "LinkOptions(max_message_bytes=...) or WEAVE_LINK_MAX_MESSAGE_BYTES on every rank"
        )


@lru_cache(maxsize=512)
def _bytes_type(count: int) -> Any:
    # Making the type costs ten times as much as the view; a graph's values come in few sizes.
    return ctypes.c_ubyte * count


def memory(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous CPU tensor, not copied. They keep it alive; so does each view of them."""
    if not tensor.nbytes:
        return memoryview(bytearray())
    # Not `tensor.numpy()`: NumPy is no dependency of weave's. Nor `reshape(-1).view(uint8)`: with one element and a
    # stride of two that is refused.
    owner = _bytes_type(tensor.nbytes).from_address(tensor.data_ptr())
    owner.tensor = tensor
    return memoryview(owner).cast("B")


def checked(said: Sequence[Any]) -> tuple[str, torch.dtype, torch.Size, list[int] | None]:
    """Device, dtype, shape and order of axes, from the words that came.

    Raises:
        Malformed: they can't be a tensor's.
    """
    if len(said) not in (3, 4):
        raise Malformed("is a tensor that is not described by device, dtype and shape")
    device, name, shape = said[:3]
    if device not in _DEVICES or not isinstance(device, str):
        raise Malformed(f"is a tensor on {_short(device)}")
    dtype = DTYPES.get(name) if isinstance(name, str) and not name.startswith("q") else None  # "q": quantized
    if dtype is None:
        raise Malformed(f"is a tensor of dtype {_short(name)}, which can't be had here")
    if (
        type(shape) is not list
        or len(shape) > _MOST_AXES
        or not all(type(n) is int and 0 <= n < 1 << 63 for n in shape)
    ):
        raise Malformed(f"is a tensor of shape {_short(shape)}")
    order = None
    if len(said) == 4:
        order = said[3]
        whole = type(order) is list and len(order) == len(shape) and all(type(axis) is int for axis in order)
        if not whole or sorted(order) != list(range(len(shape))):
            raise Malformed(f"is a tensor whose axes are in the order {_short(order)}")
    return device, dtype, torch.Size(shape), order


def read(said: Sequence[Any], frame: Any, most: int) -> torch.Tensor:
    """The tensor that these words describe, with its bytes in `frame`.

    Raises:
        Malformed: words and bytes don't fit. Nothing is allocated before they were found to.
        Refused: it can't be had here.
    """
    device, dtype, shape, order = checked(said)
    data = memoryview(frame)
    expected = prod(shape) * dtype.itemsize
    if data.nbytes != expected or expected > most:
        raise Malformed(
            f"is a tensor of shape {_short(list(shape))} and {dtype} with {data.nbytes} bytes, not {expected}, and at most {most}"
        )
    flat = _laid(data.cast("B"), dtype.itemsize)
    if dtype is torch.bool and expected and int(flat.max()) > 1:
        raise Malformed("is a bool tensor with bytes other than 0 and 1")  # torch is undefined on those
    if order is None:
        made = flat.view(dtype).view(shape)
    else:
        lying = flat.view(dtype).view([shape[axis] for axis in order])
        made = lying.permute([order.index(axis) for axis in range(len(order))])
    if device == "cpu":
        return made
    if not torch.cuda.is_available():
        raise Refused("is a CUDA tensor, and there is no CUDA device here: send tensor.cpu() (an adapter can do that)")
    return made.to(device)


def _laid(data: memoryview, alignment: int) -> torch.Tensor:
    """Bytes as a tensor of bytes: in place where they are aligned and may be written to, else copied."""
    if not data.nbytes:
        return torch.empty(0, dtype=torch.uint8, device="cpu")
    if not data.readonly:
        flat = torch.frombuffer(data, dtype=torch.uint8)
        if flat.data_ptr() % alignment == 0:
            return flat
    flat = torch.empty(data.nbytes, dtype=torch.uint8, device="cpu")
    memory(flat)[:] = data
    return flat


def _short(value: Any) -> str:
    """A few words for what came, which may be anything."""
    if isinstance(value, list):
        return f"[{', '.join(map(_short, value[:8]))}{', ...' if len(value) > 8 else ''}]"
    if isinstance(value, str | bytes):
        return repr(value[:40])
    return repr(value) if isinstance(value, int | float) else type(value).__name__
