"""What a captured port gives: the caller's own objects, at every depth."""

from __future__ import annotations

import collections
import dataclasses
import types
from typing import Any

import pytest
import torch
from torch import nn

import weave

from .nets import Chain, Counted, Does, lin, rows
from .stitching import EXT, knot, ports


def test_every_level_at_once() -> None:
    inner, x = Chain(), rows()
    net = nn.Sequential(nn.ModuleDict({"only": nn.ModuleList([inner])})["only"][0], nn.Tanh())
    want = inner.steps(x)
    got = ports(net, ["", "0", "0.a", "0.b", "1"], ["", "0", "0.b", "1"])({"x": x}, {})
    for name in ("a", "b"):
        assert torch.equal(got.captured_outputs[f"0.{name}"], want[name])
    assert torch.equal(got.captured_outputs["0"], want[""])
    assert torch.equal(got.captured_outputs[""], torch.tanh(want[""]))
    assert got.captured_inputs[""].args[0] is x
    assert got.captured_inputs["0"].args[0] is x
    assert torch.equal(got.captured_inputs["0.b"].args[0], torch.tanh(want["a"]))
    assert got.captured_inputs["1"].args[0] is got.captured_outputs["0"]


def test_inside_containers_that_are_never_called() -> None:
    heads = nn.ModuleDict({"left": nn.ModuleList([lin(), lin()]), "right": nn.ModuleList([lin()])})
    net = Does(lambda m, x: m.heads["right"][0](m.heads["left"][1](m.heads["left"][0](x))), heads=heads)
    x = rows()
    got = ports(net, ["heads.left.1", "heads.right.0"])({"x": x}, {}).captured_outputs
    h = heads["left"][1](heads["left"][0](x))
    assert torch.equal(got["heads.left.1"], h)
    assert torch.equal(got["heads.right.0"], heads["right"][0](h))


def test_the_objects_of_caller_and_callee_themselves() -> None:
    passed: list[Any] = []
    token = object()
    options = {"scale": 2.0}

    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        returned = m.part(y, token, options=options)
        passed.extend((y, returned))
        return returned[0]

    net = Does(body, part=Counted(lambda y, token, options: (y * options["scale"], token)))
    got = ports(net, ["part", ""], ["part"])({"x": rows()}, {})
    call, returned = got.captured_inputs["part"], got.captured_outputs["part"]
    assert isinstance(call, weave.InputArgs)
    assert call.args[0] is passed[0]
    assert call.args[1] is token
    assert call.kwargs["options"] is options
    assert returned is passed[1]


def test_keyword_arguments_count_like_positional_ones() -> None:
    net = Does(lambda m, x, *, scale: m.part(x=x, scale=scale), part=Counted(lambda x, scale=1.0: x * scale))
    m, x = weave.ModuleTarget("m", net), rows()
    stitched = knot(
        (EXT.input("x"), m.input("")), (m.input("part"), EXT.input("in")), (m.output("part"), EXT.output("out"))
    )
    got = stitched({"x": weave.InputArgs(x, scale=3.0)}, {})
    assert got.captured_inputs["in"].args == []
    assert got.captured_inputs["in"].kwargs["x"] is x
    assert got.captured_inputs["in"].kwargs["scale"] == 3.0
    assert torch.equal(got["out"], x * 3)


@pytest.mark.parametrize(
    "name", ["module", "args", "kwargs", "input", "output", "original", "touch", "passage", "station", "call", "key"]
)
def test_keywords_named_like_plumbing(name: str) -> None:
    """A keyword of any name reaches the submodule, also one that weave or torch uses for itself."""

    class Takes(nn.Module):
        def forward(self, x: torch.Tensor, /, **given: int) -> torch.Tensor:
            return x * given[name]

    class Gives(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.takes = Takes()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.takes(x, **{name: 2})

    x = rows()
    got = ports(Gives(), ["takes"], ["takes"])({"x": x}, {})
    assert got.captured_inputs["takes"].kwargs == {name: 2}
    assert torch.equal(got.captured_outputs["takes"], 2 * x)
    changed = ports(Gives(), [""], new_inputs=["takes"])({"x": x, "takes": weave.InputArgs(x, **{name: 5})}, {})
    assert torch.equal(changed[""], 5 * x)


@pytest.mark.parametrize("name", ["output", "input", "module", "name", "ports", "target", "nodes", "forward_", "call"])
def test_children_named_output_and_input(name: str) -> None:
    """A submodule may have the name of anything that a target, a descriptor or a node has."""
    net = Does(lambda m, x: m.get_submodule(name)(x) + 1, **{name: lin()})
    x, v = rows(), torch.ones(2, 3)
    h = net.get_submodule(name)(x)
    got = ports(net, [name, ""], [name])({"x": x}, {})
    assert torch.equal(got.captured_outputs[name], h)
    assert got.captured_inputs[name].args[0] is x
    assert torch.equal(ports(net, [""], new_outputs=[name])({"x": x}, {name: v})[""], v + 1)


Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Answer:
    logits: torch.Tensor
    cache: Any = None


RESULTS = {
    "none": lambda x: None,
    "number": lambda x: 3,
    "string": lambda x: "text",
    "tuple": lambda x: (x, x + 1),
    "namedtuple": lambda x: Pair(x, x + 1),
    "list": lambda x: [x],
    "dict": lambda x: {"x": x},
    "ordered": lambda x: collections.OrderedDict(x=x),
    "defaultdict": lambda x: collections.defaultdict(list, x=x),
    "dataclass": lambda x: Answer(x),
    "namespace": lambda x: types.SimpleNamespace(x=x),
    "generator": lambda x: (i for i in range(3)),
    "subclass": lambda x: nn.Parameter(x, requires_grad=False),
    "size": lambda x: x.shape,
}


@pytest.mark.parametrize("kind", RESULTS)
def test_a_captured_output_is_the_very_object_whatever_its_type(kind: str) -> None:
    received: list[Any] = []

    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        received.append(m.part(x))
        return x

    net = Does(body, part=Counted(RESULTS[kind]))
    got = ports(net, ["part", ""])({"x": rows()}, {}).captured_outputs["part"]
    assert got is received[0]


def test_model_outputs_and_caches_keep_their_type() -> None:
    from transformers import DynamicCache
    from transformers.modeling_outputs import BaseModelOutputWithPast

    def answer(x: torch.Tensor) -> BaseModelOutputWithPast:
        return BaseModelOutputWithPast(last_hidden_state=x, past_key_values=DynamicCache())

    net = Does(lambda m, x: m.part(x)[0], part=Counted(answer))
    got = ports(net, ["part", ""])({"x": rows()}, {}).captured_outputs["part"]
    assert type(got) is BaseModelOutputWithPast
    assert type(got.past_key_values) is DynamicCache
    assert got.last_hidden_state is got[0]


def test_every_module_gets_the_runs_arguments() -> None:
    """`*args, **kwargs` go to every target; an override of its own input replaces them."""
    first, second = Counted(lambda x, *, k: x * k), Counted(lambda x, *, k: x + k)
    a, b, c = (
        weave.ModuleTarget(n, m) for n, m in (("a", first), ("b", second), ("c", Counted(lambda *a, **k: (a, k))))
    )
    stitched = knot(
        (a.output(""), EXT.output("a")),
        (b.output(""), EXT.output("b")),
        (EXT.input("c"), c.input("")),
        (c.output(""), EXT.output("c")),
    )
    x = rows()
    got = stitched({"c": weave.InputArgs(1, z=2)}, {}, x, k=10)
    assert torch.equal(got["a"], x * 10)
    assert torch.equal(got["b"], x + 10)
    assert got["c"] == ((1,), {"z": 2})


def test_a_target_with_no_outgoing_stitch_still_runs() -> None:
    lone = Counted(lambda x: x)
    m = weave.ModuleTarget("m", lone)
    for early_exit in (True, False):
        got = knot((EXT.input("x"), m.input("")), early_exit=early_exit)({"x": rows()}, {})
        assert (got.captured_inputs, got.captured_outputs) == ({}, {})
    assert lone.ran == 2


def test_one_port_feeds_many() -> None:
    net, x = Chain(), rows()
    m = weave.ModuleTarget("m", net)
    port, doubled = m.output("b"), m.output("b", adapter=lambda v: v * 2)
    f = weave.FunctionTarget("f", lambda *xs: xs)
    stitched = knot(
        (EXT.input("x"), m.input("")),
        (port, EXT.output("one")),
        (port, f.input()),
        (m.output("b"), f.input()),
        (doubled, f.input()),
        (f.output(), EXT.output("all")),
    )
    got = stitched({"x": x}, {})
    b = net.steps(x)["b"]
    assert torch.equal(got["one"], b)
    assert got["all"][0] is got["one"]
    assert got["all"][1] is got["one"]
    assert torch.equal(got["all"][2], 2 * b)


def test_a_captured_call_keeps_its_own_lists() -> None:
    """The caller may go on with its dict of keywords after the call: the capture is of the call as it was."""
    options: dict[str, Any] = {"scale": 2}

    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = m.part(x, **options)
        options["scale"] = 100
        return y

    net = Does(body, part=Counted(lambda x, scale: x * scale))
    got = ports(net, [""], ["part"])({"x": rows()}, {})
    assert got.captured_inputs["part"].kwargs == {"scale": 2}
