"""Modules that are not plain: parametrized, lazy, guarded, recurrent, scripted, with a `__call__` of their own."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

import weave

from .nets import Does, lin, rows
from .stitching import EXT, knot, ports, touched


class Double(nn.Module):
    def forward(self, w: torch.Tensor) -> torch.Tensor:
        return w * 2


@pytest.mark.parametrize("form", ["spectral_norm", "orthogonal", "weight_norm"])
def test_parametrized_before_and_after_keep_the_class_that_parametrizing_made(form: str) -> None:
    net, x = nn.Sequential(lin(), nn.Tanh(), lin()).eval(), rows()
    getattr(nn.utils.parametrizations, form)(net[0])
    kind = type(net[0])
    got = ports(net, ["0", ""], ["0"])({"x": x}, {})
    assert torch.allclose(got.captured_outputs["0"], nn.functional.linear(x, net[0].weight, net[0].bias))
    assert type(net[0]) is kind
    assert torch.allclose(copy.deepcopy(net)(x), net(x))


def test_parametrized_before_and_after_the_knot_the_class_is_the_users_affair() -> None:
    net, x = nn.Sequential(lin(), nn.Tanh()), rows()
    w, b = net[0].weight.detach().clone(), net[0].bias
    stitched = ports(net, ["0"], new_inputs=["0"])
    for _ in range(2):
        parametrize.register_parametrization(net[0], "weight", Double())
        assert torch.allclose(stitched({"x": x, "0": x + 1}, {})["0"], nn.functional.linear(x + 1, 2 * w, b))
        parametrize.remove_parametrizations(net[0], "weight", leave_parametrized=False)
        assert type(net[0]) is nn.Linear
        assert torch.allclose(stitched({"x": x, "0": x + 1}, {})["0"], nn.functional.linear(x + 1, w, b))


def test_parametrizations_are_ports_too() -> None:
    net, x = nn.Sequential(lin()), rows()
    parametrize.register_parametrization(net[0], "weight", Double())
    name = "0.parametrizations.weight.0"
    original = net[0].parametrizations.weight.original
    got = ports(net, [name, "0"], [name])({"x": x}, {})
    assert torch.equal(got.captured_outputs[name], 2 * original)
    v = torch.eye(3)
    assert torch.equal(ports(net, ["0"], new_outputs=[name])({"x": x}, {name: v})["0"], x + net[0].bias)


@pytest.mark.parametrize("ports_on", ["first", "second", "both"])
def test_lazy_modules_grow_up_inside_a_port(ports_on: str) -> None:
    net, x = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.LazyLinear(2)), rows()
    names = {"first": ["0"], "second": ["1"], "both": ["0", "1", "2"]}[ports_on]
    stitched = ports(net, [*names, ""], names)
    for _ in range(2):
        got = stitched({"x": x}, {})
        h = nn.functional.linear(x, net[0].weight, net[0].bias)
        if "0" in names:
            assert torch.equal(got.captured_outputs["0"], h)
        assert [type(m).__name__ for m in net] == ["Linear", "BatchNorm1d", "Linear"]
        assert not any(m._forward_pre_hooks for m in net)
    assert len(list(stitched.parameters())) == 6


def test_lazy_modules_grow_up_from_an_overridden_input() -> None:
    net = nn.Sequential(lin(), nn.LazyLinear(2))
    ports(net, [""], new_inputs=["1"])({"x": rows(), "1": torch.ones(2, 7)}, {})
    assert net[1].weight.shape == (2, 7)


class Delegates(nn.Module):
    """Whatever it hasn't, its inner module answers for; also for attributes that are looked up by private names."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


class Sealed(nn.Linear):
    """Refuses to be changed from the outside."""

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__dict__.get("sealed"):
            raise RuntimeError(f"sealed: {name}")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise RuntimeError(f"sealed: {name}")


class Property(nn.Module):
    @property
    def forward(self) -> Any:
        return lambda x: x * 3


class Slots(nn.Linear):
    __slots__ = ("note",)


@pytest.mark.parametrize("made", [lambda: Delegates(lin()), lambda: Sealed(3, 3), Property, lambda: Slots(3, 3)])
def test_guarded_attributes(made: Any) -> None:
    guarded = made()
    if isinstance(guarded, Sealed):
        guarded.sealed = True
    net, x, v = nn.Sequential(lin(), guarded, lin()), rows(), torch.ones(2, 3)
    before = dict(guarded.__dict__)
    h = net[0](x)
    got = ports(net, ["1"], ["1"])({"x": x}, {})
    assert torch.equal(got.captured_outputs["1"], guarded(h))
    assert torch.equal(got.captured_inputs["1"].args[0], h)
    assert torch.equal(ports(net, ["1"], new_inputs=["1"])({"x": x, "1": v}, {})["1"], guarded(v))
    assert torch.equal(ports(net, [""], new_outputs=["1"])({"x": x}, {"1": v})[""], net[2](v))
    assert guarded.__dict__ == before


def test_guarded_attributes_wrapper_and_wrapped_are_told_apart() -> None:
    net, x, v = nn.Sequential(Delegates(Delegates(lin()))), rows(), torch.ones(2, 3)
    h = net[0].inner.inner(x)
    got = ports(net, ["0", "0.inner", "0.inner.inner"])({"x": x}, {}).captured_outputs
    assert torch.equal(got["0.inner.inner"], h)
    assert torch.equal(got["0.inner"], h + 1)
    assert torch.equal(got["0"], h + 1 + 1)
    assert torch.equal(ports(net, [""], new_outputs=["0.inner"])({"x": x}, {"0.inner": v})[""], v + 1)
    assert touched(net) == []


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_give_their_tuples(kind: str) -> None:
    net = Does(lambda m, x: m.rnn(x)[0].sum(), rnn=getattr(nn, kind)(3, 2, batch_first=True))
    x = torch.randn(2, 4, 3)
    out, state = net.rnn(x)
    got = ports(net, ["rnn", ""])({"x": x}, {}).captured_outputs
    assert torch.equal(got["rnn"][0], out)
    assert isinstance(got["rnn"][1], tuple if kind == "LSTM" else torch.Tensor)
    v = (torch.ones(2, 4, 2), state)
    assert ports(net, [""], new_outputs=["rnn"])({"x": x}, {"rnn": v})[""] == 16


def test_packed_sequences_are_one_value() -> None:
    net = Does(lambda m, x: m.rnn(x)[0], rnn=nn.GRU(3, 2))
    packed = nn.utils.rnn.pack_sequence([torch.randn(3, 3), torch.randn(2, 3)])
    got = ports(net, ["rnn"], ["rnn"])({"x": packed}, {})
    assert got.captured_inputs["rnn"].args[0] is packed
    assert torch.equal(got.captured_outputs["rnn"][0].data, net.rnn(packed)[0].data)


@pytest.mark.parametrize("port", ["input", "output"])
@pytest.mark.parametrize("name", ["layers", "heads", "bag"])
def test_containers_are_never_called_and_refused(name: str, port: str) -> None:
    class Bag(nn.Module):
        """A module that only holds others."""

    net = nn.Module()
    net.layers, net.heads, net.bag = nn.ModuleList([lin()]), nn.ModuleDict({"a": lin()}), Bag()
    m = weave.ModuleTarget("m", net)
    for end in ((getattr(m, port)(name), EXT.output("y")), (EXT.output("y"), getattr(m, port)(name))):
        with pytest.raises(weave.UnknownPortException, match=f"'{name}'.*never called") as raised:
            knot(end)
        assert raised.value.node == "m"


def test_attention_projection_is_never_called() -> None:
    """`nn.MultiheadAttention` reads its projection's weights: no run can pass that port, and the error says so."""
    net = nn.Sequential(
        nn.Linear(4, 4), Does(lambda m, x: m.attn(x, x, x)[0], attn=nn.MultiheadAttention(4, 2, batch_first=True))
    )
    x = torch.randn(1, 3, 4)
    got = ports(net, ["1.attn"], ["1.attn"])({"x": x}, {})
    assert len(got.captured_inputs["1.attn"].args) == 3
    assert torch.equal(got.captured_outputs["1.attn"][0], net(x))
    name = "1.attn.out_proj"
    for stitched, external in (
        (ports(net, [name]), ({"x": x}, {})),
        (ports(net, ["0"], [name]), ({"x": x}, {})),
        (ports(net, [""], new_outputs=[name], early_exit=False), ({"x": x}, {name: x})),
        (ports(net, [""], new_inputs=[name], early_exit=False), ({"x": x, name: x}, {})),
    ):
        with pytest.raises(weave.PortNotReachedException, match=r"out_proj.*MultiheadAttention"):
            stitched(*external)


class Twice(nn.Linear):
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return super().__call__(x) * 2


class Recomputes(nn.Linear):
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(super().__call__, x, use_reentrant=False)


@pytest.mark.parametrize("cls", [Twice, Recomputes])
def test_call_of_its_own_is_refused_with_the_reason(cls: type) -> None:
    net = nn.Sequential(lin(), cls(3, 3))
    for options in (
        {"outputs": ["1"]},
        {"inputs": ["1"]},
        {"outputs": [""], "new_outputs": ["1"]},
        {"new_inputs": ["1"]},
    ):
        with pytest.raises(
            weave.UnknownPortException, match=rf"{cls.__name__} has a __call__ of its own.*passes_through"
        ):
            ports(net, **options)


def test_call_of_its_own_that_is_said_to_pass_through() -> None:
    @weave.passage.passes_through
    class Logs(nn.Linear):
        calls = 0

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            type(self).calls += 1
            return super().__call__(*args, **kwargs)

    net, x, v = nn.Sequential(Logs(3, 3), lin()), rows(), torch.ones(2, 3)
    got = ports(net, ["0"], ["0"])({"x": x}, {})
    assert torch.equal(got.captured_outputs["0"], nn.functional.linear(x, net[0].weight, net[0].bias))
    assert torch.equal(ports(net, [""], new_outputs=["0"])({"x": x}, {"0": v})[""], net[1](v))
    assert Logs.calls == 2

    class Louder(Logs):
        pass

    assert ports(nn.Sequential(Louder(3, 3)), ["0"])({"x": x}, {})["0"].shape == (2, 3), "a subclass inherits it"


def test_call_of_its_own_of_graph_modules_passes_through() -> None:
    net = nn.Sequential(torch.fx.symbolic_trace(nn.Sequential(lin(), nn.Tanh())), lin())
    x, v = rows(), torch.ones(2, 3)
    got = ports(net, ["0", "0.0"], ["1"])({"x": x}, {})
    assert torch.equal(got.captured_outputs["0"], torch.tanh(got.captured_outputs["0.0"]))
    assert got.captured_inputs["1"].args[0] is got.captured_outputs["0"]
    assert torch.equal(ports(net, [""], new_outputs=["0.0"])({"x": x}, {"0.0": v})[""], net[1](torch.tanh(v)))


@pytest.fixture
def scripted() -> torch.jit.ScriptModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit.script is deprecated
        return torch.jit.script(nn.Sequential(lin(), nn.Tanh()))


def test_scripted_submodule_is_a_port_or_refused_but_never_silent(scripted: torch.jit.ScriptModule) -> None:
    net, x, v = nn.Sequential(lin(), scripted, lin()), rows(), torch.ones(2, 3)
    for make, want in (
        (lambda: ports(net, ["1"])({"x": x}, {})["1"], scripted(net[0](x))),
        (lambda: ports(net, [], ["1"])({"x": x}, {})["1"].args[0], net[0](x)),
        (lambda: ports(net, [""], new_outputs=["1"])({"x": x}, {"1": v})[""], net[2](v)),
    ):
        try:
            got = make()
        except weave.UnknownPortException as error:
            assert "'1'" in str(error)  # noqa: PT017 - either is right
        else:
            assert torch.equal(got, want)


def test_scripted_submodule_inside_is_refused_with_the_reason(scripted: torch.jit.ScriptModule) -> None:
    net = nn.Sequential(lin(), scripted)
    for name in ("1.0", "1.1"):
        with pytest.raises(weave.UnknownPortException, match=rf"'{name}'.*TorchScript"):
            ports(net, [name])
    x = rows()
    assert torch.equal(ports(net, ["0"])({"x": x}, {})["0"], net[0](x)), "an eager layer beside it"


def test_a_module_registered_inside_itself() -> None:
    net, x = nn.Sequential(lin()), rows()
    net[0].add_module("up", net)
    assert torch.equal(ports(net, ["0"])({"x": x}, {})["0"], nn.functional.linear(x, net[0].weight, net[0].bias))


def test_data_parallel_without_devices_calls_what_it_wraps() -> None:
    net, x = nn.DataParallel(nn.Sequential(lin(), lin())), rows()
    got = ports(net, ["module.0", "module", ""], ["module.1"])({"x": x}, {})
    assert torch.equal(got.captured_outputs["module.0"], net.module[0](x))
    assert got.captured_outputs["module"] is got.captured_outputs[""]


def test_data_parallel_over_several_devices_is_refused_with_the_reason() -> None:
    """It calls copies of what it wraps, which nobody can stitch."""
    net = nn.DataParallel(nn.Sequential(lin()))
    net.device_ids = [0, 1]
    with pytest.raises(weave.UnknownPortException, match=r"DataParallel.*DistributedDataParallel"):
        ports(net, ["module.0"])
