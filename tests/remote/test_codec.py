"""Values between ranks: what is sent arrives, to the bit and of the same types; the rest is refused and says where."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, OrderedDict, defaultdict
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec
import numpy
import pytest
import torch
from hypothesis import given, settings
from transformers.modeling_outputs import BaseModelOutput

from tests.remote import values
from tests.remote.test_tensors import sent, taken
from weave.errors import RemoteException, WireException
from weave.graph.args import InputArgs
from weave.graph.descriptors import RemotePythonDataDescriptor, RemoteTensorDataDescriptor
from weave.observe import describe
from weave.remote.codec import describe_head
from weave.remote.options import LinkOptions
from weave.remote.registered import register_class


@settings(max_examples=300)
@given(values.values)
def test_random_values_arrive_and_can_be_described(value: Any) -> None:
    came = sent(value)
    assert values.same(taken(came), value)
    described = describe_head(came.head)
    assert sum(isinstance(part, RemoteTensorDataDescriptor) for part in described) == len(came.frames)


@pytest.mark.parametrize(
    "value",
    [
        -0.0,
        math.nan,
        math.inf,
        -math.inf,
        5e-324,
        2**63,
        2**64 - 1,
        2**64,
        -(2**63),
        -(2**63) - 1,
        10**5000,
        -(10**5000),
    ],
    ids=lambda v: type(v).__name__,
)
def test_numbers_to_the_bit(value: Any) -> None:
    assert values.same(taken(sent(value)), value)
    assert values.same(taken(sent([value, {value: 1}])), [value, {value: 1}])


def test_what_is_in_twice_is_sent_twice() -> None:
    one = torch.ones(2)
    a, b = taken(sent([one, one]))
    a.zero_()
    assert b.tolist() == [1.0, 1.0]


def test_large_bytes_are_a_frame_and_small_ones_are_not() -> None:
    small, large = sent(b"x" * 4095), sent(b"x" * 4096)
    assert (len(small.frames), len(large.frames)) == (0, 1)
    assert len(large.head) < 10
    assert taken(large) == b"x" * 4096
    beyond_a_head = b"x" * (20 << 20)
    assert taken(sent(beyond_a_head)) == beyond_a_head


def test_what_is_said_of_a_value() -> None:
    value = {"logits": torch.ones(2, 3), "step": 4}
    came = sent(value)
    assert came.text == describe.text(describe.facts(value)) == "{logits: float32[2, 3], step: int}"
    assert came.bytes == len(came.head) + 24


def test_a_head_can_be_viewed_as_descriptors() -> None:
    best = torch.max(torch.ones(2, 3), dim=1)
    args = InputArgs(
        torch.ones(2, 3).bfloat16(), None, mask=[torch.ones(0, dtype=torch.bool)], pair=values.Pair(best, 1j)
    )
    came = sent((args, {"n": 2**70, 5: b"x" * 5000}, (), {}))
    assert describe_head(came.head, "hidden") == [
        RemoteTensorDataDescriptor("hidden[0].args[0]", "cpu", torch.bfloat16, torch.Size([2, 3])),
        RemotePythonDataDescriptor("hidden[0].args[1]", None),
        RemoteTensorDataDescriptor("hidden[0].kwargs['mask'][0]", "cpu", torch.bool, torch.Size([0])),
        RemoteTensorDataDescriptor("hidden[0].kwargs['pair'].left[0]", "cpu", torch.float32, torch.Size([2])),
        RemoteTensorDataDescriptor("hidden[0].kwargs['pair'].left[1]", "cpu", torch.int64, torch.Size([2])),
        RemotePythonDataDescriptor("hidden[0].kwargs['pair'].right", 1j),
        RemotePythonDataDescriptor("hidden[1]['n']", 2**70),
        RemoteTensorDataDescriptor("hidden[1][5]", "cpu", torch.uint8, torch.Size([5000])),
        RemotePythonDataDescriptor("hidden[2]", ()),
        RemotePythonDataDescriptor("hidden[3]", {}),
    ]


def test_outputs_of_models_travel_once_registered() -> None:
    register_class(BaseModelOutput)
    value = BaseModelOutput(last_hidden_state=torch.ones(2, 3), hidden_states=(torch.zeros(1),))
    back = taken(sent(value))
    assert type(back) is BaseModelOutput
    assert list(back) == ["last_hidden_state", "hidden_states"]
    assert back[0].tolist() == value[0].tolist()


# --- refused on the sending side ---


class Text(str):
    __slots__ = ()


class Level(IntEnum):
    LOW = 1


class Unknown(NamedTuple):
    x: int


@dataclasses.dataclass
class UnknownData:
    x: int


def _itself() -> Any:
    value: dict[str, Any] = {"a": [1]}
    value["a"].append((value,))
    return value


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def _wide() -> Any:
    value: Any = [1]
    for _ in range(40):
        value = [value, value]
    return value


REFUSED: list[tuple[Any, str]] = [
    ({"a": object()}, r"value\['a'\] is of class object, which ranks don't know.*register_codec\(object, \.\.\.\)"),
    ([lambda: 1], r"value\[0\] is of class function"),
    (torch.nn.Linear(1, 1), "value is of class Linear"),
    (int, "value is of class type"),
    (
        InputArgs(1, mask={"m": Text("a")}),
        r"value.kwargs\['mask'\]\['m'\] is of class Text, a subclass of str: send str\(",
    ),
    (Level.LOW, "class Level, a subclass of int"),
    (defaultdict(int), "class defaultdict, a subclass of dict"),
    (Counter("a"), "class Counter, a subclass of dict"),
    (numpy.float64(1), "class float64, a subclass of float: send float"),
    (numpy.ones(1), "class ndarray"),
    (values.Pair(1, Unknown(1)), r"value.right is of class Unknown: give weave.remote.register_class\(Unknown\)"),
    ([UnknownData(1)], r"value\[0\] is of class UnknownData: give weave.remote.register_class\(UnknownData\)"),
    ({(1, 2): {Unknown(1): 1}}, r"value\[a tuple\]\[a Unknown\] is of class Unknown"),
    ({10**5000: object()}, r"value\[a int\] is of class object"),
    ({Unknown(1)}, r"value\[0\] is of class Unknown"),
    (_itself(), r"value\['a'\]\[1\]\[0\] holds itself"),
    (_deep(65), r"value\[0\]\[0\].* \.\.\. \[0\]\[0\] is nested more than 64 deep"),
    ("x" * (17 << 20), "has plain values of 17825797 bytes, and at most 16777216"),
]


@pytest.mark.parametrize(("value", "why"), REFUSED, ids=lambda v: v if isinstance(v, str) and len(v) < 99 else "")
def test_what_cannot_be_sent_is_refused_with_place_and_remedy(value: Any, why: str) -> None:
    with pytest.raises(RemoteException, match=why) as caught:
        sent(value)
    assert str(caught.value).startswith("'teacher' can't send 'hidden': value")
    assert (caught.value.node, type(caught.value)) == ("teacher", RemoteException)
    assert len(str(caught.value)) < 400


def test_a_value_that_opens_without_end_is_refused_in_time() -> None:
    with pytest.raises(RemoteException, match="has more than 1048576 values in it"):
        sent(_wide())


def test_64_deep_is_not_too_deep_nor_are_objects() -> None:
    assert taken(sent(_deep(64))) == _deep(64)
    value: Any = 1
    for _ in range(64):
        value = values.Pair(value)
    assert values.same(taken(sent(value)), value)


# --- what came ---

WRONG: list[Any] = [
    [],
    [8],
    [-1],
    [True, 1],
    ["x"],
    [1.0],
    {},
    {1: 2},
    msgspec.msgpack.Ext(5, b"x"),
    [0, [9]],
    [2, 1],
    [2, 1, 2, 1, 3],
    [2, [0], 1],
    [2, 1, 2, True, 3],
    [3],
    [3, "cpu", "float32"],
    [3, "cpu", "float32", [1]],
    [3, "meta", "float32", [2]],
    [3, ["cpu"], "float32", [2]],
    [3, "cpu", "float33", [2]],
    [3, "cpu", ["float32"], [2]],
    [3, "cpu", "qint8", [8]],
    [3, "cpu", "float32", 2],
    [3, "cpu", "float32", [-2]],
    [3, "cpu", "float32", [True, 2]],
    [3, "cpu", "float32", [2.0]],
    [3, "cpu", "float32", [1 << 62, 4]],
    [3, "cpu", "float32", [1 << 63, 2]],
    [3, "cpu", "float32", [1] * 65],
    [3, "cpu", "float32", [2], [1]],
    [3, "cpu", "float32", [2], [False]],
    [3, "cpu", "float32", [2], []],
    [3, "cpu", "float32", [1, 2], [0, 0]],
    [3, "cpu", "float32", [2], [0], 1],
    [3, "cpu", "float32", [2]] * 2,
    [0, [3, "cpu", "float32", [2]], [3, "cpu", "float32", [2]]],
    [4],
    [4, 1],
    [4, b"", b""],
    [5],
    [5, 7],
    [5, -8],
    [5, "8"],
    [6],
    [6, "set"],
    [6, 1, 1],
    [6, "set", [0], 1],
    [7, "x"],
    [7, b"\xff"],
    None,  # and a frame
    [5, 8, 8],
]  # with one frame of eight bytes, where it asks for any


@pytest.mark.parametrize("said", WRONG, ids=repr)
def test_what_cannot_be_is_refused(said: Any) -> None:
    framed = repr(said).startswith(("[3", "[5", "[0, [3", "None"))
    came = sent(None).__class__(msgspec.msgpack.encode(said), [], [], None)
    with pytest.raises(WireException, match=r"^'student' can't take 'hidden': ") as caught:
        taken(came, [bytearray(8)] if framed else [])
    assert caught.value.node == "student"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([3, "cpu", "float32", [1]], r"shape \[1\] and torch.float32 with 8 bytes, not 4"),
        ([3, "cpu", "float32", [1 << 62, 4]], "with 8 bytes, not 73786976294838206464"),
        ([3, "cpu", "float32", [1, 2], [0, 0]], r"whose axes are in the order \[0, 0\]"),
        ([3, "cpu", "float33", [2]], "of dtype 'float33', which can't be had here"),
        ([0, 1, [3, "tpu", "float32", [2]]], r"value\[1\] is a tensor on 'tpu'"),
        ([2, "a", [0, [5, 9]]], r"value\['a'\]\[0\] is bytes, 9 by its head and 8 that came"),
        (
            [0, [3, "cpu", "float32", [2]], [3, "cpu", "float32", [2]]],
            r"value\[1\] has more frames by its head than the 1",
        ),
        (None, "has 0 frames by its head, and 1 came"),
    ],
)
def test_what_is_wrong_is_said(said: Any, why: str) -> None:
    with pytest.raises(WireException, match=why):
        taken(sent(None).__class__(msgspec.msgpack.encode(said), [], [], None), [bytearray(8)])


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("bytearray", 1 << 40),
        ("bytearray", [0, 1]),
        ("set", "abc"),
        ("set", [0, [0]]),
        ("range", [0, 1]),
        ("range", [1, 1, 2, 0]),
        ("complex", [1, "1", "2"]),
        ("slice", 3),
        ("torch.Size", [1, -1]),
        ("torch.Size", [1, 1 << 63]),
        ("torch.Size", [1, True]),
        ("torch.device", "nowhere"),
        ("torch.dtype", "save"),
        ("torch.layout", "float32"),
        ("InputArgs", [2, "args", [0]]),
        ("InputArgs", [2, "args", [0], "kwargs", [2, 1, 1]]),
        ("InputArgs", [2, "args", [2], "kwargs", [2]]),
        ("OrderedDict", [0]),
        ("torch.return_types.max", [1, 1]),
        ("torch.return_types.max", 7),
        ("tests.remote.values.Pair", [2, "left", 1]),
        ("tests.remote.values.Pair", [2, "left", 1, "right", 2, "size", 3]),
        ("tests.remote.values.Point", [0, 1, 2]),
    ],
)
def test_objects_are_made_of_what_they_can_be_made_of(name: str, plain: Any) -> None:
    came = sent(None).__class__(msgspec.msgpack.encode([6, name, plain]), [], [], None)
    with pytest.raises(RemoteException, match=f"value is a {name}, which can't be made of what came"):
        taken(came)


def test_nothing_is_made_by_a_name_that_nobody_registered() -> None:
    for name in (
        "os.system",
        "builtins.eval",
        "torch.nn.modules.linear.Linear",
        "tests.remote.test_codec.UnknownData",
        "",
    ):
        came = sent(None).__class__(msgspec.msgpack.encode([0, [6, name, [0, "ls"]]]), [], [], None)
        with pytest.raises(
            RemoteException, match=r"value\[0\] is what the rank that sent it has registered as .* this rank has"
        ):
            taken(came)
        with pytest.raises(RemoteException):
            describe_head(came.head)


def test_a_head_is_limited_before_it_is_read() -> None:
    small = LinkOptions(max_message_bytes=1 << 16)
    came = sent(list(range(60_000)))
    for read in (lambda: taken(came, most=small), lambda: describe_head(came.head, most=small)):
        with pytest.raises(WireException, match="at most 57344 are taken"):
            read()


def test_frames_must_be_memory_in_one_piece() -> None:
    came = sent(torch.ones(4))
    for frame in (memoryview(bytes(32))[::2], "text", None, 3):
        with pytest.raises(WireException):
            taken(came, [frame])


def test_a_cuda_tensor_without_a_cuda_device_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    came = sent(None).__class__(msgspec.msgpack.encode([3, "cuda", "float32", [2]]), [], [], None)
    with pytest.raises(
        RemoteException, match=r"a CUDA tensor, and there is no CUDA device here: send tensor.cpu\(\)"
    ) as caught:
        taken(came, [bytes(8)])
    assert not isinstance(caught.value, WireException), "nothing is wrong with what came"


def test_bool_tensors_hold_bools() -> None:
    came = sent(torch.tensor([True, False]))
    with pytest.raises(WireException, match="bool tensor with bytes other than 0 and 1"):
        taken(came, [b"\x01\x02"])


def test_order_of_keys_stays() -> None:
    value = OrderedDict([("b", 1), ("a", {3: 1, 1: 2})])
    back = taken(sent(value))
    assert list(back) == ["b", "a"]
    assert list(back["a"]) == [3, 1]
