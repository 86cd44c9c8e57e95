"""Wrappers that work after the forward that they wrap: no passage leaves through them (ranks: see `test_ranks`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import weave
from weave.passage import regions

from .nets import Again, Chain, Does, counting, lin, rows
from .stitching import EXT, knot, ports, touched


class Meter(nn.Module):
    """Counts what was entered and what was finished, as a wrapper with work to do behind the forward would."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.entered = self.finished = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.entered += 1
        y = self.inner(x)
        self.finished += 1
        return y + 1


@pytest.fixture
def meter() -> Iterator[type[Meter]]:
    """A class that says it must finish, and no longer does so afterwards."""

    class Finishing(Meter):
        pass

    before = set(regions._MUST_FINISH)
    assert weave.passage.must_finish(Finishing) is Finishing
    yield Finishing
    regions._MUST_FINISH.clear()
    regions._MUST_FINISH.update(before)
    regions._verdicts.clear()


def test_a_plain_wrapper_is_left_in_the_middle() -> None:
    net = Meter(Chain())
    ports(net, ["inner.a"])({"x": rows()}, {})
    assert (net.entered, net.finished) == (1, 0)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_class_said_to_must_finish_does(meter: type[Meter], depth: int) -> None:
    wrapped: nn.Module = Chain()
    for _ in range(depth):
        wrapped = meter(wrapped)
    net, x = nn.Sequential(wrapped, lin()), rows()
    ran = counting(net)
    name = ".".join(["0", *["inner"] * depth, "a"])
    got = ports(net, [name], [name])({"x": x}, {})
    assert torch.equal(got.captured_outputs[name], ports(net, [name], early_exit=False)({"x": x}, {})[name])
    meters = [m for m in net.modules() if isinstance(m, meter)]
    assert [(m.entered, m.finished) for m in meters] == [(2, 2)] * depth
    assert ran.count("1") == 1, "only the run without early exit went behind the wrapper"


def test_a_subclass_must_finish_too(meter: type[Meter]) -> None:
    class Sub(meter):  # type: ignore[misc, valid-type]
        pass

    net = Sub(Chain())
    ports(net, ["inner.a"])({"x": rows()}, {})
    assert (net.entered, net.finished) == (1, 1)


def test_said_after_the_knot_and_after_a_run() -> None:
    class Late(Meter):
        pass

    net, before = Late(Chain()), set(regions._MUST_FINISH)
    stitched = ports(net, ["inner.a"])
    stitched({"x": rows()}, {})
    assert (net.entered, net.finished) == (1, 0)
    weave.passage.must_finish(Late)
    try:
        stitched({"x": rows()}, {})
        assert (net.entered, net.finished) == (2, 1)
    finally:
        regions._MUST_FINISH.intersection_update(before)
        regions._verdicts.clear()


def test_its_own_ports(meter: type[Meter]) -> None:
    net, x = nn.Sequential(lin(), meter(Chain()), lin()), rows()
    ran = counting(net)
    got = ports(net, [], ["1"])({"x": x}, {})["1"].args[0]
    assert torch.equal(got, net[0](x))
    assert (net[1].entered, net[1].finished) == (0, 0), "left before it starts: there is nothing to finish"
    ran.clear()
    got = ports(net, ["1"])({"x": x}, {})["1"]
    assert torch.equal(got, net[1].inner(net[0](x)) + 1)
    assert "2" not in ran


def test_captured_inside_and_at_its_end(meter: type[Meter]) -> None:
    net, x = nn.Sequential(meter(Chain()), lin()), rows()
    got = ports(net, ["0.inner.b", "0"])({"x": x}, {}).captured_outputs
    assert torch.equal(got["0.inner.b"], net[0].inner.steps(x)["b"])
    assert torch.equal(got["0"], net[0].inner(x) + 1)
    assert net[0].finished == 1


def test_overridden_it_is_skipped_like_any_other(meter: type[Meter]) -> None:
    net, x, v = nn.Sequential(meter(Chain()), lin()), rows(), torch.ones(2, 3)
    assert torch.equal(ports(net, [""], new_outputs=["0"])({"x": x}, {"0": v})[""], net[1](v))
    assert net[0].entered == 0


def test_captured_in_front_of_it_the_forward_is_left_in_front_of_it(meter: type[Meter]) -> None:
    net, x = nn.Sequential(lin(), meter(Chain())), rows()
    assert torch.equal(ports(net, ["0"])({"x": x}, {})["0"], net[0](x))
    assert net[1].entered == 0


def test_the_models_own_errors_go_through_it(meter: type[Meter]) -> None:
    net = meter(Does(lambda m, x: m.b(m.a(x) / (1 // 0)), a=lin(), b=lin()))
    with pytest.raises(ZeroDivisionError):
        ports(net, ["inner.a"])({"x": rows()}, {})
    assert touched(net) == []


def test_a_layer_shared_inside_and_outside(meter: type[Meter]) -> None:
    """Wanted is the call outside; the one inside comes first and does not count as the end."""
    net = nn.Sequential(lin(), meter(Again(2)))
    net[1].inner.layer = net[1].inner.other = net[0]
    x, m = rows(), weave.ModuleTarget("m", net)
    feed = (EXT.input("x"), m.input(""))
    outside = knot(feed, (m.output("0", call=0), EXT.output("y")))({"x": x}, {})["y"]
    assert torch.equal(outside, net[0](x))
    assert net[1].entered == 0
    inside = knot(feed, (m.output("0", call=1), EXT.output("y")))({"x": x}, {})["y"]
    assert torch.equal(inside, net[0](net[0](x)))
    assert (net[1].entered, net[1].finished) == (1, 1)


def hooked(module: nn.Module, log: list[str]) -> nn.Module:
    hooks = pytest.importorskip("accelerate.hooks")

    class Notes(hooks.ModelHook):  # type: ignore[misc, name-defined]
        def pre_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            log.append("pre")
            return args, kwargs

        def post_forward(self, module: nn.Module, output: Any) -> Any:
            log.append("post")
            return output + 1

    hooks.add_hook_to_module(module, Notes())
    return module


def test_accelerates_hooks_finish() -> None:
    log: list[str] = []
    net, x = nn.Sequential(hooked(Chain(), log), lin()), rows()
    ran = counting(net)
    got = ports(net, ["0.a"], ["0.b"])({"x": x}, {})
    assert torch.equal(got.captured_outputs["0.a"], net[0].steps(x)["a"])
    assert log == ["pre", "post"]
    assert "0.c" in ran
    assert "1" not in ran


def test_accelerates_hooks_put_on_after_the_knot_finish_too() -> None:
    log: list[str] = []
    net, x = nn.Sequential(Chain(), lin()), rows()
    stitched = ports(net, ["0.a"])
    stitched({"x": x}, {})
    hooked(net[0], log)
    stitched({"x": x}, {})
    assert log == ["pre", "post"]


def test_accelerates_hooks_are_seen_inside_the_port() -> None:
    log: list[str] = []
    net, x, v = nn.Sequential(hooked(lin(), log), lin()), rows(), torch.ones(2, 3)
    plain = nn.functional.linear
    got = ports(net, ["0"])({"x": x}, {})["0"]
    assert torch.equal(got, plain(x, net[0].weight, net[0].bias) + 1)
    got = ports(net, [""], new_inputs=["0"])({"x": x, "0": v}, {})[""]
    assert torch.equal(got, net[1](plain(v, net[0].weight, net[0].bias) + 1))
    log.clear()
    assert torch.equal(ports(net, [""], new_outputs=["0"])({"x": x}, {"0": v})[""], net[1](v))
    assert log == []


def test_accelerates_cpu_offload_runs_and_goes_back_to_meta() -> None:
    accelerate = pytest.importorskip("accelerate")
    net, x = Chain(), rows()
    want = {k: v.detach() for k, v in net.steps(x).items()}
    accelerate.cpu_offload(net, execution_device="cpu")
    assert net.a.weight.is_meta
    with torch.no_grad():
        got = ports(net, ["a", "b"])({"x": x}, {}).captured_outputs
    assert torch.equal(got["a"], want["a"])
    assert torch.equal(got["b"], want["b"])
    assert net.a.weight.is_meta, "the hook behind the forward put the weights away again"
    assert net.c.weight.is_meta
