"""Tensors between ranks: every dtype, however it lies in memory; copied only where it must be; refused with the remedy."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import pytest
import torch
from hypothesis import given, settings

from tests.remote import values
from weave.errors import RemoteException, WireException
from weave.passage.fake import fake_tensor
from weave.remote import tensors
from weave.remote.codec import Encoded, decode, encode
from weave.remote.options import LinkOptions

MOST = LinkOptions()


def sent(value: Any, most: LinkOptions = MOST) -> Encoded:
    return encode(value, where="hidden", node="teacher", most=most)


def taken(came: Encoded, frames: Any = None, most: LinkOptions = MOST) -> Any:
    frames = [bytes(f) for f in came.frames] if frames is None else frames
    return decode(came.head, frames, where="hidden", node="student", most=most)


@pytest.mark.parametrize("layout", values.LAYOUTS)
@pytest.mark.parametrize("dtype", values.SENDABLE, ids=str)
def test_every_dtype_in_every_layout(dtype: torch.dtype, layout: str) -> None:
    for shape in ([], [0], [3], [2, 3], [2, 0, 3], [2, 3, 2, 2], [1, 1, 1, 5]):
        value = values.tensor(dtype, shape, layout, seed=len(shape))
        back = taken(sent(value))
        assert (back.dtype, back.shape, back.device) == (value.dtype, value.shape, value.device)
        assert values.raw(back) == values.raw(value)
        assert not back.requires_grad


def test_every_dtype_of_torch_is_sent_but_the_quantized() -> None:
    assert {str(dtype) for dtype in values.SENDABLE} >= {
        "torch.bfloat16",
        "torch.complex32",
        "torch.float8_e4m3fn",
        "torch.uint4",
    }
    assert not any(dtype.is_floating_point or dtype.is_complex for dtype in values.QUANTIZED)


def test_memory_without_gaps_is_not_copied_and_its_strides_arrive() -> None:
    for layout in ("plain", "turned", "channels_last", "offset", "grad"):
        value = values.tensor(torch.float32, [2, 3, 4, 5], layout)
        came = sent(value)
        assert isinstance(came.frames[0], memoryview)
        assert came.frames[0].readonly
        assert came.frames[0].nbytes == value.nbytes
        back = taken(came)
        assert back.stride() == value.stride(), layout
        with torch.no_grad():
            value.fill_(7)
        assert bytes(came.frames[0]) == bytes(torch.full((120,), 7.0).view(torch.uint8).tolist()), "a view, no copy"


def test_what_has_gaps_or_must_be_settled_is_copied() -> None:
    for layout in ("stepped", "expanded", "conj", "neg"):
        value = values.tensor(torch.complex64, [2, 3], layout)
        came = sent(value, LinkOptions(debug=True))
        assert came.tensors == [], "its own memory isn't sent: it may change"


def test_frames_keep_the_memory_alive() -> None:
    value = torch.arange(1000)
    storage = weakref.ref(value.untyped_storage())
    came = sent(value)
    frame, expected = came.frames[0], bytes(came.frames[0])
    flat = weakref.ref(frame.obj.tensor)  # type: ignore[union-attr]
    del value, came, storage
    gc.collect()
    assert flat() is not None
    part = memoryview(frame)[8:]
    del frame
    gc.collect()
    assert flat() is not None, "a part of a frame is enough"
    assert bytes(part) == expected[8:]
    del part
    gc.collect()
    assert flat() is None, "and nothing else holds it"


def test_an_owner_says_when_it_is_gone() -> None:
    frame = sent(torch.ones(3)).frames[0]
    gone: list[int] = []
    weakref.finalize(frame.obj, gone.append, 1)  # type: ignore[union-attr]
    del frame
    gc.collect()
    assert gone == [1]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.int64, torch.complex128], ids=str)
@pytest.mark.parametrize("offset", [0, 1, 8, 10])
def test_a_frame_is_used_where_it_lies_only_if_aligned_and_writable(dtype: torch.dtype, offset: int) -> None:
    value = values.bits(24, dtype, seed=offset)
    came = sent(value)
    whole = torch.zeros(offset + value.nbytes, dtype=torch.uint8)  # torch's memory is aligned to 64 bytes
    memory = tensors.memory(whole)[offset:]
    memory[:] = came.frames[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        back, copied = taken(came, [memory]), taken(came, [memory.toreadonly()])
    assert values.raw(back) == values.raw(copied) == values.raw(value)
    in_place = back.data_ptr() == whole.data_ptr() + offset
    assert in_place == (offset % dtype.itemsize == 0)
    assert back.data_ptr() % dtype.itemsize == 0
    assert not whole.data_ptr() <= copied.data_ptr() < whole.data_ptr() + whole.nbytes
    copied.zero_()  # its own memory: it may be written to
    assert values.raw(back) == values.raw(value)


def test_what_is_used_where_it_lies_outlives_the_frame() -> None:
    frame = bytearray(sent(torch.arange(5)).frames[0])
    back = taken(sent(torch.arange(5)), [frame])
    with pytest.raises(BufferError):
        frame.append(1)  # held, so it can't move
    del frame
    gc.collect()
    assert back.tolist() == [0, 1, 2, 3, 4]


def test_debug_notes_versions_of_what_is_sent_as_it_lies() -> None:
    value = torch.ones(3)
    value.add_(1)
    [(noted, version)] = sent({"a": [value]}, LinkOptions(debug=True)).tensors
    assert noted is value
    assert version == value._version
    value.add_(1)
    assert version != value._version
    assert sent(value).tensors == []
    with torch.inference_mode():
        assert sent(torch.ones(3), LinkOptions(debug=True)).tensors == [], "these count no versions"


class Tagged(torch.Tensor):
    pass


def _jagged() -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)


def _strided() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


def _quantized() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)


REFUSED: list[tuple[Any, str]] = [
    (lambda: torch.ones(2, device="meta"), "is a meta tensor, which has no data: send its shape"),
    (lambda: fake_tensor(2, 3), "is a fake tensor, which has no data: send its shape"),
    (
        lambda: torch.ones(2, 2).to_sparse(),
        r"layout torch.sparse_coo: send to_dense\(\).*register_codec\(torch.sparse_coo",
    ),
    (_jagged, "is a tensor of class NestedTensor"),
    (_strided, r"is a nested tensor: send its unbind\(\)"),
    (_quantized, r"is a quantized tensor \(torch.qint8\): send int_repr\(\)"),
    (lambda: torch.ones(2).as_subclass(Tagged), r"class Tagged: send tensor.as_subclass\(torch.Tensor\)"),
]


@pytest.mark.parametrize(("make", "why"), REFUSED)
def test_what_has_no_bytes_of_its_own_is_refused_with_the_remedy(make: Any, why: str) -> None:
    with pytest.raises(RemoteException, match=why) as caught:
        sent({"x": [1, make()]})
    assert caught.value.node == "teacher"
    assert str(caught.value).startswith("'teacher' can't send 'hidden': value['x'][1] is ")


def test_under_vmap_memory_cannot_be_read() -> None:
    def inside(row: torch.Tensor) -> torch.Tensor:
        with pytest.raises(RemoteException, match="memory can't be read"):
            sent(row)
        return row

    torch.vmap(inside)(torch.ones(2, 3))


def test_a_parameter_arrives_as_a_tensor() -> None:
    back = taken(sent(torch.nn.Parameter(torch.ones(2))))
    assert type(back) is torch.Tensor
    assert back.tolist() == [1.0, 1.0]


def test_a_default_device_or_grad_mode_changes_nothing() -> None:
    came = sent(torch.arange(3.0))
    with torch.device("meta"), torch.inference_mode():
        back = taken(came)
    assert back.device.type == "cpu"
    assert back.tolist() == [0.0, 1.0, 2.0]


def test_an_expanded_tensor_is_measured_before_it_is_copied() -> None:
    with pytest.raises(
        RemoteException, match=r"is a tensor of 4611686018427387904 bytes.*WEAVE_LINK_MAX_MESSAGE_BYTES"
    ):
        sent(torch.ones(1).expand(1 << 60))


def test_caps_on_both_sides() -> None:
    small = LinkOptions(max_message_bytes=1 << 16, max_frames=4)
    most = sent(torch.zeros(1 << 16, dtype=torch.uint8), small)
    assert taken(most, most=small).numel() == 1 << 16
    with pytest.raises(RemoteException, match="at most 65536"):
        sent(torch.zeros((1 << 16) + 1, dtype=torch.uint8), small)
    with pytest.raises(WireException, match="at most 65536"):
        taken(sent(torch.zeros((1 << 16) + 1, dtype=torch.uint8)), most=small)
    assert len(sent([torch.ones(1)] * 3, small).frames) == 3
    with pytest.raises(
        RemoteException, match=r"value\[3\] is one tensor too many.*at most 4 parts.*WEAVE_LINK_MAX_FRAMES"
    ):
        sent([torch.ones(1)] * 4, small)


@settings(max_examples=150)
@given(values.tensors)
def test_random_tensors(value: torch.Tensor) -> None:
    assert values.same(taken(sent(value)), value.detach())
