"""Graphs inside graphs: a `StitchedModule` as a target, and a run inside a target's forward."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import weave

from .nets import Again, Chain, Does, counting, lin, rows
from .stitching import ADDS, EXT, knot, ports, touched


def test_a_graph_as_a_target() -> None:
    net, x = Chain(), rows()
    inner = weave.ModuleTarget("inner", ports(net, ["b", ""]))
    stitched = knot(
        (EXT.input("x"), inner.input("", adapter=lambda args: weave.InputArgs({"x": args.args[0]}, {}))),
        (inner.output("", adapter=lambda result: result["b"]), EXT.output("b")),
        (inner.output("", adapter=lambda result: result[""]), EXT.output("y")),
    )
    got = stitched({"x": x}, {})
    steps = net.steps(x)
    assert torch.equal(got["b"], steps["b"])
    assert torch.equal(got["y"], steps[""])
    assert len(list(stitched.parameters())) == 6, "each once"
    twin = copy.deepcopy(stitched)
    assert torch.equal(twin({"x": x}, {})["y"], steps[""])
    assert not {id(p) for p in twin.parameters()} & {id(p) for p in stitched.parameters()}


def test_a_graph_as_a_target_has_the_ports_of_its_modules() -> None:
    """Its own targets are its submodules, so the outer graph can reach into the inner one's modules by their names."""
    net, x, v = Chain(), rows(), torch.ones(2, 3)
    graph = ports(net, ["b"])
    name = next(n for n, m in graph.named_modules() if m is net.a)
    inner = weave.ModuleTarget("inner", graph)
    feed = (EXT.input("x"), inner.input("", adapter=lambda args: weave.InputArgs({"x": args.args[0]}, {})))
    end = (inner.output("", adapter=lambda result: result["b"]), EXT.output("b"))
    got = knot(feed, end, (inner.output(name), EXT.output("a")))({"x": x}, {})
    assert torch.equal(got["a"], net.steps(x)["a"])
    assert torch.equal(got["b"], net.steps(x)["b"])
    got = knot(feed, end, (EXT.output("v"), inner.output(name)))({"x": x}, {"v": v})
    assert torch.equal(got["b"], net.b(torch.tanh(v)))


class Runs(nn.Module):
    """A forward that runs a graph on a module of its own and goes on with what it captured."""

    def __init__(self, net: nn.Module, given: dict[str, torch.Tensor] | None = None, **options: Any) -> None:
        super().__init__()
        self.net, self.end, self.given = net, lin(), given or {}
        self.graph = [ports(net, **options)]  # in a list: no submodule, so that `net` has one name only

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.end(self.graph[0]({"x": x}, self.given)["c"])


def test_the_outer_passage_sees_the_inner_runs_calls() -> None:
    net, x = Chain(), rows()
    outer = Runs(net, outputs=["c"])
    got = ports(outer, ["net", "net.a", "net.b", "end"], ["net.c"], early_exit=False)
    with pytest.raises(weave.PortNotReachedException, match="'net'"):
        got({"x": x}, {})  # the inner run leaves `net` with `c`, so nobody is given what `net` returns
    got = ports(outer, ["net.a", "net.b", "net.c", "end"], ["net.c", "net"])({"x": x}, {})
    steps = net.steps(x)
    for name in "abc":
        assert torch.equal(got.captured_outputs[f"net.{name}"], steps[name])
    assert torch.equal(got.captured_outputs["end"], outer.end(steps["c"]))
    assert torch.equal(got.captured_inputs["net.c"].args[0], torch.tanh(steps["b"]))
    assert got.captured_inputs["net"].args[0] is x
    assert touched(outer) == []


def test_the_outer_passage_overrides_what_the_inner_run_sees() -> None:
    net, x, v = Chain(), rows(), torch.ones(2, 3)
    outer = Runs(net, outputs=["c"])
    got = ports(outer, [""], new_outputs=["net.a"])({"x": x}, {"net.a": v})[""]
    assert torch.equal(got, outer.end(net.c(torch.tanh(net.b(torch.tanh(v))))))
    got = ports(outer, [""], new_inputs=["net.b"])({"x": x, "net.b": v}, {})[""]
    assert torch.equal(got, outer.end(net.c(torch.tanh(net.b(v)))))


def test_both_have_a_port_on_one_submodule() -> None:
    """The inner one is nearer to the caller: the outer one sees what is passed on, and an inner skip is no call."""
    net, x, v = Chain(), rows(), torch.ones(2, 3)
    outer = Runs(net, outputs=["a", "c"])
    m = weave.ModuleTarget("m", outer)
    got = knot(
        (EXT.input("x"), m.input("")),
        (EXT.output("v"), m.output("net.a", reducer=ADDS)),
        (m.output("net.a"), EXT.output("a")),
        (m.output(""), EXT.output("y")),
    )({"x": x}, {"v": v})
    a = net.steps(x)["a"] + v
    assert torch.equal(got["a"], a)
    assert torch.equal(got["y"], outer.end(net.c(torch.tanh(net.b(torch.tanh(a))))))
    skips = Runs(net, {"b": v}, outputs=["c"], new_outputs=["b"])
    with pytest.raises(weave.PortNotReachedException, match=r"net\.b"):
        ports(skips, ["net.b", ""])({"x": x}, {})
    assert torch.equal(ports(skips, [""])({"x": x}, {})[""], skips.end(net.c(torch.tanh(v))))


def test_an_outer_early_exit_goes_through_an_inner_run() -> None:
    net, x = Chain(), rows()
    outer = Runs(net, outputs=["c"])
    ran = counting(outer)
    for _ in range(2):
        ran.clear()
        assert torch.equal(ports(outer, ["net.a"])({"x": x}, {})["net.a"], net.steps(x)["a"])
        assert ran[:3] == ["", "net", "net.a"]
        assert "net.b" not in ran
        assert touched(outer) == []
    assert torch.equal(outer(x), outer.end(net.steps(x)["c"])), "the inner graph runs as before"


def test_an_outer_early_exit_does_not_leave_through_what_must_finish() -> None:
    accelerate = pytest.importorskip("accelerate.hooks")
    log: list[str] = []

    class Notes(accelerate.ModelHook):
        def post_forward(self, module: nn.Module, output: Any) -> Any:
            log.append("post")
            return output

    net, x = Chain(), rows()
    accelerate.add_hook_to_module(net, Notes())
    outer = Runs(net, outputs=["c"])
    got = ports(outer, ["net.a"])({"x": x}, {})["net.a"]
    assert torch.equal(got, net.steps(x)["a"])
    assert log == ["post"]


def test_counts_are_each_passages_own() -> None:
    net, x = Again(4), rows()
    m = weave.ModuleTarget("m", net)
    second = knot((EXT.input("x"), m.input("")), (m.output("layer", call=1), EXT.output("y")))
    outer = Does(lambda m, x: m.net(second({"x": x}, {})["y"]), net=net)
    o = weave.ModuleTarget("o", outer)
    got = knot((EXT.input("x"), o.input("")), (o.output("net.layer", call="all"), EXT.output("all")))({"x": x}, {})[
        "all"
    ]
    assert len(got) == 6, "two in the inner run, four behind it"
    assert torch.equal(got[2], net.step(got[1]))


def test_the_same_graph_inside_itself() -> None:
    """A function node that calls the very StitchedModule it belongs to, with other values."""
    net, x = Chain(), rows()
    made: list[Any] = []
    m = weave.ModuleTarget("m", net)

    def again(b: torch.Tensor) -> torch.Tensor:
        return b if (b.abs() < 10).all() else made[0]({"x": b / 100}, {})["y"]

    f = weave.FunctionTarget("again", again)
    made.append(knot((EXT.input("x"), m.input("")), (m.output("a"), f.input()), (f.output(), EXT.output("y"))))
    big = x * 1000
    assert torch.equal(made[0]({"x": big}, {})["y"], net.a(net.a(big) / 100))


def test_three_deep() -> None:
    net, x = Chain(), rows()
    one = Runs(net, outputs=["c"])
    two = Does(lambda m, x: ports(m.one, ["end"])({"x": x}, {})["end"] * 2, one=one)
    got = ports(two, ["one.net.b", "one.end", ""])({"x": x}, {})
    steps = net.steps(x)
    assert torch.equal(got["one.net.b"], steps["b"])
    assert torch.equal(got[""], one.end(steps["c"]) * 2)


@pytest.mark.parametrize("how", ["wrapped", "compiled in place"])
def test_inner_ports_inside_a_region_and_an_outer_port_on_its_boundary(how: str) -> None:
    """The inner run makes the region run eagerly; the outer passage sees the call of it all the same."""
    block, x = Chain(), rows()
    if how == "wrapped":
        net = nn.Sequential(torch.compile(block, backend="eager"))
        inside = "0._orig_mod.a"
    else:
        block.compile(backend="eager")
        net, inside = nn.Sequential(block), "0.a"
    graph = ports(net, [inside, ""])
    outer = Does(lambda m, x: graph({"x": x}, {})[""] + 1, net=net)
    got = ports(outer, ["net.0", ""], ["net.0"])({"x": x}, {})
    assert torch.equal(got.captured_outputs["net.0"], block.steps(x)["c"])
    assert got.captured_inputs["net.0"].args[0] is x
    v = torch.ones(2, 3)
    replaced = ports(outer, [""], new_inputs=["net.0"])({"x": x, "net.0": v}, {})[""]
    assert torch.equal(replaced, block.steps(v)["c"] + 1)
