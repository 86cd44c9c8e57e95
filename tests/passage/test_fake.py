"""`fake_tensor`, and the cache of what submodules return for fakes."""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException

import weave
from weave.passage.fake import is_fake

from .nets import Chain, Counted, Does, counting, lin, rows
from .stitching import EXT, keeps_kwargs, knot

# torch looks at `.grad` of what it mixes with fakes, and hides its own warning of that in a way that an error filter beats.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")

KEEPS = weave.InputReducer(keeps_kwargs)


# --- what a fake is ---


@pytest.mark.parametrize(
    ("size", "shape"),
    [
        ((3,), (3,)),
        ((2, 3), (2, 3)),
        (([2, 3],), (2, 3)),
        (((2, 3),), (2, 3)),
        ((torch.Size([4, 1]),), (4, 1)),
        (([],), ()),
        ((0,), (0,)),
    ],
)
def test_sizes_as_numbers_or_one_sequence(size: Any, shape: tuple[int, ...]) -> None:
    fake = weave.fake_tensor(*size)
    assert isinstance(fake, torch.Tensor)
    assert fake.shape == shape == torch.empty(*size).shape


def test_its_shape_unpacks() -> None:
    batch, length = weave.fake_tensor(1, 7, dtype=torch.long).shape
    assert (batch, length) == (1, 7)
    assert [type(n) for n in (batch, length)] == [int, int]


@pytest.mark.parametrize("dtype", [torch.long, torch.bool, torch.bfloat16, torch.float64, torch.int8])
def test_dtype(dtype: torch.dtype) -> None:
    assert weave.fake_tensor(2, dtype=dtype).dtype is dtype


def test_the_default_dtype_and_device() -> None:
    assert weave.fake_tensor(2).dtype is torch.float32
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert weave.fake_tensor(2).dtype is torch.float64
    finally:
        torch.set_default_dtype(before)
    assert weave.fake_tensor(2).device == torch.device("cpu")
    with torch.device("cpu"):
        assert weave.fake_tensor(2).device == torch.device("cpu")


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1", torch.device("cpu"), torch.device("cuda", 2)])
def test_the_device_asked_for_and_never_meta(device: Any) -> None:
    """Also where there is no such hardware: a rank that plans needs none."""
    fake = weave.fake_tensor(1, 4, dtype=torch.long, device=device)
    asked = torch.device(device)
    assert fake.device.type == asked.type
    assert fake.device.index == asked.index or (asked.type == "cuda" and asked.index is None and fake.device.index == 0)


def test_a_default_device_set_around() -> None:
    with torch.device("cuda:1"):
        assert weave.fake_tensor(2).device == torch.device("cuda:1")
        assert weave.fake_tensor(2, device="cpu").device == torch.device("cpu")


def test_it_mixes_with_real_weights_and_real_tensors_stay_real() -> None:
    fake, layer = weave.fake_tensor(2, 3), lin()
    out = layer(fake)
    assert is_fake(out)
    assert out.shape == (2, 3)
    positions = torch.arange(fake.shape[1], device=fake.device)
    assert not is_fake(positions)
    assert positions.tolist() == [0, 1, 2]
    mask = torch.full((3, 3), float("-inf"), device=fake.device).triu(1)
    assert not is_fake(mask)
    assert is_fake(fake + positions)
    assert not is_fake(layer.weight)
    assert not is_fake(torch.zeros(2)), "no mode is left on"
    assert is_fake(nn.Embedding(5, 3)(weave.fake_tensor(1, 4, dtype=torch.long)))


def test_it_has_no_data_and_needs_no_memory() -> None:
    huge = weave.fake_tensor(1 << 20, 1 << 20)
    assert huge.shape == (1 << 20, 1 << 20)
    with pytest.raises(DataDependentOutputException):
        weave.fake_tensor(2).sum().item()


# --- the cache ---


def answers(part: nn.Module, *, front: nn.Module | None = None) -> tuple[Any, weave.StitchedModule]:
    """`end(part(front(x)))` where `end`'s input is overridden by "v", so that `part` may be called with fakes."""
    net = Does(
        lambda m, x, **k: m.end(m.part(m.front(x), **k)),
        front=front or nn.Identity(),
        part=part,
        end=Counted(lambda x: x),
    )
    m = weave.ModuleTarget("m", net)
    stitched = knot(
        (EXT.input("v"), m.input("end", reducer=weave.InputReducer(_keeps_original))),
        (m.output("end"), EXT.output("y")),
        capture_cache_outputs_predicate=lambda name, module: name == "part",
    )
    return net, stitched


ORIGINALS: list[Any] = []


def _keeps_original(acc: Any, value: Any, original: Any, index: int, every: Any) -> Any:
    ORIGINALS.append(original.args[0] if original.args else None)
    return value


Pair = namedtuple("Pair", "left right")

OUTPUTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "tensor": lambda x: x * 2,
    "tuple": lambda x: (x, x.sum()),
    "list": lambda x: [x, 3],
    "dict": lambda x: {"x": x, "n": None},
    "ordered": lambda x: OrderedDict(x=x),
    "namedtuple": lambda x: Pair(x, "text"),
    "nested": lambda x: ({"x": [x, (x.bool(),)]}, 1.5),
    "transposed": lambda x: x.t(),
    "size": lambda x: (x, x.shape),
    "arguments": lambda x: weave.InputArgs(x, k=x),
}


def structure(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return is_fake(value), tuple(value.shape), tuple(value.stride()), value.dtype, value.device
    if isinstance(value, weave.InputArgs):
        return type(value), structure(value.args), structure(value.kwargs)
    if isinstance(value, dict):
        return type(value), {k: structure(v) for k, v in value.items()}
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        return type(value), [structure(v) for v in value]
    return value


@pytest.mark.parametrize("kind", OUTPUTS)
def test_the_answer_is_a_fake_copy_of_what_it_returned(kind: str) -> None:
    net, stitched = answers(Counted(OUTPUTS[kind]))
    ORIGINALS.clear()
    for _ in range(3):
        assert stitched({"v": 7}, {}, weave.fake_tensor(2, 3))["y"] == 7
    assert net.part.ran == 1
    first, second, third = ORIGINALS
    assert structure(first) == structure(second) == structure(third)


def test_a_run_on_real_values_is_kept_too() -> None:
    net, stitched = answers(Counted(lambda x: x[:, :1]))
    ORIGINALS.clear()
    stitched({"v": 7}, {}, torch.ones(2, 3))
    assert net.part.ran == 1
    stitched({"v": 7}, {}, weave.fake_tensor(2, 3))
    assert net.part.ran == 1
    assert ORIGINALS[1].shape == (2, 1)
    assert is_fake(ORIGINALS[1])
    stitched({"v": 7}, {}, torch.ones(2, 3))
    assert net.part.ran == 2, "called with real values it runs"
    assert torch.equal(ORIGINALS[2], torch.ones(2, 1))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda: weave.fake_tensor(2, 3), lambda: weave.fake_tensor(4, 3)),
        (lambda: weave.fake_tensor(2, 3), lambda: weave.fake_tensor(2, 3, dtype=torch.float64)),
        (lambda: weave.fake_tensor(2, 3), lambda: weave.fake_tensor(2, 3, device="cuda")),
        (lambda: weave.fake_tensor(3, 3), lambda: weave.fake_tensor(3, 3).t()),
    ],
    ids=["shape", "dtype", "device", "stride"],
)
def test_the_key_tells_inputs_apart(first: Any, second: Any) -> None:
    net, stitched = answers(Counted(lambda x: x.sum(0)))
    for _ in range(2):
        ORIGINALS.clear()
        for make in (first, second):
            stitched({"v": 7}, {}, make())
        assert [structure(o) for o in ORIGINALS] == [structure(make().sum(0)) for make in (first, second)]
    assert net.part.ran == 2


def test_the_key_tells_other_arguments_apart() -> None:
    net, stitched = answers(Counted(lambda x, n=1, **k: x.repeat(n, 1)))
    words: list[dict[str, Any]] = [
        {"n": 1},
        {"n": 2},
        {},
        {"n": 2, "mode": "a"},
        {"n": 2, "mode": "b"},
        {"n": 1, "flags": {"z": [1]}},
    ]
    for turn in range(2):
        ORIGINALS.clear()
        for k in words:
            stitched({"v": 7}, {}, weave.fake_tensor(2, 3), **k)
        assert [o.shape[0] for o in ORIGINALS] == [2, 4, 2, 4, 4, 2]
        assert net.part.ran == 6, turn


def test_the_key_tells_training_autocast_and_weights_apart() -> None:
    layer = lin()
    net, stitched = answers(Does(lambda m, x: m.layer(x) if m.training else m.layer(x)[:1], layer=layer))
    ran = counting(net.part)

    def shape_and_dtype(autocast: bool = False) -> Any:
        ORIGINALS.clear()
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            stitched({"v": 7}, {}, weave.fake_tensor(2, 3, dtype=layer.weight.dtype))
        return tuple(ORIGINALS[0].shape), ORIGINALS[0].dtype

    for _ in range(2):
        assert shape_and_dtype() == ((2, 3), torch.float32)
        assert shape_and_dtype(autocast=True) == ((2, 3), torch.bfloat16)
        net.eval()
        assert shape_and_dtype() == ((1, 3), torch.float32)
        net.train().double()
        assert shape_and_dtype() == ((2, 3), torch.float64)
        net.float()
    assert ran.count("") == 4


def test_weights_of_another_dtype_with_tokens_of_the_same() -> None:
    net, stitched = answers(nn.Embedding(5, 3))
    for _ in range(2):
        for dtype in (torch.float32, torch.float64):
            net.to(dtype)
            ORIGINALS.clear()
            stitched({"v": 7}, {}, weave.fake_tensor(1, 4, dtype=torch.long))
            assert ORIGINALS[0].dtype is dtype


def test_what_the_graph_wants_something_of_is_never_skipped() -> None:
    net = nn.Sequential(Chain(), Chain(), lin())
    ran, m = counting(net), weave.ModuleTarget("m", net)
    stitched = knot(
        (EXT.input("v"), m.input("1.b", reducer=KEEPS)),
        (m.output("1.c"), EXT.output("c")),
        capture_cache_outputs_predicate=lambda name, module: name in ("0", "1", "0.a", "1.a", "1.c"),
    )
    v = rows()
    for turn in range(3):
        ran.clear()
        got = stitched({"v": v}, {}, weave.fake_tensor(2, 3))["c"]
        assert torch.equal(got, net[1].c(torch.tanh(net[1].b(v))))
        ran.remove("1.b")
        ran[:] = [name for name in ran if not name.startswith("2")]
        front = ["", "0", "0.a", "0.b", "0.c", "1", "1.a", "1.c"] if turn == 0 else ["", "1", "1.c"]
        assert ran[: len(front)] == front


def test_the_cache_belongs_to_one_stitched_module_and_its_copies_start_without() -> None:
    net, stitched = answers(Counted(lambda x: x))
    stitched({"v": 7}, {}, weave.fake_tensor(2, 3))
    twin = copy.deepcopy(stitched)
    twin({"v": 7}, {}, weave.fake_tensor(2, 3))
    inner = next(m for m in twin.modules() if isinstance(m, Does))
    assert (net.part.ran, inner.part.ran) == (1, 2)
    twin({"v": 7}, {}, weave.fake_tensor(2, 3))
    stitched({"v": 7}, {}, weave.fake_tensor(2, 3))
    assert (net.part.ran, inner.part.ran) == (1, 2)


def test_what_no_fake_can_stand_for_is_not_skipped() -> None:
    """A real tensor made for fakes (a table of positions), or an object with a life of its own."""
    table = torch.arange(3.0)
    for make, same in (
        (lambda x: table, lambda got: got is table),
        (lambda x: (x, {1, 2}, object), lambda got: got[1] == {1, 2}),
    ):
        _, stitched = answers(Counted(make))
        for _ in range(2):
            ORIGINALS.clear()
            stitched({"v": 7}, {}, weave.fake_tensor(2, 3))
            assert same(ORIGINALS[0])


def test_a_submodule_without_the_predicate_runs_on_fakes_every_time() -> None:
    net = nn.Sequential(lin(), lin())
    m, ran = weave.ModuleTarget("m", net), counting(net)
    stitched = knot((EXT.input("v"), m.input("1")), (m.output("1"), EXT.output("y")))
    for _ in range(2):
        assert torch.equal(stitched({"v": rows()}, {}, weave.fake_tensor(2, 3))["y"], net[1](rows()))
    assert ran.count("0") == 2


def test_fakes_from_elsewhere_are_made_anew_at_the_entry() -> None:
    """A mode is not made for threads, so each passage has one of its own, and all its fakes are of that one."""
    modes: list[Any] = []

    def body(m: Any, x: torch.Tensor, y: torch.Tensor, *, z: Any) -> torch.Tensor:
        out = m.part(x + y + z["z"][0])
        modes.append([t.fake_mode for t in (x, y, z["z"][0], out)])
        return m.end(out)

    net = Does(body, part=lin(), end=Counted(lambda x: x))
    m = weave.ModuleTarget("m", net)
    stitched = knot((EXT.input("v"), m.input("end")), (m.output("end"), EXT.output("y")))
    made: list[torch.Tensor] = []
    for _ in range(2):
        thread = threading.Thread(target=lambda: made.append(weave.fake_tensor(2, 3)))
        thread.start()
        thread.join()
    x, y = made
    for _ in range(2):
        assert stitched({"v": 7}, {}, x, y, z={"z": [weave.fake_tensor(2, 3)]})["y"] == 7
    first, second = ({id(mode) for mode in seen} for seen in modes)
    assert len(first) == len(second) == 1
    assert not (first | second) & {id(x.fake_mode), id(y.fake_mode)}
    assert first != second, "nor do two runs share one"


def test_one_fake_for_many_threads() -> None:
    net = nn.Sequential(Chain(), Chain(), lin())
    m, fake, gate = weave.ModuleTarget("m", net), weave.fake_tensor(2, 3), threading.Barrier(4)
    stitched = knot((EXT.input("v"), m.input("2")), (m.output("2"), EXT.output("y")))
    want = net[2](rows())

    def job() -> None:
        gate.wait()
        for _ in range(20):
            assert torch.equal(stitched({"v": rows()}, {}, fake)["y"], want)

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(job) for _ in range(4)]:
            future.result()


def test_fakes_brought_by_a_stitch_mix() -> None:
    net = Does(lambda m, x: m.end(m.mix(x, x)), mix=Counted(lambda a, b: a + b), end=Counted(lambda x: x))
    m = weave.ModuleTarget("m", net)
    c = weave.ConstantTarget("c", weave.fake_tensor(2, 3))
    stitched = knot(
        (c.output(), m.input("mix", reducer=KEEPS)),
        (EXT.input("v"), m.input("end")),
        (m.output("end"), EXT.output("y")),
    )
    for given in (weave.fake_tensor(2, 3), torch.ones(2, 3)):
        assert stitched({"v": 7}, {}, given)["y"] == 7


def test_many_threads_compute_an_answer_once() -> None:
    gate = threading.Barrier(8)
    net, stitched = answers(Counted(lambda x: x @ x.t()))

    def job(place: int) -> None:
        gate.wait()
        for n in range(1, 5):
            assert stitched({"v": place}, {}, weave.fake_tensor(n, 3))["y"] == place

    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(job, place) for place in range(8)]:
            future.result()
    assert net.part.ran == 4


def test_a_submodule_that_fails_on_fakes_fails_each_time_and_blocks_nobody() -> None:
    net, stitched = answers(Counted(lambda x: x * x.sum().item()))
    for _ in range(2):
        with pytest.raises(DataDependentOutputException):
            stitched({"v": 7}, {}, weave.fake_tensor(2, 3))
    assert net.part.ran == 2
    assert stitched({"v": 7}, {}, torch.ones(2, 3))["y"] == 7
