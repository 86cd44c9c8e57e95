"""A captured value is the object itself: where somebody changes it in place, the run raises and names the remedy."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import weave

from .nets import Does, lin, rows
from .stitching import EXT, knot, ports, touched

Changed = weave.ChangedInPlaceException


def relu_net() -> nn.Sequential:
    return nn.Sequential(lin(), nn.ReLU(inplace=True), lin())


def one(net: nn.Module, *stitches: Callable[[Any], tuple[Any, Any]], **options: Any) -> Any:
    m = weave.ModuleTarget("m", net)
    return knot((EXT.input("x"), m.input("")), *(make(m) for make in stitches), **options)


def test_an_activation_in_place_behind_a_captured_layer_raises_with_the_remedy() -> None:
    net = relu_net()
    with pytest.raises(Changed, match=r"m\.output\('0'\) was changed in place.*adapter=\"clone\"") as raised:
        ports(net, ["0", "2"])({"x": rows()}, {})
    assert (raised.value.node, raised.value.port, tuple(raised.value.suspects)) == ("m", "m.output('0')", ("m",))
    assert isinstance(raised.value, RuntimeError)
    assert touched(net) == []


def test_a_clone_is_the_remedy() -> None:
    net, x = relu_net(), rows()
    h = net[0](x)
    for adapter in ("clone", torch.clone, lambda v: v.clone()):
        got = one(
            net,
            lambda m, a=adapter: (m.output("0", adapter=a), EXT.output("0")),
            lambda m: (m.output("2"), EXT.output("2")),
        )({"x": x}, {})
        assert torch.equal(got["0"], h)
        assert torch.equal(got["2"], net[2](h.clone().relu()))


def test_a_clone_at_the_destination_comes_too_late() -> None:
    """Destination adapters run when the consumer is fired; by then the module has changed its tensor."""
    net = relu_net()
    stitched = one(
        net,
        lambda m: (m.output("0"), EXT.output("0", adapter="clone")),
        lambda m: (m.output("2"), EXT.output("2")),
    )
    with pytest.raises(Changed):
        stitched({"x": rows()}, {})


def test_an_early_exit_leaves_before_the_change() -> None:
    net, x = relu_net(), rows()
    assert torch.equal(ports(net, ["0"])({"x": x}, {})["0"], net[0](x))
    assert torch.equal(ports(net, [], ["1"])({"x": x}, {})["1"].args[0], net[0](x))


def test_input_of_an_in_place_module() -> None:
    net, x = nn.Sequential(nn.Identity(), nn.ReLU(inplace=True)), torch.tensor([[1.5, -2.0]])
    for options in ({"outputs": ["1"]}, {"early_exit": False}):
        with pytest.raises(Changed, match=r"m\.input\('1'\)"):
            ports(net, inputs=["1"], **options)({"x": x.clone()}, {})
    got = one(
        net, lambda m: (m.input("1", adapter="clone"), EXT.input("in")), lambda m: (m.output("1"), EXT.output("y"))
    )
    out = got({"x": x.clone()}, {})
    assert torch.equal(out["in"].args[0], x)
    assert torch.equal(out["y"], x.relu())


CONTAINERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], torch.Tensor]]] = {
    "tuple": (lambda h: (h, 1), lambda v: v[0]),
    "list": (lambda h: [1, h], lambda v: v[1]),
    "dict": (lambda h: {"h": h}, lambda v: v["h"]),
    "nested": (lambda h: {"h": [(h,)]}, lambda v: v["h"][0][0]),
    "arguments": (lambda h: weave.InputArgs(1, k=h), lambda v: v.kwargs["k"]),
}
CHANGES: dict[str, Callable[[torch.Tensor], Any]] = {
    "method": lambda h: h.mul_(0),
    "item": lambda h: h.__setitem__(0, 7.0),
    "row": lambda h: h[0].fill_(7),
    "view": lambda h: h.view(-1).add_(1),
    "transposed": lambda h: h.t().add_(1),
    "detached": lambda h: h.detach().add_(1),
    "out": lambda h: torch.add(h.detach(), 1, out=h.detach()),
    "functional": lambda h: nn.functional.relu_(h.sub_(10)),
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_in_place_hidden_in_a_structure(kind: str) -> None:
    pack, pick = CONTAINERS[kind]

    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            pick(m.make(x)).add_(100)
        return x

    net, x = Does(body, make=Does(lambda m, x: pack(m.lin(x)), lin=lin())), rows()
    with pytest.raises(Changed, match=r"m\.output\('make'\)"):
        ports(net, ["make", ""])({"x": x}, {})
    cloned = one(
        net, lambda m: (m.output("make", adapter="clone"), EXT.output("y")), lambda m: (m.output(""), EXT.output("end"))
    )
    got = cloned({"x": x}, {})["y"]
    assert type(got) is type(pack(x))
    assert torch.equal(pick(got), net.make.lin(x))


@pytest.mark.parametrize("kind", CHANGES)
def test_in_place_hidden_behind_a_view(kind: str) -> None:
    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            CHANGES[kind](m.a(x))
        return m.b(x)

    net = Does(body, a=lin(), b=lin())
    with pytest.raises(Changed, match=r"m\.output\('a'\)"):
        ports(net, ["a", "b"])({"x": rows()}, {})


def test_a_captured_view_of_what_is_changed() -> None:
    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        h = x + 1
        m.a(h[0])
        h.add_(1)
        return m.b(h)

    net = Does(body, a=nn.Identity(), b=lin())
    with pytest.raises(Changed, match=r"m\.(in|out)put\('a'\)"):
        ports(net, ["a", "b"], ["a"])({"x": rows()}, {})


def test_inside_other_objects_is_theirs() -> None:
    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            m.make(x).h.add_(1)
        return x

    net, x = Does(body, make=Does(lambda m, x: types.SimpleNamespace(h=m.lin(x)), lin=lin())), rows()
    got = ports(net, ["make", ""])({"x": x}, {})["make"]
    assert torch.equal(got.h, net.make.lin(x) + 1)


@pytest.mark.parametrize("call", ["last", "all"])
@pytest.mark.parametrize("adapter", [None, "clone"])
def test_call_last_and_all(call: str, adapter: str | None) -> None:
    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.relu_(m.layer(x))
        return x

    net, x = Does(body, layer=lin()), rows()
    words = {} if adapter is None else {"adapter": adapter}
    stitched = one(net, lambda m: (m.output("layer", call=call, **words), EXT.output("y")))
    if adapter is None:
        with pytest.raises(Changed, match=rf"m\.output\('layer', call='{call}'\).*clone"):
            stitched({"x": x}, {})
        return
    want = [net.layer(x)]
    for _ in range(2):
        want.append(net.layer(want[-1].relu()))
    got = stitched({"x": x}, {})["y"]
    assert all(map(torch.equal, got, want)) if call == "all" else torch.equal(got, want[-1])


def test_call_last_is_only_about_the_last() -> None:
    """Changes of what earlier calls gave are nobody's business where only the last one is wanted."""

    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.layer(torch.relu_(m.layer(torch.relu_(m.layer(x)))))

    net, x = Does(body, layer=lin()), rows()
    got = one(net, lambda m: (m.output("layer", call="last"), EXT.output("y")))({"x": x}, {})["y"]
    assert torch.equal(got, net(x))


def test_an_override_changed_by_the_module_is_the_modules() -> None:
    """What comes into the module is its own, as an argument of any function is, unless others need it."""
    net, x, v = relu_net(), rows(), torch.tensor([[1.0, -1.0, 0.5]])
    got = ports(net, [""], new_outputs=["0"])({"x": x}, {"0": v.clone()})[""]
    assert torch.equal(got, net[2](v.relu()))


def test_an_override_that_somebody_else_still_needs() -> None:
    net = relu_net()
    m, f = weave.ModuleTarget("m", net), weave.FunctionTarget("f", lambda v, _: v)
    made = weave.FunctionTarget("made", lambda x: x - 1)
    port = made.output()
    stitched = knot(
        (EXT.input("x"), made.input()),
        (EXT.input("x"), m.input("")),
        (port, m.output("0")),
        (port, f.input()),
        (m.output(""), f.input()),
        (f.output(), EXT.output("y")),
    )
    with pytest.raises(Changed, match=r"made\.output\(\).*'m'") as raised:
        stitched({"x": rows()}, {})
    assert tuple(raised.value.suspects) == ("m",)


def test_the_runs_input_that_others_still_need() -> None:
    net = nn.Sequential(nn.ReLU(inplace=True))
    m, f, x = weave.ModuleTarget("m", net), weave.FunctionTarget("f", lambda v, _: v), EXT.input("x")
    shared = knot((x, m.input("")), (x, f.input()), (m.output(""), f.input()), (f.output(), EXT.output("y")))
    with pytest.raises(Changed, match=r"input\('x'\).*'m'"):
        shared({"x": rows()}, {})
    alone = knot((x, m.input("")), (m.output(""), EXT.output("y")))
    assert torch.equal(alone({"x": rows()}, {})["y"], rows().relu())


def test_inference_tensors_have_no_version() -> None:
    net, x = relu_net(), rows()
    with torch.inference_mode():
        y, h = x.clone(), net[0](x)
        assert torch.equal(ports(net, ["0"])({"x": y}, {})["0"], h)
        got = ports(net, ["0", "2"], ["2"])({"x": y}, {})
        assert torch.equal(got.captured_outputs["2"], net[2](h.relu()))
        cloned = one(
            net, lambda m: (m.output("0", adapter="clone"), EXT.output("0")), lambda m: (m.output("2"), EXT.output("2"))
        )
        assert torch.equal(cloned({"x": y}, {})["0"], h)
    got = ports(nn.Sequential(nn.Identity()), [""], ["0"])({"x": h}, {})
    assert got.captured_inputs["0"].args[0] is h, "an inference tensor outside of inference mode"


def test_nothing_is_wrong_where_nothing_captured_was_changed() -> None:
    net, x = nn.Sequential(lin(), nn.ReLU(inplace=True), lin(), nn.BatchNorm1d(3)), rows()
    got = ports(net, ["1", "2", ""], ["2", "3"])({"x": x}, {})
    h = net[0](x).relu()
    assert torch.equal(got.captured_outputs["1"], h)
    assert torch.equal(got.captured_outputs["2"], net[2](h))
