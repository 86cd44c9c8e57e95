"""The evaluator's word on runs on a loop: what may end them besides, and what may have begun."""

from __future__ import annotations

import torch

from .description import Destination, Graph, Source, Target
from .naive import Outcome, evaluate
from .test_naive import EXTERNAL, boundary, outcome_of
from .ways import WAYS


def taking_from(model: str, source: Source, what: str, **options: bool) -> Outcome:
    """A module; a function that takes from one of its ports; the function's result at the boundary."""
    graph = Graph(
        targets=(EXTERNAL, Target("module", "m", 0), Target("function", "f", what)),
        models=(model,),
        sources=(source, Source(2)),
        destinations=(Destination(2), Destination(0, "output", "out")),
        stitches=((0, 0), (1, 1)),
        early_exit=False,
        **options,
    )
    return outcome_of(graph)[0]


def test_a_way_changes_nothing_of_what_a_function_gives() -> None:
    for way in WAYS:
        graph = Graph(
            targets=(EXTERNAL, Target("function", "f", "pair", way)),
            sources=(Source(0, "input", "x"), Source(1)),
            destinations=(Destination(1), Destination(0, "output", "out")),
            stitches=((0, 0), (1, 1)),
            **boundary("x"),
        )
        outcome, materials, _ = outcome_of(graph)
        first, second = outcome.captured_outputs["out"]
        assert torch.equal(first, materials.given_leaves["x"][0])
        assert not torch.equal(second, first)
        assert outcome.trace == ["function1"]


def test_what_takes_from_a_module_may_have_begun_when_the_module_fails() -> None:
    outcome = taking_from("fused", Source(1, "output", "before"), "raise")
    assert [str(due.error) for due in outcome.dues] == ["m0:fuse"]
    assert {str(due.error) for due in outcome.dues_on_a_loop} == {"m0:fuse", "function2"}
    assert [label for label in outcome.trace_on_a_loop if label not in outcome.trace] == ["function2"]
    behind = taking_from("fused", Source(1, "output", "after"), "raise")
    assert behind.trace_on_a_loop == behind.trace, "what was never captured is in nobody's hands"


def test_a_change_while_the_forward_that_gave_the_value_goes_on() -> None:
    for source, possible in (
        (Source(1, "output", "blocks.0"), True),
        (Source(1, "output", "blocks.0", adapter="clone"), False),
        (Source(1, "output", "blocks.0", "last"), False),
        (Source(1, "output", ""), False),
    ):
        outcome = taking_from("stack", source, "in_place")
        assert outcome.dues == [], "a synchronous call begins the function when the forward has ended"
        assert [(due.kind, due.certain) for due in outcome.dues_on_a_loop] == [("changed", False)] * possible


def test_another_factor_gives_other_inputs() -> None:
    graph = Graph(
        targets=(EXTERNAL,),
        sources=(Source(0, "input", "x"),),
        destinations=(Destination(0, "input", "p"),),
        stitches=((0, 0),),
        **boundary("x"),
    )
    once, materials, _ = outcome_of(graph)
    thrice, _ = evaluate(graph, materials, 3.0)
    assert torch.equal(thrice.captured_inputs["p"].args[0], once.captured_inputs["p"].args[0] * 3.0)
