"""A submodule that is called several times in one forward: `call=` picks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import weave

from .nets import Again, Chain, Counted, Does, counting, lin, rows
from .stitching import ADDS, EXT, knot, ports


def calls_of(net: Again, x: torch.Tensor) -> list[torch.Tensor]:
    """What the layer returns at each call."""
    found = []
    for _ in range(net.times):
        found.append(net.step(x))
        x = torch.tanh(found[-1])
    return found


def one(net: nn.Module, *stitches: Any, **options: Any) -> Any:
    """`stitches(m)` gives the graph beside the feed."""
    m = weave.ModuleTarget("m", net)
    return knot((EXT.input("x"), m.input("")), *(pair for make in stitches for pair in make(m)), **options)


@pytest.mark.parametrize("early_exit", [True, False])
def test_each_call_the_last_one_and_all(early_exit: bool) -> None:
    net, x = Again(4), rows()
    want = calls_of(net, x)
    inputs = [x, *(torch.tanh(w) for w in want[:-1])]
    for k in range(4):
        got = one(
            net,
            lambda m, k=k: [(m.output("layer", call=k), EXT.output("o")), (m.input("other", call=k), EXT.input("i"))],
            early_exit=early_exit,
        )({"x": x}, {})
        assert torch.equal(got["o"], want[k])
        assert torch.equal(got["i"].args[0], inputs[k])
    got = one(
        net,
        lambda m: [
            (m.output("layer"), EXT.output("first")),
            (m.output("layer", call="last"), EXT.output("last")),
            (m.output("layer", call="all"), EXT.output("all")),
            (m.input("layer", call="last"), EXT.input("last in")),
            (m.input("layer", call="all", adapter=lambda calls: weave.InputArgs(*calls)), EXT.input("all in")),
        ],
        early_exit=early_exit,
    )({"x": x}, {})
    assert torch.equal(got["first"], want[0])
    assert torch.equal(got["last"], want[3])
    assert isinstance(got["all"], list)
    assert all(map(torch.equal, got["all"], want))
    assert torch.equal(got["last in"].args[0], inputs[3])
    assert all(torch.equal(call.args[0], i) for call, i in zip(got["all in"].args, inputs, strict=True))


def test_all_calls_cross_to_an_input_as_one_value() -> None:
    net, x = Again(3), rows()
    f = weave.FunctionTarget("f", lambda *a: a)
    got = one(net, lambda m: [(m.output("layer", call="all"), f.input()), (f.output(), EXT.output("y"))])({"x": x}, {})
    assert len(got["y"]) == 1
    assert isinstance(got["y"][0], list)
    assert all(map(torch.equal, got["y"][0], calls_of(net, x)))


def test_all_of_a_port_called_once() -> None:
    net, x = Chain(), rows()
    got = one(net, lambda m: [(m.output("b", call="all"), EXT.output("b"))])({"x": x}, {})["b"]
    assert len(got) == 1
    assert torch.equal(got[0], net.steps(x)["b"])


def test_an_override_applies_to_every_call() -> None:
    net, x, v = Again(4), rows(), torch.full((2, 3), 0.5)
    ran = counting(net.layer)
    got = ports(net, [""], new_outputs=["layer"])({"x": x}, {"layer": v})
    assert torch.equal(got[""], torch.tanh(v))
    assert ran == []
    got = one(net, lambda m: [(EXT.input("v"), m.input("layer")), (m.input("layer", call="last"), EXT.input("last"))])(
        {"x": x, "v": v}, {}
    )
    assert got["last"].args[0] is v
    assert len(ran) == 4


@pytest.mark.parametrize("k", range(4))
@pytest.mark.parametrize("name", ["layer", "other"])
def test_an_override_of_one_call(k: int, name: str) -> None:
    net, x, v = Again(4), rows(), torch.full((2, 3), 0.5)
    want = [*calls_of(net, x)[:k], v]
    for _ in range(k + 1, 4):
        want.append(net.step(torch.tanh(want[-1])))
    got = one(
        net,
        lambda m: [(EXT.output("v"), m.output(name, call=k)), (m.output("layer", call="all"), EXT.output("all"))],
    )({"x": x}, {"v": v})["all"]
    assert all(map(torch.equal, got, want))


def test_override_by_call_and_capture_of_the_rest() -> None:
    net, x = Again(4), rows()
    v, w = torch.full((2, 3), 0.5), torch.full((2, 3), -0.5)
    ran = counting(net.layer)
    got = one(
        net,
        lambda m: [
            (EXT.output("v"), m.output("layer", call=1)),
            (EXT.output("w"), m.output("other", call=2, reducer=ADDS)),
            (EXT.input("i"), m.input("layer", call=3)),
            (m.output("layer", call=0), EXT.output("0")),
            (m.output("layer", call=1), EXT.output("1")),
            (m.output("layer", call=2), EXT.output("2")),
            (m.output("layer", call=3), EXT.output("3")),
        ],
    )({"x": x, "i": w}, {"v": v, "w": w})
    assert torch.equal(got["0"], net.step(x))
    assert got["1"] is v
    assert torch.equal(got["2"], net.step(torch.tanh(v)) + w)
    assert torch.equal(got["3"], net.step(w))
    assert len(ran) == 3, "only call 1 was skipped"


def test_overrides_of_every_call_and_of_one_meet_in_stitch_order() -> None:
    net, x = Again(3), rows()
    v, w = torch.full((2, 3), 0.5), torch.full((2, 3), -0.5)
    everywhere = lambda m: [(EXT.output("v"), m.output("layer"))]  # noqa: E731
    there = lambda m: [(EXT.output("w"), m.output("layer", call=1))]  # noqa: E731
    seen = lambda m: [(m.output("layer", call="all"), EXT.output("all"))]  # noqa: E731
    newest = one(net, everywhere, there, seen)({"x": x}, {"v": v, "w": w})["all"]
    assert [g is w for g in newest] == [False, True, False]
    oldest = one(net, there, everywhere, seen)({"x": x}, {"v": v, "w": w})["all"]
    assert all(g is v for g in oldest)


def test_reducers_are_called_at_each_overridden_call_with_that_calls_original() -> None:
    net, x, adapted, originals, inputs = Again(3), rows(), [], [], []

    def out(acc: Any, value: Any, original: Any, index: int, every: Any) -> Any:
        originals.append(original)
        return original

    def into(acc: Any, value: Any, original: Any, index: int, every: Any) -> Any:
        inputs.append(original.args[0])
        return original

    def adapter(value: Any) -> Any:
        adapted.append(value)
        return value

    got = one(
        net,
        lambda m: [
            (
                EXT.output("v"),
                m.output("layer", adapter=adapter, reducer=weave.OutputReducer(out, requires_original_output=True)),
            ),
            (EXT.input("i"), m.input("other", adapter=adapter, reducer=weave.InputReducer(into))),
            (m.output("layer", call="all"), EXT.output("all")),
        ],
    )({"x": x, "i": 1}, {"v": 2})
    want = calls_of(net, x)
    assert all(map(torch.equal, got["all"], want))
    assert all(map(torch.equal, originals, want))
    assert all(map(torch.equal, inputs, [x, *(torch.tanh(w) for w in want[:-1])]))
    assert len(adapted) == 2, "a destination's adapter runs once, however often the port is passed"


def test_a_source_adapter_sees_the_list_and_a_registered_one_each_call() -> None:
    net, x, seen = Again(3), rows(), []

    def adapter(calls: Any) -> Any:
        seen.append(type(calls))
        return len(calls)

    got = one(
        net,
        lambda m: [
            (m.output("layer", call="all", adapter=adapter), EXT.output("n")),
            (m.output("layer", call="all", adapter="detach"), EXT.output("detached")),
            (m.output("layer", call="last", adapter="detach"), EXT.output("last")),
        ],
    )({"x": x}, {})
    assert (got["n"], seen) == (3, [list])
    assert [t.requires_grad for t in got["detached"]] == [False] * 3
    assert torch.equal(got["last"], calls_of(net, x)[2])


def test_calls_inside_a_skipped_call_do_not_count() -> None:
    """`layer` is called by `block` and outside it; the skipped `block` calls nothing."""
    layer = lin()
    block = Does(lambda m, x: m.layer(m.layer(x)), layer=layer)
    net = Does(lambda m, x: m.layer(m.block(m.layer(x))), block=block, layer=layer)
    x, v = rows(), torch.ones(2, 3)
    whole = one(net, lambda m: [(m.output("layer", call="all"), EXT.output("all"))])({"x": x}, {})["all"]
    assert len(whole) == 4
    got = one(
        net,
        lambda m: [(EXT.output("v"), m.output("block")), (m.output("layer", call="all"), EXT.output("all"))],
    )({"x": x}, {"v": v})["all"]
    assert len(got) == 2
    assert torch.equal(got[1], layer(v))


def test_calls_count_by_their_start() -> None:
    """A module that calls itself: call 0 is the one that starts first and ends last."""

    class Nested(nn.Module):
        def forward(self, depth: int) -> str:
            return f"({depth}{self(depth - 1)})" if depth else "."

    net = Does(lambda m, n: m.part(n), part=Nested())
    got = one(
        net,
        lambda m: [
            *((m.output("part", call=k), EXT.output(str(k))) for k in range(3)),
            (m.input("part", call=2), EXT.input("2")),
            (m.output("part", call="all"), EXT.output("all")),
        ],
    )({"x": 2}, {})
    assert [got.captured_outputs[k] for k in "012"] == ["(2(1.))", "(1.)", "."]
    assert got.captured_inputs["2"].args == [0]
    assert sorted(got["all"]) == sorted(["(2(1.))", "(1.)", "."])


def test_an_overridden_call_counts() -> None:
    net, x, v = Again(3), rows(), torch.ones(2, 3)
    got = one(
        net,
        lambda m: [(EXT.output("v"), m.output("layer", call=0)), (m.output("layer", call=1), EXT.output("1"))],
    )({"x": x}, {"v": v})
    assert torch.equal(got["1"], net.step(torch.tanh(v)))


def test_cell_in_a_loop_of_two_cells() -> None:
    """Two LSTM cells stepped by hand, one feeding the other; a state put in and taken out in the middle."""

    def body(m: Any, xs: torch.Tensor) -> torch.Tensor:
        low = high = None
        for x in xs:
            low = m.low(x, low)
            high = m.high(low[0], high)
        return high[0]

    net = Does(body, low=nn.LSTMCell(3, 2), high=nn.LSTMCell(2, 2))
    xs = torch.randn(4, 1, 3)
    zero = (torch.zeros(1, 2), torch.zeros(1, 2))
    low, high, states = zero, zero, []
    for k, x in enumerate(xs):
        low = nn.LSTMCell.forward(net.low, x, low) if k != 2 else zero
        high = nn.LSTMCell.forward(net.high, low[0], high)
        states.append(high)
    got = one(
        net,
        lambda m: [
            (EXT.output("zero"), m.output("low", call=2)),
            (m.output("high", call="all"), EXT.output("states")),
            (m.input("high", call=3), EXT.input("in")),
            (m.output("high", call=1), EXT.output("1")),
        ],
    )({"x": xs}, {"zero": zero})
    for (h, c), (want_h, want_c) in zip(got["states"], states, strict=True):
        assert torch.allclose(h, want_h)
        assert torch.allclose(c, want_c)
    assert got["1"] is got["states"][1]
    assert got["in"].args[1] is got["states"][2]


def test_a_call_that_never_comes_says_how_many_there_were() -> None:
    for port in (
        lambda m: (m.output("layer", call=4), EXT.output("y")),
        lambda m: (m.input("other", call=9), EXT.input("y")),
    ):
        with pytest.raises(weave.PortNotReachedException, match=r"called 4 time\(s\)") as raised:
            one(Again(4), lambda m, port=port: [port(m)])({"x": rows()}, {})
        assert raised.value.node == "m"
    in_vain = one(
        Again(4),
        lambda m: [(EXT.output("v"), m.output("layer", call=4)), (m.output(""), EXT.output("y"))],
        early_exit=False,
    )
    with pytest.raises(weave.PortNotReachedException, match=r"m\.output\('layer', call=4\) \(overridden, in vain\)"):
        in_vain({"x": rows()}, {"v": 1})


def test_counts_belong_to_one_run() -> None:
    net, x = Again(2), rows()
    net.part = Counted(lambda x: x)
    stitched = one(net, lambda m: [(m.output("layer", call=1), EXT.output("y"))])
    for _ in range(3):
        assert torch.equal(stitched({"x": x}, {})["y"], calls_of(net, x)[1])
