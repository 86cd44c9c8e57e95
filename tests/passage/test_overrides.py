"""Replacing what a submodule gets and what its caller receives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import weave

from .nets import Again, Chain, Counted, Does, counting, lin, rows
from .stitching import ADDS, EXT, keeps_kwargs, knot, ports


@pytest.mark.parametrize("port", ["", "a", "b", "c"])
def test_an_input_at_every_level(port: str) -> None:
    net, v = Chain(), torch.full((2, 3), 0.25)
    external = {"": v} if port == "" else {"x": rows(), port: v}
    got = ports(net, [""], [port], new_inputs=[port])(external, {})
    want = {
        "": lambda: net(v),
        "a": lambda: net(v),
        "b": lambda: net.c(torch.tanh(net.b(v))),
        "c": lambda: net.c(v),
    }[port]()
    assert torch.equal(got.captured_outputs[""], want)
    assert got.captured_inputs[port].args[0] is v, (
        "where a port is overridden and captured, the capture sees the override"
    )


@pytest.mark.parametrize("port", ["", "a", "b", "c"])
def test_an_output_at_every_level(port: str) -> None:
    net, v = Chain(), torch.full((2, 3), 0.25)
    got = ports(net, dict.fromkeys(["", port]), new_outputs=[port])(
        {"x": rows()} if port else {}, {port: v}
    ).captured_outputs
    want = {
        "": lambda: v,
        "a": lambda: net.c(torch.tanh(net.b(torch.tanh(v)))),
        "b": lambda: net.c(torch.tanh(v)),
        "c": lambda: v,
    }[port]()
    assert torch.equal(got[""], want)
    assert got[port] is v


def test_an_override_replaces_all_arguments() -> None:
    net = Does(lambda m, x: m.part(x, 2, scale=3), part=Counted(lambda *a, **k: (a, k)))
    m = weave.ModuleTarget("m", net)
    stitched = knot(
        (EXT.input("x"), m.input("")), (EXT.input("new"), m.input("part")), (m.output("part"), EXT.output("y"))
    )
    assert stitched({"x": 1, "new": 9}, {})["y"] == ((9,), {})
    assert stitched({"x": 1, "new": (7, 8)}, {})["y"] == ((7, 8), {})
    assert stitched({"x": 1, "new": weave.InputArgs(5, scale=6)}, {})["y"] == ((5,), {"scale": 6})
    assert stitched({"x": 1, "new": weave.InputArgs()}, {})["y"] == ((), {})


def test_an_inputs_reducer_gets_the_calls_full_original() -> None:
    net = Does(lambda m, x: m.part(x, 2, scale=3), part=Counted(lambda *a, **k: (a, k)))
    m, seen = weave.ModuleTarget("m", net), []

    def reducer(acc: Any, value: Any, original: Any, index: int, every: Any) -> Any:
        seen.append((acc.args, value.args, original.args, original.kwargs, index, [e.args for e in every]))
        return value + original.drop_args(0)

    stitched = knot(
        (EXT.input("x"), m.input("")),
        (EXT.input("new"), m.input("part", reducer=weave.InputReducer(reducer))),
        (m.output("part"), EXT.output("y")),
    )
    assert stitched({"x": 1, "new": 9}, {})["y"] == ((9, 2), {"scale": 3})
    assert seen == [([], [9], [1, 2], {"scale": 3}, 0, [[9]])]


def test_several_stitches_on_a_port_meet_in_the_order_in_which_they_were_stitched() -> None:
    net = Does(lambda m, x: m.part(x), part=Counted(lambda *a: a))
    m = weave.ModuleTarget("m", net)
    c = [weave.ConstantTarget(f"c{i}", i) for i in range(3)]
    feed, end = (EXT.input("x"), m.input("")), (m.output("part"), EXT.output("y"))
    stitches = [(c[i].output(), m.input("part")) for i in (2, 0, 1)]
    assert knot(feed, end, *stitches)({"x": 5}, {})["y"] == (2, 0, 1)
    outputs = [(c[i].output(), m.output("part")) for i in (2, 0, 1)]
    assert knot(feed, end, *outputs)({"x": 5}, {})["y"] == 1


def test_an_originals_mixture_of_reducers() -> None:
    """One reducer that requires the original makes it run, and every reducer on that port is then given it."""
    net = Does(lambda m, x: m.part(x), part=Counted(lambda x: x * 10))
    m, seen = weave.ModuleTarget("m", net), []

    def plain(acc: Any, value: Any, original: Any, index: int, every: Any) -> Any:
        seen.append((index, acc, value, original, list(every)))
        return (acc or 0) + value

    needs = weave.OutputReducer(
        lambda acc, value, original, i, every: acc + value + original, requires_original_output=True
    )
    one, two = (weave.ConstantTarget(n, v) for n, v in (("one", 1), ("two", 2)))
    feed, end = (EXT.input("x"), m.input("")), (m.output("part"), EXT.output("y"))
    first = (one.output(), m.output("part", reducer=weave.OutputReducer(plain)))
    both = knot(feed, first, (two.output(), m.output("part", reducer=needs)), end)
    assert both({"x": 5}, {})["y"] == 1 + 2 + 50
    assert seen == [(0, None, 1, 50, [1, 2])]
    assert net.part.ran == 1
    seen.clear()
    assert knot(feed, first, end)({"x": 5}, {})["y"] == 1
    assert seen == [(0, None, 1, None, [1])]
    assert net.part.ran == 1, "where no reducer requires the original, the submodule does not run"


def test_input_and_output_of_one_submodule() -> None:
    net, x, v, w = Chain(), rows(), torch.ones(2, 3), torch.full((2, 3), 2.0)
    m = weave.ModuleTarget("m", net)
    stitched = knot(
        (EXT.input("x"), m.input("")),
        (EXT.input("v"), m.input("b")),
        (EXT.output("w"), m.output("b", reducer=ADDS)),
        (m.input("b"), EXT.input("b")),
        (m.output("b"), EXT.output("b")),
        (m.output(""), EXT.output("y")),
    )
    got = stitched({"x": x, "v": v}, {"w": w})
    assert got.captured_inputs["b"].args[0] is v
    assert torch.equal(got.captured_outputs["b"], net.b(v) + w)
    assert torch.equal(got.captured_outputs["y"], net.c(torch.tanh(net.b(v) + w)))


def test_an_output_overrides_a_tuple_as_one_value() -> None:
    net = Does(lambda m, x: m.part(x), part=Counted(lambda x: (x, x)))
    for value in ((1, 2, 3), [1, 2], {"k": 1}, None, weave.InputArgs(1)):
        assert ports(net, [""], new_outputs=["part"])({"x": 0}, {"part": value})[""] is value


def test_alias_of_a_module_answers_to_every_name() -> None:
    net, x, v = Again(2), rows(), torch.full((2, 3), 0.5)
    net.deep = nn.ModuleDict({"er": net.layer})
    calls = [net.step(x), net.step(torch.tanh(net.step(x)))]
    for name in ("layer", "other", "deep.er"):
        got = ports(net, [name], [name])({"x": x}, {})
        assert torch.equal(got.captured_outputs[name], calls[0])
        assert got.captured_inputs[name].args[0] is x
        assert torch.equal(ports(net, [""], new_outputs=[name])({"x": x}, {name: v})[""], torch.tanh(v))


def test_alias_of_a_module_overridden_by_two_names_meets_in_stitch_order() -> None:
    net, x = Again(1), rows()
    m = weave.ModuleTarget("m", net)
    c = [weave.ConstantTarget(f"c{i}", torch.full((2, 3), float(i))) for i in range(3)]
    feed, end = (EXT.input("x"), m.input("")), (m.output("layer"), EXT.output("y"))
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        names = ("layer", "other", "layer")
        outputs = [(c[i].output(), m.output(name)) for i, name in zip(order, names, strict=True)]
        assert torch.equal(knot(feed, *outputs, end)({"x": x}, {})["y"], c[order[-1]].value)


def test_alias_of_a_module_under_a_skipped_parent_can_still_be_reached() -> None:
    """The tied layer lies in the skipped block by one name, outside it by another: that is no contradiction."""
    shared = lin()
    net = Does(lambda m, x: m.block(x) + m.shared(x), block=nn.Sequential(shared), shared=shared)
    x, v = rows(), torch.ones(2, 3)
    got = ports(net, ["shared", ""], new_outputs=["block"])({"x": x}, {"block": v}).captured_outputs
    assert torch.equal(got["shared"], shared(x))
    assert torch.equal(got[""], v + shared(x))


def test_two_targets_on_one_module_are_two_forwards() -> None:
    net, x = Chain(), rows()
    clean, patched = weave.ModuleTarget("m", net), weave.ModuleTarget("m", net)
    ran = counting(net)
    stitched = knot(
        (EXT.input("x"), clean.input("")),
        (EXT.input("y"), patched.input("")),
        (clean.output("b"), patched.output("b")),
        (patched.output(""), EXT.output("out")),
        (clean.input("b"), EXT.input("clean b")),
    )
    got = stitched({"x": x, "y": x - 1}, {})
    assert torch.equal(got["out"], net.c(torch.tanh(net.steps(x)["b"])))
    assert torch.equal(got["clean b"].args[0], torch.tanh(net.steps(x)["a"]))
    assert ran[:6] == ["", "a", "b", "", "a", "c"]


def test_the_seeds_reducer_keeps_the_other_arguments() -> None:
    net = Does(lambda m, x: m.part(x, 2, scale=3), part=Counted(lambda *a, **k: (a, k)))
    m = weave.ModuleTarget("m", net)
    reducer = weave.InputReducer(keeps_kwargs)
    f = weave.FunctionTarget("f", lambda v: v + 1)
    stitched = knot(
        (EXT.input("x"), m.input("")),
        (EXT.input("new"), f.input()),
        (f.output(), m.input("part", reducer=reducer)),
        (m.output("part"), EXT.output("y")),
    )
    assert stitched({"x": 1, "new": 8}, {})["y"] == ((9, 2), {"scale": 3})


@pytest.mark.parametrize("bad", [None, 3, (1,), torch.ones(1)])
def test_an_inputs_reducer_that_returns_no_arguments_is_named(bad: Any) -> None:
    m = weave.ModuleTarget("m", Chain())
    reducer = weave.InputReducer(lambda *a: bad)
    stitched = knot(
        (EXT.input("x"), m.input("")), (EXT.input("v"), m.input("b", reducer=reducer)), (m.output(""), EXT.output("y"))
    )
    with pytest.raises(weave.StitchedModuleException, match=r"m\.input\('b'\).*InputArgs"):
        stitched({"x": rows(), "v": rows()}, {})


@pytest.mark.parametrize("end", ["source", "destination"])
def test_an_inputs_adapter_that_returns_no_arguments_is_named(end: str) -> None:
    m = weave.ModuleTarget("m", Chain())
    wrong = {"adapter": lambda args: args.args[0]}
    source = m.input("b", **(wrong if end == "source" else {}))
    destination = EXT.input("b", **(wrong if end == "destination" else {}))
    stitched = knot((EXT.input("x"), m.input("")), (source, destination))
    with pytest.raises(weave.StitchedModuleException, match=r"input\('b'\).*InputArgs"):
        stitched({"x": rows()}, {})
