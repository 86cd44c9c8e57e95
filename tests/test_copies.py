"""Copies of a `StitchedModule`: deepcopy, pickle, a spawned process, a forked one."""

from __future__ import annotations

import copy
import io
import multiprocessing
import os
import pickle
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.small import EXT, Tiny, flow, knot, module, packed, plus_one, times_ten
from weave import (
    ConstantTarget,
    ExternalTarget,
    FunctionTarget,
    InputArgs,
    ModuleTarget,
    OutputReducer,
    StitchedModule,
)


class Scale(nn.Module):
    def __init__(self, by: float = 2.0) -> None:
        super().__init__()
        self.by = nn.Parameter(torch.tensor([by]))

    def forward(self, value: Any, *more: Any) -> Any:
        return value * self.by


def added(acc: Any, value: Any, original: Any, index: int, every: list[Any]) -> Any:
    return original + value


def nothing(name: str, part: nn.Module) -> bool:
    return False


def graph() -> StitchedModule:
    """Modules, functions, constants, adapters, reducers, named ones, calls, one module in two targets."""
    torch.manual_seed(0)
    net = nn.Sequential(Tiny(), nn.ReLU())
    m, again, f = ModuleTarget("m", net), ModuleTarget("m", net), FunctionTarget("f", packed)
    shared = m.output("0.a", adapter="clone")
    return knot(
        (EXT.input("x"), m.input("")),
        (shared, f.input(adapter=Scale())),
        (m.output("0.b", call="all"), f.input()),
        (ConstantTarget("p", nn.Parameter(torch.ones(3))).output(), f.input()),
        (ConstantTarget("plain", [torch.ones(3)]).output(), f.input()),
        (EXT.output("o"), again.output("0", reducer=OutputReducer(added, requires_original_output=True))),
        (EXT.input("x"), again.input("")),
        (again.output(""), EXT.output("again")),
        (shared, EXT.output("a", reducer="last")),
        (f.output(), EXT.output("f")),
        (EXT.input("x"), EXT.input("x")),
        capture_cache_outputs_predicate=nothing,
        ignore_extra_overrides=True,
    )


def run(stitched: StitchedModule) -> dict[str, Any]:
    out = stitched({"x": torch.ones(2, 3), "extra": 1}, {"o": torch.ones(2, 3)})
    return {**out.captured_outputs, "x": out.captured_inputs["x"].args}


def flat(value: Any) -> list[Any]:
    """What is in a result, tensors as lists of numbers."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return [(k, flat(v)) for k, v in value.items()]
    return [flat(v) for v in value] if isinstance(value, list | tuple) else value


def by_torch(stitched: StitchedModule) -> StitchedModule:
    buffer = io.BytesIO()
    torch.save(stitched, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)  # type: ignore[no-any-return]


WAYS: dict[str, Callable[[StitchedModule], StitchedModule]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda s: pickle.loads(pickle.dumps(s)),
    "torch.save": by_torch,
    "twice": lambda s: copy.deepcopy(pickle.loads(pickle.dumps(copy.deepcopy(s)))),
    "inside another module": lambda s: copy.deepcopy(nn.Sequential(s))[0],  # type: ignore[dict-item,return-value]
}


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_says_and_gives_the_same(way: str) -> None:
    stitched = graph()
    due = flat(run(stitched))
    other = WAYS[way](stitched)
    assert type(other) is StitchedModule
    assert other.plan == stitched.plan
    assert (repr(other), other.describe()) == (repr(stitched), stitched.describe())
    assert list(other.state_dict()) == list(stitched.state_dict())
    assert flat(run(other)) == due
    assert flat(run(stitched)) == due, "and the original is as it was"


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_shares_nothing(way: str) -> None:
    stitched = graph()
    due = flat(run(stitched))
    other = WAYS[way](stitched)
    mine = {p.data_ptr() for p in stitched.parameters()}
    assert not mine & {p.data_ptr() for p in other.parameters()}
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1)
    assert flat(run(stitched)) == due
    assert flat(run(other)) != due
    # A plain constant is the copy's own too.
    constants = [[t for t in s.plan.nodes if isinstance(t, ConstantTarget)] for s in (stitched, other)]
    for one, its_copy in zip(*constants, strict=True):
        assert one is not its_copy
        assert one.name == its_copy.name
        assert one.value is not its_copy.value
    other.to(torch.float64)
    assert {p.dtype for p in stitched.parameters()} == {torch.float32}


@pytest.mark.parametrize("way", WAYS)
def test_a_copied_constant_is_still_the_registered_parameter(way: str) -> None:
    other = WAYS[way](knot((ConstantTarget("p", nn.Parameter(torch.ones(2))).output(), EXT.output("y"))))
    assert other({}, {})["y"] is other.get_parameter("p")
    other.to(torch.float64)
    assert other({}, {})["y"].dtype is torch.float64


@pytest.mark.parametrize("way", WAYS)
def test_a_value_that_the_user_gave_a_constant_is_the_copys_too(way: str) -> None:
    c = ConstantTarget("p", nn.Parameter(torch.ones(2)))
    stitched = knot((c.output(), EXT.output("y")))
    c.value = torch.full((2,), 7.0)
    other = WAYS[way](stitched)
    assert stitched({}, {})["y"].tolist() == [7, 7]
    assert other({}, {})["y"].tolist() == [7, 7]


@pytest.mark.parametrize("way", WAYS)
def test_a_module_in_two_targets_is_one_in_the_copy_too(way: str) -> None:
    net = nn.Linear(1, 1, bias=False)
    a, b = ModuleTarget("a", net), ModuleTarget("b", net)
    other = WAYS[way](knot((EXT.input("x"), a.input("")), (a.output(""), b.input("")), (b.output(""), EXT.output("y"))))
    assert len(list(other.parameters())) == 1
    with torch.no_grad():
        other.get_parameter("a.weight").fill_(3)
    assert other({"x": torch.ones(1)}, {})["y"].item() == 9


def test_the_boundary_of_a_copy_is_the_external_target() -> None:
    other = copy.deepcopy(graph())
    assert ExternalTarget() in other.plan.nodes


def test_the_options_go_along() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.calls = nn.Identity(), 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.a(x)
            self.calls += 1
            return x

    for early, calls in ((True, 0), (False, 1)):
        m = module(Counts())
        stitched = knot((EXT.input("x"), m.input("")), (m.output("a"), EXT.output("y")), early_exit=early)
        other = copy.deepcopy(stitched)
        other({"x": torch.ones(1)}, {})
        assert other.get_submodule("m").calls == calls
        assert m.module.calls == 0


def test_gradients_flow_in_a_copy_into_the_copys_parameters() -> None:
    stitched = graph()
    other = copy.deepcopy(stitched)
    run(other)["again"].sum().backward()
    assert all(p.grad is None for p in stitched.parameters())
    assert any(p.grad is not None for p in other.parameters())


def test_a_deepcopy_of_targets_bound_methods_and_closures() -> None:
    """A bound method goes along with its object; a plain function is what Python shares."""
    net = Scale()
    stitched = flow(net.forward, plus_one)
    other = copy.deepcopy(stitched)
    with torch.no_grad():
        net.by.fill_(100)
    assert other({"x": torch.ones(1)}, {})["y"].item() == 3
    assert stitched({"x": torch.ones(1)}, {})["y"].item() == 101


def test_a_copy_made_while_a_run_is_under_way() -> None:
    copies: list[StitchedModule] = []
    net = Tiny()
    m, f = module(net), FunctionTarget("f", lambda x: copies.append(copy.deepcopy(stitched)) or x)
    stitched = knot((EXT.input("x"), m.input("")), (m.output("a"), f.input()), (f.output(), EXT.output("y")))
    x = torch.ones(1, 3)
    y = stitched({"x": x}, {})["y"]
    assert torch.equal(copies[0]({"x": x}, {})["y"], y)
    assert len(copies) == 2


def test_a_shallow_copy_shares_the_parts_and_runs() -> None:
    stitched = graph()
    other = copy.copy(stitched)
    assert set(other.parameters()) == set(stitched.parameters())
    assert flat(run(other)) == flat(run(stitched))


def test_what_does_not_pickle_says_so_as_pickle_does() -> None:
    stitched = flow(lambda x: x)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(stitched)
    assert copy.deepcopy(stitched)({"x": 1}, {})["y"] == 1, "deepcopy needs no names"


def test_pickling_changes_nothing() -> None:
    stitched = graph()
    before = sorted(vars(stitched))
    pickle.dumps(stitched)
    copy.deepcopy(stitched)
    assert sorted(vars(stitched)) == before
    assert run(stitched)


# --- other processes ---


def answer(connection: Any, blob: bytes) -> None:
    """In the spawned process."""
    stitched = pickle.loads(blob)
    connection.send((stitched.plan.to_dict(), flat(run(stitched))))
    connection.close()


def test_pickled_to_a_spawned_process() -> None:
    stitched = graph()
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=answer, args=(there, pickle.dumps(stitched)), daemon=True)
    process.start()
    there.close()
    try:
        plan, values = here.recv()
    finally:
        here.close()
        process.join()
        process.close()
    assert plan == stitched.plan.to_dict()
    assert values == flat(run(stitched))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_child_runs_it_as_new() -> None:
    stitched = knot(
        (EXT.input("x"), (f := FunctionTarget("f", times_ten)).input()),
        (f.output(), (m := module(nn.Identity())).input("")),
        (m.output(""), EXT.output("y")),
    )
    assert stitched({"x": 1}, {})["y"] == 10
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # later Pythons warn of a fork where there are threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            results = [stitched({"x": i}, {})["y"] for i in range(3)]
            os.write(write, pickle.dumps(results))
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert pickle.loads(said) == [0, 10, 20]
    assert stitched({"x": 2}, {})["y"] == 20


def test_the_arguments_of_a_call_pickle() -> None:
    out = pickle.loads(pickle.dumps(graph()({"x": torch.ones(2, 3)}, {"o": torch.ones(2, 3)})))
    assert isinstance(out.captured_inputs["x"], InputArgs)
