"""Random graphs mean what the naive evaluator says: values, objects, gradients, errors; and runs leave nothing behind.

`WEAVE_EXAMPLES=2000` looks longer. A failing graph is printed twice: as Python that rebuilds it, and as its stitches.
"""

from __future__ import annotations

import copy
import gc
import os
import pickle
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, event, given, note, settings
from hypothesis import strategies as st

import weave

from .agreement import disagreement, gradients, gradients_differ, origins
from .description import EXTERNAL, Destination, Graph, Materials, Source, Target
from .features import features, happenings
from .models import MODELS
from .naive import evaluate
from .stitching import needle_of, result_of, state_of, stitched_of
from .strategy import anatomy, graphs, inside
from .vocabulary import PLAIN_OUTPUT_REDUCERS, RAISED, REQUIRING_OUTPUT_REDUCERS, tensors

EXAMPLES = int(os.environ.get("WEAVE_EXAMPLES", "150"))
UNHURRIED = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
# Not `Phase.explain`: it runs a failing graph many times over to name lines of torch.
PHASES = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]
thorough = settings(max_examples=EXAMPLES, deadline=None, phases=PHASES, suppress_health_check=UNHURRIED)
brief = settings(thorough, max_examples=max(EXAMPLES // 3, 1))


@thorough
@given(graphs())
def test_a_run_gives_what_the_graph_means(graph: Graph) -> None:
    note(graph.script())
    materials = Materials(graph)
    outcome, evaluation = evaluate(graph, materials)
    for feature in sorted(features(graph) | happenings(outcome)):
        event(feature)
    expected = [outcome.captured_inputs, outcome.captured_outputs]
    expected_origins = origins(expected, evaluation.given, materials)
    expected_gradients = gradients(expected, materials)

    stitched = stitched_of(graph, materials)
    before = state_of(materials.modules())
    result = result_of(stitched, materials)

    assert disagreement(result, outcome, graph) is None
    assert state_of(materials.modules()) == before
    assert torch.is_grad_enabled()
    if result.error is None:
        assert sorted(result.trace) == sorted(outcome.trace)
        captured = [result.output.captured_inputs, result.output.captured_outputs]
        if not graph.changes_in_place():
            assert origins(captured, result.given, materials) == expected_origins
        assert gradients_differ(gradients(captured, materials), expected_gradients, outcome) is None


@contextmanager
def no_collection() -> Iterator[None]:
    """Nothing goes but what nobody refers to, cycles included."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@brief
@given(graphs())
def test_a_run_holds_nothing_when_it_is_over(graph: Graph) -> None:
    note(graph.script())
    materials = Materials(graph)
    stitched = stitched_of(graph, materials)
    kept = {id(tensor) for tensor in tensors([*materials.constants.values(), *materials.parameters.values()])}
    with no_collection():
        result: Any = result_of(stitched, materials)
        passed = [tensor for tensor, _ in result.given.places]
        if result.error is None:
            captured = [result.output.captured_inputs, result.output.captured_outputs]
            passed += [tensor for tensor in tensors(captured) if id(tensor) not in kept]
            del captured
        alive = [weakref.ref(tensor) for tensor in passed]
        del result, passed
        RAISED.clear()
        assert [one() for one in alive if one() is not None] == []


@brief
@given(graphs())
def test_runs_repeat_and_copies_run_alike(graph: Graph) -> None:
    note(graph.script())
    materials = Materials(graph)
    outcome, _ = evaluate(graph, materials)
    stitched = stitched_of(graph, materials)
    copied = copy.deepcopy(stitched)
    unpickled = pickle.loads(pickle.dumps(stitched))
    originals = {id(tensor) for tensor in stitched.state_dict(keep_vars=True).values()}
    for another in (copied, unpickled):
        assert list(another.state_dict()) == list(stitched.state_dict())
        assert not originals & {id(tensor) for tensor in another.state_dict(keep_vars=True).values()}
    for one in (stitched, stitched, copied, unpickled, copy.deepcopy(stitched)):
        assert disagreement(result_of(one, materials), outcome, graph) is None


@brief
@given(graphs(), st.data())
def test_only_the_order_of_the_stitches_of_one_port_matters(graph: Graph, data: st.DataObject) -> None:
    materials = Materials(graph)
    outcome, _ = evaluate(graph, materials)

    def port(stitch: tuple[int, int]) -> tuple[int, str]:
        end = graph.destinations[stitch[1]]
        return end.target, end.kind

    # Which port comes at which place is shuffled; the stitches of each port take its places in their own order.
    places = data.draw(st.permutations([port(stitch) for stitch in graph.stitches]))
    waiting = {key: [stitch for stitch in graph.stitches if port(stitch) == key] for key in places}
    shuffled = replace(graph, stitches=tuple(waiting[key].pop(0) for key in places))
    note(shuffled.script())
    assert disagreement(result_of(stitched_of(shuffled, materials), materials), outcome, shuffled) is None


@st.composite
def meetings(draw: st.DrawFn) -> tuple[Graph, bool]:
    """An overridden output next to another port of the same module, and whether the two contradict each other."""
    model = draw(st.sampled_from(sorted(MODELS)))
    shape = anatomy((model,), False)[0]
    skipped = draw(st.sampled_from(sorted(shape.same)))
    # A part that also lives elsewhere is not only inside: whether it is reached is for the run to find out.
    below = [name for name in shape.same if all(inside(one, shape.same[skipped]) for one in shape.same[name])]
    end = Destination(
        target=1,
        kind="output",
        port=skipped,
        call=draw(st.sampled_from([None, None, 0])),
        reducer=draw(st.sampled_from([None, *PLAIN_OUTPUT_REDUCERS, *REQUIRING_OUTPUT_REDUCERS])),
    )
    other, kind, captured = draw(
        st.one_of(
            st.just((skipped, "input", draw(st.booleans()))),
            *[st.just((skipped, "output", True))],
            *[st.tuples(st.sampled_from(below), st.sampled_from(["input", "output"]), st.booleans())] * bool(below),
        )
    )
    never_run = end.call is None and end.reducer not in REQUIRING_OUTPUT_REDUCERS
    contradict = never_run and (other != skipped or (kind == "input" and not captured))
    further = Source(1, kind, other) if captured else Source(0, "input", "x")
    graph = Graph(
        targets=(Target("external"), Target("module", "model", 0)),
        models=(model,),
        sources=(Source(0, "output", "u"), further),
        destinations=(end, Destination(0, kind, "r") if captured else Destination(1, kind, other)),
        stitches=draw(st.sampled_from([((0, 0), (1, 1)), ((1, 1), (0, 0))])),
    )
    return graph, contradict


@brief
@given(meetings())
def test_the_knot_refuses_contradictions_and_nothing_else(meeting: tuple[Graph, bool]) -> None:
    graph, contradict = meeting
    note(graph.script())
    event(f"contradict={contradict}")
    needle = needle_of(graph, Materials(graph))
    if not contradict:
        needle.knot()
        return
    with pytest.raises(weave.ContradictionException) as refused:
        needle.knot()
    ends: list[Source | Destination] = [*graph.sources, *graph.destinations]
    named = {end.port for end in ends if end.target != EXTERNAL}
    assert all(name in str(refused.value) for name in {"model", *named})
