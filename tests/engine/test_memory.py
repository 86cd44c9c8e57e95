"""Values are let go when their last consumer has them; a run leaves nothing behind, also where it raised.

All by reference counting: the collector is off, so that a cycle would show as something that stays alive.
"""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from tests.small import EXT, constant, flow, knot, module, plus_one
from weave import FunctionTarget, InputArgs, OutputReducer, RemoteTarget, StitchedModule


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Census:
    """Who of those that were born is alive."""

    def __init__(self) -> None:
        self.born: list[weakref.ref[Any]] = []
        self.most = 0

    def new(self, value: Any) -> Any:
        self.born.append(weakref.ref(value))
        self.most = max(self.most, self.alive())
        return value

    def alive(self) -> int:
        return sum(ref() is not None for ref in self.born)

    def step(self, x: torch.Tensor) -> torch.Tensor:
        """A node: a new tensor from the one before."""
        return self.new(x + 1)


class Value:
    """Something that is no tensor."""


@pytest.fixture
def census() -> Census:
    return Census()


def ways_to_chain(census: Census) -> dict[str, Callable[[], StitchedModule]]:
    def functions() -> StitchedModule:
        return flow(*[census.step] * 50)

    def adapters() -> StitchedModule:
        targets = [FunctionTarget("f", plus_one) for _ in range(50)]
        return knot(
            (EXT.input("x"), targets[0].input()),
            *[(a.output(adapter=census.step), b.input()) for a, b in itertools.pairwise(targets)],
            (targets[-1].output(adapter=census.step), EXT.output("y")),
        )

    def reducers() -> StitchedModule:
        targets = [FunctionTarget("f", census.step) for _ in range(50)]
        return knot(
            (EXT.input("x"), targets[0].input(reducer="last")),
            *[(a.output(), b.input(reducer="last")) for a, b in itertools.pairwise(targets)],
            (targets[-1].output(), EXT.output("y")),
        )

    class Step(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return census.step(x)

    def modules() -> StitchedModule:
        targets = [module(Step()) for _ in range(50)]
        return knot(
            (EXT.input("x"), targets[0].input("")),
            *[(a.output(""), b.input("")) for a, b in itertools.pairwise(targets)],
            (targets[-1].output(""), EXT.output("y")),
        )

    return {"functions": functions, "adapters": adapters, "reducers": reducers, "modules": modules}


@pytest.mark.parametrize("kind", ["functions", "adapters", "reducers", "modules"])
def test_a_chain_of_50_keeps_at_most_three_values(census: Census, kind: str) -> None:
    stitched = ways_to_chain(census)[kind]()
    out = stitched({"x": torch.zeros(4)}, {})
    assert len(census.born) == 50
    assert census.most <= 3
    assert census.alive() == 1, "the result"
    assert out["y"] is census.born[-1]()
    del out
    assert census.alive() == 0


def test_a_value_that_several_need_lives_until_the_last_has_it(census: Census) -> None:
    alive: list[bool] = []
    make = FunctionTarget("make", lambda: census.new(Value()))
    looks = [FunctionTarget(f"look{i}", lambda v, *_: None) for i in range(3)]
    after = FunctionTarget("after", lambda *_: alive.append(census.alive() > 0))
    stitched = knot(
        *[(make.output(), f.input()) for f in looks],
        # One after another, and then somebody who doesn't need it.
        *[(a.output(), b.input()) for a, b in zip(looks, [*looks[1:], after], strict=True)],
        (after.output(), EXT.output("y")),
    )
    stitched({}, {})
    assert alive == [False]
    assert len(census.born) == 1


def test_what_a_module_captured_is_let_go_by_its_consumer(census: Census) -> None:
    class Makes(nn.Module):
        def forward(self) -> None:
            for part in self.children():
                part(census.new(torch.zeros(1)))

    net = Makes()
    for i in range(4):
        net.add_module(str(i), nn.Identity())
    m = module(net)
    takers = [FunctionTarget(f"f{i}", lambda x: None) for i in range(4)]
    last = FunctionTarget("last", lambda *_: census.alive())
    stitched = knot(
        *[(m.output(str(i)), f.input()) for i, f in enumerate(takers)],
        *[(f.output(), last.input()) for f in takers],
        (last.output(), EXT.output("y")),
    )
    assert stitched({}, {})["y"] == 0
    assert len(census.born) == 4


def test_nobody_reads_a_result_nobody_keeps_it(census: Census) -> None:
    f = FunctionTarget("f", census.step)
    after = FunctionTarget("after", lambda x: census.alive())
    stitched = knot((EXT.input("x"), f.input()), (EXT.input("y"), after.input()), (after.output(), EXT.output("n")))
    assert stitched({"x": torch.zeros(1), "y": 0}, {})["n"] == 0
    assert len(census.born) == 1


def test_nothing_is_held_between_runs(census: Census) -> None:
    class Same(nn.Module):
        def forward(self, x: Any, k: Any) -> Any:
            return x

    m, f = module(Same()), FunctionTarget("f", lambda *a: a[-1])
    newest = OutputReducer(lambda acc, value, *more: value)
    stitched = knot(
        (EXT.input("x"), f.input(adapter=lambda a: a)),
        (EXT.output("o"), f.input(reducer="last")),
        (m.output(""), EXT.output("m", reducer=newest)),
        (m.input(""), EXT.input("i")),
        (f.output(), EXT.output("y")),
        (EXT.input("x"), EXT.input("x")),
    )
    given = [census.new(Value()) for _ in range(4)]
    out = stitched({"x": InputArgs(given[0])}, {"o": given[1]}, given[2], k=given[3])
    assert out["m"] is given[2]
    assert out["y"] is given[1]
    del given
    assert census.alive() == 4, "the result holds them all"
    del out
    assert census.alive() == 0


@pytest.mark.parametrize(
    "kind", ["function", "adapter", "reducer", "destination", "module", "remote", "awaits", "changed"]
)
def test_nothing_is_held_after_a_run_that_raised(census: Census, kind: str) -> None:
    """Once the exception is gone: its traceback holds the frames, and they their values."""

    def fail(*args: Any) -> Any:
        raise ValueError("planned")

    async def waits(x: Any) -> Any:
        return x

    class Fails(nn.Module):
        def forward(self, x: Any) -> Any:
            fail()

    m, f, end = module(Fails()), FunctionTarget("f", census.step), FunctionTarget("end", lambda x: x)
    changes = FunctionTarget("changes", lambda x: x.add_(1))
    out = f.output()
    bad: dict[str, list[Any]] = {
        "function": [(out, (t := FunctionTarget("bad", fail)).input()), (t.output(), end.input())],
        "adapter": [(f.output(adapter=fail), end.input())],
        "destination": [(out, end.input(adapter=fail))],
        "reducer": [(out, EXT.output("z", reducer=fail))],
        "module": [(out, m.input(""))],
        "remote": [(out, RemoteTarget(1).value("k"))],
        "awaits": [(out, FunctionTarget("bad", lambda x: waits(x)).input())],
        "changed": [(out, changes.input()), (changes.output(), end.input()), (out, end.input())],
    }
    stitched = knot((EXT.input("x"), f.input()), *bad[kind], (out, EXT.output("y")), (constant(1), EXT.output("c")))
    for _ in range(2):
        raised = False
        try:
            stitched({"x": InputArgs(census.new(torch.zeros(2)))}, {})
        except Exception:
            raised = True
        assert raised
        assert census.alive() == 0
    assert len(census.born) >= (2 if kind == "remote" else 4)  # a process without a world refuses before a node fires


def test_an_exception_holds_no_more_than_its_traceback(census: Census) -> None:
    def fail(x: Any) -> Any:
        raise ValueError("planned")

    caught: list[BaseException] = []
    try:
        flow(census.step, fail)({"x": torch.zeros(1)}, {})
    except ValueError as error:
        caught.append(error.with_traceback(None))
    assert census.alive() == 0
    assert len(census.born) == 1
    assert caught[0].__notes__


def test_an_exception_before_anything_fired_leaves_nothing(census: Census) -> None:
    stitched = flow(plus_one)
    value = census.new(Value())
    raised = False
    try:
        stitched({"x": value, "extra": value}, {})
    except KeyError:
        raised = True
    del value
    assert raised
    assert census.alive() == 0


def test_a_graph_is_let_go_with_its_last_reference(census: Census) -> None:
    """No cycle holds it: neither the plan nor the targets know the module that they belong to."""
    stitched = flow(plus_one)
    census.new(stitched)
    stitched({"x": 1}, {})
    del stitched
    assert census.alive() == 0
