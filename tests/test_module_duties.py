"""`StitchedModule` among other `nn.Module`s: what belongs to it, under which keys, and where `.to()` and friends reach."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.small import EXT, Tiny, constant, flow, knot, packed, plus_one, sewn
from weave import ConstantTarget, FunctionTarget, InputArgs, InputReducer, ModuleTarget, OutputReducer, StitchedModule

TINY = ["a.weight", "a.bias", "b.weight", "b.bias"]


class Scale(nn.Module):
    """An adapter, a reducer or a function with a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.by = nn.Parameter(torch.ones(1))

    def forward(self, value: Any, *more: Any) -> Any:
        if isinstance(value, InputArgs):
            return InputArgs(*(v * self.by for v in value.args), **value.kwargs)
        return value if value is None else value * self.by


def keys(stitched: StitchedModule) -> list[str]:
    return list(stitched.state_dict())


def everything() -> tuple[StitchedModule, dict[str, nn.Module]]:
    """A module at every place where a graph can have one."""
    parts: dict[str, Any] = {n: Scale() for n in ("adapter", "end", "reducer", "function", "given", "taken", "joins")}
    m, f = ModuleTarget("m", Tiny()), FunctionTarget("f", parts["function"])
    parts["m"] = m.module
    stitched = knot(
        (EXT.input("x", adapter=parts["given"]), m.input("")),
        (
            m.output("a", adapter=parts["adapter"]),
            f.input(adapter=parts["end"], reducer=InputReducer(Reduce(parts["reducer"]))),
        ),
        (f.output(), EXT.output("y", adapter=parts["taken"], reducer=OutputReducer(Reduce(parts["joins"])))),
    )
    return stitched, parts


class Reduce(nn.Module):
    def __init__(self, scale: nn.Module) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, acc: Any, value: Any, *more: Any) -> Any:
        return self.scale(value)


# --- what is registered, and under which keys ---


def test_keys_are_node_ids_and_paths() -> None:
    m, f = ModuleTarget("teacher", Tiny()), FunctionTarget("scale", Scale())
    stitched = knot((EXT.input("x"), m.input("")), (m.output("a"), f.input()), (f.output(), EXT.output("y")))
    assert keys(stitched) == [*(f"teacher.{k}" for k in TINY), "scale.by"]
    assert stitched.get_submodule("teacher.a") is m.module.a
    assert dict(stitched.named_modules())["scale"] is f.function


def test_a_module_at_every_place() -> None:
    stitched, parts = everything()
    assert set(keys(stitched)) == {
        *(f"m.{k}" for k in TINY),
        "f.by",
        "external_output_y_adapter.by",
        "external_output_y_reducer.scale.by",
        "f_input_adapter.by",
        "f_input_reducer.scale.by",
        "external_input_x_adapter.by",
        "m_output_a_adapter.by",
    }
    found = set(stitched.parameters())
    assert found == {p for part in parts.values() for p in part.parameters()}
    assert len(list(stitched.parameters())) == len(found) == 11


def test_keys_do_not_depend_on_what_ran_or_on_the_process() -> None:
    assert keys(everything()[0]) == keys(everything()[0])
    stitched = everything()[0]
    before = keys(stitched)
    stitched({"x": torch.ones(1, 3)}, {})
    assert keys(stitched) == before


def test_a_module_in_two_targets_is_there_once() -> None:
    net = Tiny()
    first, second = ModuleTarget("a", net), ModuleTarget("b", net)
    f = FunctionTarget("c", net)
    stitched = knot(
        (EXT.input("x"), first.input("")),
        (first.output("a"), second.input("")),
        (second.output(""), f.input()),
        (f.output(), EXT.output("y")),
    )
    assert keys(stitched) == [f"a.{k}" for k in TINY]
    assert len(list(stitched.parameters())) == 4


@pytest.mark.parametrize("inner_first", [True, False])
def test_a_module_inside_another_targets_module_is_there_once(inner_first: bool) -> None:
    """Under the name that it has there."""
    outer = nn.Sequential(Tiny(), nn.Linear(3, 3))
    targets = [ModuleTarget("whole", outer), ModuleTarget("part", outer[0])]
    targets = targets[::-1] if inner_first else targets
    stitched = knot(*[(EXT.input("x"), t.input("")) for t in targets], (targets[0].output(""), EXT.output("y")))
    assert keys(stitched) == [*(f"whole.0.{k}" for k in TINY), "whole.1.weight", "whole.1.bias"]


def test_an_adapter_that_is_inside_a_target_or_in_several_ports_is_there_once() -> None:
    scale = Scale()
    net = nn.Sequential(Tiny(), scale)
    m, f = ModuleTarget("m", net), FunctionTarget("f", packed)
    other = Scale()
    stitched = knot(
        (EXT.input("x"), m.input("")),
        (m.output("0", adapter=scale), f.input(adapter=other)),
        (m.output("0.a", adapter=other), f.input()),
        (f.output(), EXT.output("y")),
    )
    assert sum("by" in k for k in keys(stitched)) == 2
    assert "m.1.by" in keys(stitched)


def test_functions_that_are_no_modules_own_nothing() -> None:
    net = Tiny()
    assert keys(flow(net.forward, lambda x: net(x), plus_one)) == []


def test_names_with_dots_and_none_and_of_each_other() -> None:
    names = ["a.b", "a_b", "a.b", "", "", "a_b#2"]
    targets = [ModuleTarget(name, nn.Linear(1, 1, bias=False)) for name in names]
    stitched = knot(*[(EXT.input("x"), t.input("")) for t in targets])
    found = [k.removesuffix(".weight") for k in keys(stitched)]
    assert len(set(found)) == len(names)
    assert not any("." in k for k in found)
    assert found[0] == "a_b"
    assert all(found)
    x = torch.ones(1)
    stitched.load_state_dict({k: x.reshape(1, 1) * i for i, k in enumerate(keys(stitched))})
    assert [t.module.weight.item() for t in targets] == list(range(len(names)))


@pytest.mark.parametrize(
    "name", ["forward", "training", "plan", "describe", "_modules", "_parameters", "state_dict", "_targets", "to", "T"]
)
@pytest.mark.parametrize("kind", ["module", "parameter"])
def test_names_that_are_the_modules_own(name: str, kind: str) -> None:
    """ "forward" is a fine name for a node."""
    if kind == "module":
        target: Any = ModuleTarget(name, nn.Linear(1, 1, bias=False))
        stitched = knot((EXT.input("x"), target.input("")), (target.output(""), EXT.output("y")))
        due = [f"{name}.weight"]
    else:
        target = ConstantTarget(name, nn.Parameter(torch.ones(1)))
        stitched = knot((target.output(), EXT.output("y")))
        due = [name]
    assert keys(stitched) == due
    assert [n for n, _ in stitched.named_parameters()] == due
    call = {"x": torch.ones(1)} if kind == "module" else {}
    before = stitched(call, {})["y"].detach().clone()
    stitched.load_state_dict({k: v * 2 for k, v in stitched.state_dict().items()})
    assert torch.equal(stitched(call, {})["y"], before * 2)
    assert "units" in stitched.plan.to_dict()
    assert stitched.to(torch.float64)({k: v.double() for k, v in call.items()}, {})["y"].dtype is torch.float64


# --- constants ---


def test_a_constant_parameter_or_module_is_registered_and_a_plain_tensor_is_not() -> None:
    parameter, net, plain = nn.Parameter(torch.ones(2)), nn.Linear(1, 1), torch.ones(2)
    f = FunctionTarget("f", packed)
    constants = [ConstantTarget("p", parameter), ConstantTarget("net", net), ConstantTarget("plain", plain)]
    stitched = knot(*[(c.output(), f.input()) for c in constants], (f.output(), EXT.output("y")))
    assert sorted(keys(stitched)) == ["net.bias", "net.weight", "p"]
    stitched.to(torch.float64)
    got = stitched({}, {})["y"][0]
    assert got[0] is constants[0].value
    assert got[0].dtype is torch.float64
    assert got[1] is net
    assert net.weight.dtype is torch.float64
    assert got[2] is plain
    assert plain.dtype is torch.float32


def test_one_parameter_in_two_constants_is_there_once() -> None:
    shared = nn.Parameter(torch.ones(1))
    stitched = knot((constant(shared, "a"), EXT.output("a")), (constant(shared, "b"), EXT.output("b")))
    assert keys(stitched) == ["a"]
    stitched.to(torch.float64)
    out = stitched({}, {})
    assert out["a"] is out["b"]
    assert out["a"].dtype is torch.float64


def test_a_constant_follows_where_torch_puts_a_new_parameter_in_the_old_ones_place() -> None:
    with torch.device("meta"):
        value = nn.Parameter(torch.ones(2))
    c = ConstantTarget("c", value)
    stitched = knot((c.output(), EXT.output("y")))
    stitched.to_empty(device="cpu")
    assert stitched.get_parameter("c").device.type == "cpu"
    assert stitched({}, {})["y"] is stitched.get_parameter("c")
    outer = nn.Sequential(stitched)
    outer.to_empty(device="meta")
    assert stitched({}, {})["y"] is stitched.get_parameter("c")
    assert stitched({}, {})["y"].device.type == "meta"


@pytest.mark.parametrize("assign", [False, True])
def test_a_loaded_constant_is_what_the_next_run_reads(assign: bool) -> None:
    c = ConstantTarget("c", nn.Parameter(torch.ones(2)))
    stitched = knot((c.output(), EXT.output("y")))
    stitched.load_state_dict({"c": torch.full((2,), 7.0)}, assign=assign)
    assert stitched({}, {})["y"].tolist() == [7, 7]


def test_a_value_that_the_user_gives_a_constant_comes_first() -> None:
    c = ConstantTarget("c", nn.Parameter(torch.ones(2)))
    stitched = knot((c.output(), EXT.output("y")))
    stitched.to_empty(device="meta")
    c.value = torch.full((2,), 7.0)
    assert stitched({}, {})["y"] is c.value


def test_knotting_looks_at_each_constant_a_few_times() -> None:
    """Not once for each of the others."""
    looked = 0

    class Counted(ConstantTarget):
        def __getattribute__(self, name: str) -> Any:
            nonlocal looked
            looked += name == "value"
            return super().__getattribute__(name)

    count = 300
    targets = [Counted(f"c{i}", nn.Parameter(torch.ones(1))) for i in range(count)]
    needle = sewn(*[(t.output(), EXT.output(t.name)) for t in targets])
    stitched = needle.knot()
    assert looked < 20 * count
    assert len(stitched.state_dict()) == count


def test_a_functional_call_swaps_constants_too() -> None:
    net = nn.Linear(1, 1, bias=False)
    m = ModuleTarget("m", net)
    stitched = knot(
        (EXT.input("x"), m.input("")),
        (m.output(""), EXT.output("m")),
        (constant(nn.Parameter(torch.ones(1))), EXT.output("c")),
    )
    swapped = {"m.weight": torch.full((1, 1), 3.0), "c": torch.full((1,), 4.0)}
    out = torch.func.functional_call(stitched, swapped, ({"x": torch.ones(1)}, {}))
    assert out["m"].item() == 3
    assert out["c"].item() == 4
    assert stitched({"x": torch.ones(1)}, {})["c"].item() == 1


# --- where .to(), .train() and the rest reach ---


def test_to_reaches_everything_that_is_registered() -> None:
    stitched, parts = everything()
    assert stitched.to(torch.float64) is stitched
    assert {p.dtype for part in parts.values() for p in part.parameters()} == {torch.float64}
    assert stitched({"x": torch.ones(1, 3, dtype=torch.float64)}, {})["y"].dtype is torch.float64
    stitched.half()
    assert {p.dtype for p in stitched.parameters()} == {torch.float16}


def test_train_and_eval_reach_everything() -> None:
    stitched, parts = everything()
    stitched.eval()
    assert not any(part.training for whole in parts.values() for part in whole.modules())
    assert not stitched.training
    stitched.train()
    assert all(part.training for whole in parts.values() for part in whole.modules())


def test_requires_grad_and_zero_grad_reach_everything() -> None:
    stitched, parts = everything()
    stitched({"x": torch.ones(1, 3)}, {})["y"].sum().backward()
    scales = [part.by for part in parts.values() if isinstance(part, Scale)]
    assert all(by.grad is not None for by in scales)
    stitched.zero_grad()
    assert all(by.grad is None for by in scales)
    stitched.requires_grad_(False)
    assert not stitched({"x": torch.ones(1, 3)}, {})["y"].requires_grad


def test_state_dict_round_trip() -> None:
    one, other = everything()[0], everything()[0]
    with torch.no_grad():
        for parameter in one.parameters():
            parameter.normal_()
    result = other.load_state_dict(one.state_dict())
    assert not result.missing_keys
    assert not result.unexpected_keys
    x = torch.ones(1, 3)
    assert torch.equal(one({"x": x}, {})["y"], other({"x": x}, {})["y"])
    with pytest.raises(RuntimeError, match="Missing key"):
        other.load_state_dict({})


def test_an_optimizer_trains_what_runs() -> None:
    stitched, _ = everything()
    optimizer = torch.optim.SGD(stitched.parameters(), lr=0.01)
    losses = []
    for _ in range(5):
        loss = stitched({"x": torch.ones(1, 3)}, {})["y"].square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]


def test_inside_another_module() -> None:
    stitched, _ = everything()
    outer = nn.ModuleDict({"graph": stitched})
    assert set(outer.state_dict()) == {f"graph.{k}" for k in keys(stitched)}
    outer.to(torch.float64)
    assert stitched({"x": torch.ones(1, 3, dtype=torch.float64)}, {})["y"].dtype is torch.float64


def test_a_graph_as_a_target_of_another() -> None:
    """A stitched module is an nn.Module, so it can be one; its parameters appear once."""
    net, x = Tiny(), torch.ones(2, 3)
    m = ModuleTarget("net", net)
    inner = knot((EXT.input("x"), m.input("")), (m.output("a"), EXT.output("a")), (m.output(""), EXT.output("y")))
    target = ModuleTarget("inner", inner)
    outer = knot(
        (EXT.input("x"), target.input("", adapter=lambda call: InputArgs({"x": call.args[0]}, {}))),
        (target.output("", adapter=lambda out: out["y"]), EXT.output("y")),
        (target.output("net.a"), EXT.output("a")),
        early_exit=False,
    )
    out = outer({"x": x}, {})
    assert torch.equal(out["y"], net(x))
    assert torch.equal(out["a"], net.a(x)), "the outer graph reaches into the inner one's modules"
    assert keys(outer) == [f"inner.net.{k}" for k in TINY]


def test_hooks_on_the_stitched_module_itself() -> None:
    stitched, seen = flow(plus_one), []
    stitched.register_forward_pre_hook(lambda mod, args: seen.append(args))
    stitched.register_forward_hook(lambda mod, args, out: out["y"])
    assert stitched({"x": 1}, {}) == 2
    assert seen == [({"x": 1}, {})]


def test_apply_and_named_children() -> None:
    stitched, _ = everything()
    visited: list[nn.Module] = []
    stitched.apply(visited.append)
    assert stitched in visited
    assert {id(m) for m in visited} == {id(m) for m in stitched.modules()}
    assert "m" in dict(stitched.named_children())


def test_a_module_that_is_swapped_in_the_target_is_not_what_was_knotted() -> None:
    """A knotted module is finished; what the target says later is for the next knot."""
    m = ModuleTarget("m", nn.Linear(1, 1, bias=False))
    needle = sewn((EXT.input("x"), m.input("")), (m.output(""), EXT.output("y")))
    stitched, before = needle.knot(), m.module
    m.module = nn.Linear(1, 1, bias=False)
    x = torch.ones(1)
    assert torch.equal(stitched({"x": x}, {})["y"], before(x))
    assert torch.equal(needle.knot()({"x": x}, {})["y"], m.module(x))
