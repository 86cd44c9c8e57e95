"""The evaluator itself, on graphs whose value is worked out by hand in plain torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from .arguments import Args
from .description import Destination, Graph, Materials, Source, Target
from .naive import Outcome, evaluate
from .vocabulary import blend

EXTERNAL = Target("external")


def boundary(*ports: str) -> dict[str, Any]:
    """`given_inputs` for a graph that takes these names."""
    return {"given_inputs": tuple((port, "tensor") for port in ports)}


def outcome_of(graph: Graph) -> tuple[Outcome, Materials, Any]:
    materials = Materials(graph)
    outcome, _ = evaluate(graph, materials)
    x = materials.argument_leaves[0]
    return outcome, materials, x


def module_graph(model: str, sources: list[Source], *more: Any, **options: Any) -> Graph:
    """One model as target 1, each source captured at the boundary as "0", "1", ...; `more` are the overrides.

    An override is a triple: what the caller passes under "o0", "o1", ..., and the destination.
    """
    captures = [Destination(0, "output", str(i)) for i in range(len(sources))]
    overriding = [Source(0, "output", f"o{i}") for i in range(len(more))]
    return Graph(
        targets=(EXTERNAL, Target("module", "model", 0)),
        models=(model,),
        sources=(*overriding, *sources),
        destinations=(*(end for _, end in more), *captures),
        stitches=tuple((i, i) for i in range(len(more) + len(sources))),
        given_outputs=tuple((f"o{i}", kind) for i, (kind, _) in enumerate(more)),
        **options,
    )


def equal(found: Any, expected: Tensor) -> bool:
    return isinstance(found, Tensor) and torch.equal(found, expected)


def function_graph(what: str, stitches: tuple[tuple[int, int], ...], *reducers: str | None, **more: Any) -> Graph:
    """External inputs "x" and "y" into a function, whose result is captured as "out"."""
    return Graph(
        targets=(EXTERNAL, Target("function", "f", what)),
        sources=(Source(0, "input", "x"), Source(0, "input", "y"), Source(1)),
        destinations=(*(Destination(1, reducer=r) for r in reducers), Destination(0, "output", "out")),
        stitches=(*stitches, (2, len(reducers))),
        **{**boundary("x", "y"), **more},
    )


def test_stitches_on_one_port_meet_in_stitch_order() -> None:
    for stitches, order in ((((0, 0), (1, 1)), "xy"), (((1, 1), (0, 0)), "yx")):
        outcome, materials, _ = outcome_of(function_graph("blend", stitches, None, None))
        assert equal(outcome.captured_outputs["out"], blend(*(materials.given_leaves[name][0] for name in order)))


def test_one_source_stitched_twice_is_two_arguments_and_one_pair_twice_is_one_stitch() -> None:
    outcome, materials, _ = outcome_of(function_graph("blend", ((0, 0), (0, 1), (0, 0), (1, 0)), None, None))
    x, y = (materials.given_leaves[name][0] for name in "xy")
    assert equal(outcome.captured_outputs["out"], blend(x, x, y))


def test_reducers_are_called_in_turn_each_with_its_own() -> None:
    outcome, materials, _ = outcome_of(function_graph("blend", ((0, 0), (1, 1)), None, "prepend"))
    x, y = (materials.given_leaves[name][0] for name in "xy")
    assert equal(outcome.captured_outputs["out"], blend(y, x))
    outcome, _, _ = outcome_of(function_graph("blend", ((0, 0), (1, 1)), None, "wrong_type"))
    assert [(due.kind, due.words[0]) for due in outcome.dues] == [("wrong type", "f")]


def test_what_the_caller_passes_as_an_input_is_spread_if_it_is_a_list() -> None:
    graph = function_graph("blend", ((0, 0), (1, 0)), None, given_inputs=(("x", "list"), ("y", "args")))
    outcome, materials, _ = outcome_of(graph)
    (x1, x2), (y1, y2) = (materials.given_leaves[name] for name in "xy")
    assert equal(outcome.captured_outputs["out"], blend(x1, x2, y1, scale=y2))


def test_a_value_that_crosses_from_an_output_stays_one_argument_unless_spread() -> None:
    for adapter, arguments in ((None, 1), ("spread", 2)):
        graph = Graph(
            targets=(EXTERNAL, Target("function", "f", "pair"), Target("function", "g", "number")),
            sources=(Source(0, "input", "x"), Source(1), Source(2)),
            destinations=(Destination(1), Destination(2, adapter=adapter), Destination(0, "output", "out")),
            stitches=((0, 0), (1, 1), (2, 2)),
            **boundary("x"),
        )
        assert outcome_of(graph)[0].captured_outputs["out"] == arguments + 0.5


def test_the_boundary_joins_inputs_and_takes_the_newest_output() -> None:
    graph = Graph(
        targets=(EXTERNAL,),
        sources=(Source(0, "input", "x"), Source(0, "output", "u"), Source(0, "output", "v")),
        destinations=(Destination(0, "input", "p"), Destination(0, "output", "r")),
        stitches=((1, 0), (0, 0), (2, 1), (1, 1)),
        given_outputs=(("u", "number"), ("v", "none")),
        **boundary("x"),
    )
    outcome, materials, _ = outcome_of(graph)
    assert outcome.captured_outputs == {"r": 2.5}
    captured = outcome.captured_inputs["p"]
    assert isinstance(captured, Args)
    assert captured.args[0] == 2.5
    assert equal(captured.args[1], materials.given_leaves["x"][0])


def test_captures_inside_a_module_are_its_calls() -> None:
    sources = [Source(1, "input", "blocks.1.mlp"), Source(1, "output", "blocks.0"), Source(1, "output", "")]
    outcome, materials, x = outcome_of(module_graph("stack", sources))
    stack: Any = materials.models[0]
    h = stack.blocks[0](x)
    assert equal(outcome.captured_outputs["1"], h)
    assert equal(outcome.captured_outputs["0"].args[0], stack.blocks[1].norm(h))
    assert outcome.captured_outputs["0"].kwargs == {"scale": 0.5}
    assert equal(outcome.captured_outputs["2"], stack(x))


def test_an_overridden_output_is_not_computed_unless_its_original_is_required() -> None:
    for reducer in (None, "observe", "with_original"):
        end = Destination(1, "output", "blocks.0", reducer=reducer)
        outcome, materials, x = outcome_of(module_graph("stack", [Source(1, "output", "")], ("tensor", end)))
        stack: Any = materials.models[0]
        value = materials.given_leaves["o0"][0]
        if reducer is not None:
            value = blend(None, value, original=stack.blocks[0](x) if reducer == "with_original" else None)
        assert equal(outcome.captured_outputs["0"], stack.head(stack.blocks[1](value)))
        assert ("m0:blocks.0" in outcome.trace) == (reducer == "with_original")


def test_an_overridden_input_can_keep_the_keywords_and_is_what_a_capture_sees() -> None:
    for reducer, keywords in ((None, {}), ("replace_positionals", {"scale": 0.5})):
        end = Destination(1, "input", "blocks.1.mlp", reducer=reducer)
        sources = [Source(1, "output", ""), Source(1, "input", "blocks.1.mlp")]
        outcome, materials, x = outcome_of(module_graph("stack", sources, ("tensor", end)))
        stack: Any = materials.models[0]
        value = materials.given_leaves["o0"][0]
        h = stack.blocks[0](x)
        assert equal(outcome.captured_outputs["0"], stack.head(blend(h, stack.blocks[1].mlp(value, **keywords))))
        assert outcome.captured_outputs["1"].kwargs == keywords
        assert equal(outcome.captured_outputs["1"].args[0], value)


def test_an_override_of_the_root_replaces_the_arguments_of_the_call() -> None:
    end = Destination(1, "input", "", reducer="replace_first")
    graph = module_graph("lin", [Source(1, "output", "")], ("tensor", end), arguments=2, scale=True)
    outcome, materials, _ = outcome_of(graph)
    value, second = materials.given_leaves["o0"][0], materials.argument_leaves[1]
    assert equal(outcome.captured_outputs["0"], materials.models[0](value, second, scale=0.5))


def test_calls_are_counted_from_zero_and_an_override_may_pick_one() -> None:
    sources = [Source(1, "output", "cell", call) for call in (None, 2, "last", "all")]
    outcome, materials, x = outcome_of(
        module_graph("loop", sources, ("tensor", Destination(1, "output", "cell", call=1)))
    )
    loop: Any = materials.models[0]
    first, second = loop.cell(x, step=0), materials.given_leaves["o0"][0]
    third = loop.cell(second, step=2)
    assert equal(outcome.captured_outputs["0"], first)
    assert equal(outcome.captured_outputs["1"], third)
    assert equal(outcome.captured_outputs["2"], third)
    assert all(map(equal, outcome.captured_outputs["3"], (first, second, third)))
    assert outcome.trace.count("m0:cell.lin") == 2


def test_an_override_of_every_call_and_one_of_a_call_that_never_comes() -> None:
    every = module_graph("loop", [Source(1, "output", "")], ("tensor", Destination(1, "output", "cell")))
    outcome, materials, _ = outcome_of(every)
    loop: Any = materials.models[0]
    assert equal(outcome.captured_outputs["0"], loop.head(materials.given_leaves["o0"][0]))
    never = module_graph("loop", [Source(1, "output", "")], ("tensor", Destination(1, "output", "cell", call=3)))
    assert [(due.kind, due.words) for due in outcome_of(never)[0].dues] == [("unreached", ("model", "cell"))]


def test_a_tied_module_answers_to_all_its_names() -> None:
    sources = [Source(1, "input", "decode"), Source(1, "input", "nest.shared", 1), Source(1, "output", "encode", 2)]
    outcome, materials, x = outcome_of(module_graph("tied", sources))
    tied: Any = materials.models[0]
    h = tied.middle(tied.encode(x))
    assert equal(outcome.captured_outputs["0"].args[0], x)
    assert equal(outcome.captured_outputs["1"].args[0], h)
    assert equal(outcome.captured_outputs["2"], tied.encode(tied.encode(h), again=True))


def test_an_early_exit_runs_no_more_than_is_wanted() -> None:
    before = module_graph("stack", [Source(1, "input", "blocks.1.mlp")])
    assert outcome_of(before)[0].trace == ["m0:", *FIRST_BLOCK, "m0:blocks.1", "m0:blocks.1.norm"]
    behind = module_graph("stack", [Source(1, "output", "blocks.0")])
    assert outcome_of(behind)[0].trace == ["m0:", *FIRST_BLOCK]
    fully = module_graph("stack", [Source(1, "output", "blocks.0")], early_exit=False)
    assert outcome_of(fully)[0].trace[-1] == "m0:head"
    swallowing = module_graph("guarded", [Source(1, "output", "body.before")])
    assert outcome_of(swallowing)[0].trace == ["m0:", "m0:body", "m0:body.before"]
    grad_mode = module_graph("toggled", [Source(1, "output", "frozen.fc1")])
    assert not outcome_of(grad_mode)[0].captured_outputs["0"].requires_grad
    assert torch.is_grad_enabled()


FIRST_BLOCK = [f"m0:blocks.0{part}" for part in ("", ".norm", ".mlp", ".mlp.fc1", ".mlp.act", ".mlp.fc2")]


def test_a_port_that_a_finished_forward_did_not_pass() -> None:
    for side, missing in ((False, ("model", "side.mlp")), (True, ("model", "straight"))):
        sources = [Source(1, "output", "side.mlp"), Source(1, "output", "straight")]
        outcome, _, _ = outcome_of(module_graph("fork", sources, side=side))
        assert [(due.kind, due.words) for due in outcome.dues] == [("unreached", missing)]
    override = ("tensor", Destination(1, "output", "never"))
    left = module_graph("fork", [Source(1, "output", "front")], override)
    assert outcome_of(left)[0].dues == []
    to_the_end = module_graph("fork", [Source(1, "output", "front")], override, early_exit=False)
    assert [due.words for due in outcome_of(to_the_end)[0].dues] == [("model", "never")]


def test_a_capture_that_the_module_changes_later() -> None:
    for port, adapter, early_exit, due in (
        ("conv", None, False, True),
        ("conv", None, True, False),
        ("conv", "clone", False, False),
        ("act", None, False, False),
    ):
        graph = module_graph("washed", [Source(1, "output", port, adapter=adapter)], early_exit=early_exit)
        outcome, materials, x = outcome_of(graph)
        assert [one.kind for one in outcome.dues] == ["changed"] * due
        if not due:
            conv = materials.models[0].conv(x)  # type: ignore[operator]
            assert equal(outcome.captured_outputs["0"], conv + 1 if port == "act" else conv)


def test_what_raises_is_due_and_what_depends_on_it_is_not_run() -> None:
    graph = Graph(
        targets=(
            EXTERNAL,
            Target("function", "f", "raise"),
            Target("function", "g", "blend"),
            Target("module", "m", 0),
        ),
        models=("fused",),
        sources=(Source(0, "input", "x"), Source(1), Source(2), Source(3, "output", "after")),
        destinations=(Destination(1), Destination(2), Destination(0, "output", "out"), Destination(0, "output", "in")),
        stitches=((0, 0), (1, 1), (2, 2), (3, 3)),
        **boundary("x"),
    )
    outcome, _, _ = outcome_of(graph)
    assert [str(due.error) for due in outcome.dues] == ["function1", "m0:fuse"]
    assert outcome.trace == ["function1", "m0:", "m0:before", "m0:fuse"]
    assert outcome.captured_outputs == {}


def sharing_graph(*kinds: str, capture_x: bool = False) -> Graph:
    """One value given to several functions, whose results are captured as "1", "2", ..., and maybe as itself."""
    count = len(kinds)
    return Graph(
        targets=(EXTERNAL, *(Target("function", "f", kind) for kind in kinds)),
        sources=(Source(0, "input", "x"), *(Source(i + 1) for i in range(count))),
        destinations=(
            *(Destination(i + 1) for i in range(count)),
            *(Destination(0, "output", str(i + 1)) for i in range(count)),
            Destination(0, "input", "x"),
        ),
        stitches=(
            *((0, i) for i in range(count)),
            *((i + 1, count + i) for i in range(count)),
            *([(0, 2 * count)] if capture_x else []),
        ),
        **boundary("x"),
    )


@pytest.mark.parametrize(
    ("kinds", "capture_x", "possible"),
    [
        (("in_place",), False, False),
        (("in_place", "blend"), False, True),
        (("in_place",), True, True),
        (("identity", "blend"), True, False),
    ],
)
def test_a_consumer_that_changes_what_others_need(kinds: tuple[str, ...], capture_x: bool, possible: bool) -> None:
    outcome, materials, _ = outcome_of(sharing_graph(*kinds, capture_x=capture_x))
    assert [(due.kind, due.certain) for due in outcome.dues] == [("changed", False)] * possible
    x = materials.given_leaves["x"][0]
    for number, kind in enumerate(kinds, start=1):
        assert equal(outcome.captured_outputs[str(number)], x + 1 if kind == "in_place" else x)
    if capture_x:
        assert equal(outcome.captured_inputs["x"].args[0], x)


def test_a_change_behind_a_value_that_is_the_same_object() -> None:
    graph = Graph(
        targets=(EXTERNAL, Target("function", "f", "identity"), Target("function", "g", "in_place")),
        sources=(Source(0, "input", "x"), Source(1), Source(2)),
        destinations=(Destination(1), Destination(2), Destination(0, "output", "g"), Destination(0, "output", "f")),
        stitches=((0, 0), (1, 1), (2, 2)),
        **boundary("x"),
    )
    assert outcome_of(graph)[0].dues == []
    shared = Graph(**{**vars(graph), "stitches": (*graph.stitches, (0, 3))})
    assert [due.certain for due in outcome_of(shared)[0].dues] == [False]


def test_a_function_that_is_given_one_object_twice_sees_its_own_change_in_both() -> None:
    outcome, materials, _ = outcome_of(function_graph("in_place", ((0, 0), (0, 1)), None, "last_only"))
    assert outcome.dues == []
    assert equal(outcome.captured_outputs["out"], materials.given_leaves["x"][0] + 1)


def test_names_that_are_not_the_graphs() -> None:
    for withheld, extra, ignore_extra, due in (
        ((), ("z",), False, True),
        ((), ("z",), True, False),
        (("y",), ("z",), True, True),
    ):
        graph = function_graph(
            "blend", ((0, 0), (1, 0)), None, withheld=withheld, extra=extra, ignore_extra=ignore_extra
        )
        outcome, _, _ = outcome_of(graph)
        assert [one.kind for one in outcome.dues] == ["overrides"] * due
        assert (outcome.trace == []) == due


def test_gradients_reach_what_was_given_and_every_parameter_on_the_way() -> None:
    end = Destination(1, "output", "blocks.0")
    outcome, materials, x = outcome_of(module_graph("stack", [Source(1, "output", "")], ("tensor", end)))
    outcome.captured_outputs["0"].sum().backward()
    stack: Any = materials.models[0]
    assert materials.given_leaves["o0"][0].grad is not None
    assert stack.head.weight.grad is not None
    assert stack.blocks[0].norm.weight.grad is None
    assert x.grad is None
