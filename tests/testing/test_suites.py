"""weave's own reducers, adapters and target types pass the suites that plugins' tests are made of."""

from __future__ import annotations

from typing import Any

import anyio
import torch
from torch import nn

from weave import ConstantTarget, FunctionTarget, InputArgs, ModuleTarget, Target
from weave.builtin import builtin_records
from weave.spi.events import Observer
from weave.testing import AdapterSuite, ObserverSuite, ReducerSuite, TargetExample, TargetTypeSuite

# --- reducers ---


def t(*numbers: float) -> torch.Tensor:
    return torch.tensor([float(n) for n in numbers])


A, B, C = t(1, 5), t(2, 3), t(3, 4)


def both(name: str, result: Any, nested: Any, single: Any = A) -> list[type[ReducerSuite]]:
    """Suites of a reducer for inputs and for outputs."""
    calls = [InputArgs(v, mask=v) for v in (A, B, C)]
    examples = {
        "input": [(calls, InputArgs(result, mask=result)), ([A], single)],
        "output": [([A, B, C], result), ([A], single), ([(A, {"k": B}), (B, {"k": A})], nested)],
    }
    more = {"__module__": __name__, "name": name, "passes_one_through": name != "stack"}
    return [type(f"Test{name}", (ReducerSuite,), {**more, "kind": k, "examples": e}) for k, e in examples.items()]


TestFirstInput, TestFirstOutput = both("first", A, (A, {"k": B}))
TestLastInput, TestLastOutput = both("last", C, (B, {"k": A}))
TestLastOutput.test_is_named_in_the_plan = None  # it is the default, which a plan does not mention
TestSumInput, TestSumOutput = both("sum", t(6, 12), (A + B, {"k": A + B}))
TestMeanInput, TestMeanOutput = both("mean", t(2, 4), (t(1.5, 4), {"k": t(1.5, 4)}))
TestMaxInput, TestMaxOutput = both("max", t(3, 5), (t(2, 5), {"k": t(2, 5)}))
TestStackInput, TestStackOutput = both(
    "stack",
    torch.stack([A, B, C]),
    (torch.stack([A, B]), {"k": torch.stack([B, A])}),
    A.unsqueeze(0),
)


class TestConcat(ReducerSuite):
    test_is_named_in_the_plan = None  # it is the default, which a plan does not mention
    name = "concat"
    kind = "input"
    examples = [
        ([1, InputArgs(2, k=3), InputArgs(k=4)], InputArgs(1, 2, k=4)),
        ([A, B], InputArgs(A, B)),
    ]


class TestKeepKwargs(ReducerSuite):
    name = "keep_kwargs"
    kind = "input"
    passes_one_through = False
    examples = [
        ([A], InputArgs(A, mask=B), InputArgs(1, mask=B)),
        ([1, InputArgs(2, mask=3)], InputArgs(1, 2, mask=3, k=4), InputArgs(9, 9, mask=0, k=4)),
        ([1, 2], InputArgs(1, 2)),
    ]


class TestAddOriginalOutput(ReducerSuite):
    name = "add_original"
    kind = "output"
    passes_one_through = False
    examples = [([A], t(3, 8), B), ([A, B], t(6, 12), C), ([2], 5, 3)]


class TestAddOriginalInput(ReducerSuite):
    name = "add_original"
    kind = "input"
    passes_one_through = False
    examples = [([A], InputArgs(t(3, 8)), InputArgs(B)), ([A, B], InputArgs(t(6, 12)), InputArgs(C))]


# --- adapters ---

NESTED = (A, [B], {"c": C, "n": 3})


class _OnTensors(AdapterSuite):
    each_call = True
    examples = [(A, A), (NESTED, NESTED), (InputArgs(A, k=[B]), InputArgs(A, k=[B])), (3, 3)]


class TestClone(_OnTensors):
    name = "clone"


class TestDetach(_OnTensors):
    name = "detach"
    differentiable = False


class TestCpu(_OnTensors):
    name = "cpu"


class TestFloat32(_OnTensors):
    name = "float32"
    examples = [
        (A.double(), A),
        (A.half(), A),
        (torch.tensor([1, 2]), torch.tensor([1, 2])),
        (InputArgs(A.double(), k=[B.double()]), InputArgs(A, k=[B])),
    ]


class TestArgs(AdapterSuite):
    name = "args"
    examples = [
        (InputArgs(A, k=B), InputArgs(A, k=B)),
        (A, InputArgs(A)),
        ((A, B), InputArgs(A, B)),
        ([1, 2], InputArgs(1, 2)),
        ("ab", InputArgs("ab")),
    ]


class TestFirst(AdapterSuite):
    name = "first"
    examples = [(InputArgs(A, B, k=C), InputArgs(A)), ((A, B), A), ([1, 2], 1), ({"a": B, "b": A}, B)]


# --- target types ---


def add(x: Any, y: Any = 0) -> Any:
    return x + y


def fail(x: Any) -> Any:
    raise LookupError(x)


async def aadd(x: Any, y: Any = 0) -> Any:
    return x + y


async def afail(x: Any) -> Any:
    raise LookupError(x)


class TestFunctions(TargetTypeSuite):
    examples = [
        ({"": 1}, {"": 1}),
        ({"": InputArgs(A, y=B)}, {"": t(3, 8)}),
        ({"": InputArgs(B, y=C)}, {"": t(5, 7)}),
        ({"": 2}, {"": 2}),
    ]
    failures = [
        TargetExample(inputs={"": 1}, target=lambda: FunctionTarget("f", fail), raises=LookupError),
        TargetExample(inputs={"": InputArgs("x", y=1)}, raises=TypeError),
    ]
    refused = [("input", "x"), ("output", "x")]

    def target(self) -> Target:
        return FunctionTarget("add", add)


class TestFunctionsOnTheLoop(TestFunctions):
    def target(self) -> Target:
        return FunctionTarget("add", add, inline=True)


class TestAsyncFunctions(TestFunctions):
    failures = [TargetExample(inputs={"": 1}, target=lambda: FunctionTarget("f", afail), raises=LookupError)]
    lasting = TargetExample(target=lambda: FunctionTarget("for ever", anyio.sleep_forever))

    def target(self) -> Target:
        return FunctionTarget("aadd", aadd)


class TestFunctionsThatAreModules(TargetTypeSuite):
    examples = [({"": A}, {"": A}), ({"": B}, {"": B})]

    def target(self) -> Target:
        return FunctionTarget("identity", nn.Identity())


async def call(x: Any) -> Any:
    return InputArgs(x) if x == 1 else InputArgs(x, [x], mask=x)


class TestFunctionsThatMakeCalls(TargetTypeSuite):
    """What they return would be the arguments of whatever is stitched from them, in number and by name."""

    examples = [({"": 1}, {"": InputArgs(1)}), ({"": 2}, {"": InputArgs(2, [2], mask=2)})]

    def target(self) -> Target:
        return FunctionTarget("call", call)


class TestConstants(TargetTypeSuite):
    examples = [
        ({}, {"": 3}),
        TargetExample(outputs={"": A}, target=lambda: ConstantTarget("c", nn.Parameter(A.clone()))),
    ]

    def target(self) -> Target:
        return ConstantTarget("three", 3)

    def same(self, got: Any, expected: Any) -> bool:
        return super().same(got.data if isinstance(got, nn.Parameter) else got, expected)


class Doubles(nn.Module):
    def forward(self, x: Any, plus: Any = 0) -> Any:
        return x * 2 + plus


class Raises(nn.Module):
    def forward(self, x: Any) -> Any:
        raise LookupError(x)


class Endless(nn.Module):
    """It never comes to its last part."""

    def __init__(self) -> None:
        super().__init__()
        self.step, self.last = Doubles(), Doubles()

    def forward(self, x: Any) -> Any:
        while self is not None:
            self.step(x)
        return self.last(x)


def doubling() -> nn.Module:
    return nn.Sequential(Doubles(), nn.Sequential(Doubles(), Doubles()), Doubles())


class TestModules(TargetTypeSuite):
    examples = [
        ({"": A}, {"": A * 16, "0": A * 2, "1.0": A * 4}),
        ({"": B}, {"": B * 16, "0": B * 2, "1.0": B * 4}),
        TargetExample(args=[A], outputs={"": A * 16}, captures={"": InputArgs(A), "1": InputArgs(A * 2)}),
        TargetExample(args=[B], outputs={"": B * 16}, captures={"": InputArgs(B), "1": InputArgs(B * 2)}),
        TargetExample(args=[C], inputs={"1": InputArgs(A)}, replaces={"2": B}, outputs={"": B, "1": A * 4}),
        TargetExample(args=[C], inputs={"0": InputArgs(A, plus=B)}, outputs={"0": A * 2 + B}),
    ]
    failures = [TargetExample(inputs={"": A}, target=lambda: ModuleTarget("m", Raises()), raises=LookupError)]
    refused = [("input", "nothing"), ("output", "1.7")]
    lasting = TargetExample(
        args=[A],
        outputs={"step": A * 2},
        captures={"last": InputArgs()},
        target=lambda: ModuleTarget("endless", Endless()),
    )

    def target(self) -> Target:
        return ModuleTarget("model", doubling())


# --- observers ---


class Counts(Observer):
    def __init__(self) -> None:
        self.open: list[Any] = []

    def node_started(self, event: Any) -> None:
        self.open.append((event.run.run, event.unit))

    def _ended(self, event: Any) -> None:
        self.open.remove((event.run.run, event.unit))

    node_finished = node_failed = node_cancelled = _ended


COUNTS = Counts()


class TestAnObserverByHand(ObserverSuite):
    def observer(self) -> Observer:
        return COUNTS

    def unfinished(self) -> list[Any]:
        return COUNTS.open


def test_none_is_left_out() -> None:
    """Whatever weave registers, but the caller and other ranks, which nothing of an executor's is asked of."""
    named = {
        "weave_reducers": {(s.name, s.kind) for s in _suites(ReducerSuite)},
        "weave_adapters": {(s.name, s.kind) for s in _suites(AdapterSuite)},
    }
    for hook, names in named.items():
        provided = [r for record in builtin_records() for r in record.provides.get(hook, ())]
        assert {(r.name, r.kind) for r in provided} == names
    kinds = {r.name for record in builtin_records() for r in record.provides.get("weave_target_types", ())}
    assert {s().record.name for s in _suites(TargetTypeSuite)} == kinds - {"external", "remote"}


def _suites(base: type) -> list[Any]:
    return [v for n, v in globals().items() if n.startswith("Test") and isinstance(v, type) and issubclass(v, base)]
