"""Statements of the definition that no other test is about (those about a module's forward: `tests/passage`)."""

from __future__ import annotations

import torch
from torch import nn

from tests.small import EXT, knot, plus_one
from weave import FunctionTarget, ModuleTarget, StitchedModuleOutput


def test_a_run_gives_a_stitched_module_output() -> None:
    f = FunctionTarget("f", plus_one)
    stitched = knot((EXT.input("x"), f.input()), (f.output(), EXT.output("y")), (EXT.input("x"), EXT.input("z")))
    out = stitched({"x": 1}, {})
    assert type(out) is StitchedModuleOutput
    assert out.captured_outputs == {"y": 2}
    assert list(out.captured_inputs) == ["z"]
    nothing = knot((EXT.input("x"), f.input()))({"x": 1}, {})
    assert type(nothing) is StitchedModuleOutput, "also where nobody asked for anything"


def test_keys_of_the_second_node_of_a_name_begin_with_its_id() -> None:
    """Whether the two are of one kind or of two."""
    first, second, third = (nn.Linear(1, 1, bias=False) for _ in range(3))
    a, b, f = ModuleTarget("f", first), ModuleTarget("f", second), FunctionTarget("f", third)
    stitched = knot(
        (EXT.input("x"), a.input("")),
        (a.output(""), b.input("")),
        (b.output(""), f.input()),
        (f.output(), EXT.output("y")),
    )
    assert list(stitched.state_dict()) == ["f.weight", "f#2.weight", "f#3.weight"]
    assert [unit.node for unit in stitched.plan.units] == ["f", "f#2", "f#3"]
    assert [stitched.get_submodule(key) for key in ("f", "f#2", "f#3")] == [first, second, third]
    stitched.load_state_dict({key: torch.full((1, 1), 2.0) for key in stitched.state_dict()})
    assert stitched({"x": torch.ones(1)}, {})["y"].item() == 8
