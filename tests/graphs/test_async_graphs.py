"""Random graphs, with functions of every kind, run on a loop: they mean what they mean in a synchronous call.

On asyncio, on trio and on asyncio with uvloop; with one computing thread and with as many as there are cores. What may
differ from a synchronous call is the order, hence which of several failures is met first, or that some are met at once.
`WEAVE_EXAMPLES=2000` looks longer.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import pytest
import torch
import trio
from anyio.lowlevel import checkpoint
from hypothesis import assume, event, given, note, settings
from hypothesis import strategies as st

from weave import ChangedInPlaceException

from .agreement import difference, disagreement, gradients, gradients_differ, is_due, origins
from .description import Graph, Materials
from .naive import Due, Evaluation, evaluate
from .stitching import Result, awaited_result_of, result_of, state_of, stitched_of
from .strategy import graphs
from .test_random_graphs import EXAMPLES, thorough
from .vocabulary import defused
from .ways import SYNCHRONOUS, WAYS

UVLOOP = pytest.param(
    "uvloop", marks=pytest.mark.skipif(sys.platform == "win32", reason="uvloop is not made for Windows")
)
on_each_loop = pytest.mark.parametrize("loop", ["asyncio", "trio", UVLOOP])
some = settings(thorough, max_examples=max(EXAMPLES // 4, 1))
few = settings(thorough, max_examples=max(EXAMPLES // 15, 1))
fifty_runs_each = settings(thorough, max_examples=max(EXAMPLES // 50, 1))


def running_loop() -> str:
    try:
        return type(asyncio.get_running_loop()).__module__.split(".")[0]
    except RuntimeError:
        return "trio" if trio.lowlevel.in_trio_run() else "none"


def run_on(loop: str, function: Callable[[], Awaitable[None]]) -> None:
    """`anyio.run`, on the very loop that is asked for."""

    async def checked() -> None:
        assert running_loop() == loop
        await function()

    options = {"use_uvloop": loop == "uvloop"} if loop != "trio" else {}
    anyio.run(checked, backend="trio" if loop == "trio" else "asyncio", backend_options=options)


class Meaning:
    """What a graph means, by the evaluator, and whether a result is that."""

    def __init__(self, graph: Graph, materials: Materials, factor: float = 1.0) -> None:
        self.graph, self.materials = graph, materials
        evaluation: Evaluation
        self.outcome, evaluation = evaluate(graph, materials, factor)
        captured = [self.outcome.captured_inputs, self.outcome.captured_outputs]
        self.origins = origins(captured, evaluation.given, materials)
        self.gradients = gradients(captured, materials)

    def denied_by(self, result: Result, *, on_a_loop: bool = True, alone: bool = True, workers: int = 2) -> str | None:
        """What of a result is not as the evaluator says: error, values, what ran, objects, gradients."""
        graph, outcome = self.graph, self.outcome
        side_by_side = on_a_loop and (workers > 1 or graph.awaits)
        if side_by_side and isinstance(result.error, ChangedInPlaceException) and graph.changes_in_place():
            return None  # who else computes with the tensor just then is a matter of luck
        found = disagreement(result, outcome, graph, on_a_loop=on_a_loop)
        if found is not None or result.error is not None:
            too_much = Counter(result.trace) - Counter(outcome.trace_on_a_loop if on_a_loop else outcome.trace)
            if alone and too_much:
                return found or f"ran {too_much}, which depends on what failed"
            return found
        if alone and sorted(result.trace) != sorted(outcome.trace):
            return f"ran {result.trace} instead of {outcome.trace}"
        captured = [result.output.captured_inputs, result.output.captured_outputs]
        if not graph.changes_in_place():
            which = origins(captured, result.given, self.materials)
            if which != self.origins:
                return f"the objects {which} instead of {self.origins}"
        return gradients_differ(gradients(captured, self.materials), self.gradients, outcome)

    def of_a_call(self, result: Result) -> str | None:
        """`denied_by` for a synchronous call, which drives a loop of its own where something is `async def`."""
        if self.graph.refuses_a_synchronous_call:
            dues = [Due("refused", words=("to await",)), *self.outcome.dues]
            due = any(is_due(result.error, one, self.graph) for one in dues)
            return None if due else f"raised {result.error!r}, due: {dues}"
        return self.denied_by(result, on_a_loop=self.graph.awaits)


@on_each_loop
@some
@given(graph=graphs(ways=WAYS), grad=st.booleans())
def test_a_run_on_a_loop_gives_what_the_graph_means(loop: str, graph: Graph, grad: bool) -> None:
    note(graph.script())
    materials = Materials(graph)
    with torch.set_grad_enabled(grad):
        meaning = Meaning(graph, materials)
        stitched = stitched_of(graph, materials)
        before = state_of(materials.modules())
        called = result_of(stitched, materials)
        assert meaning.of_a_call(called) is None

        async def runs() -> None:
            assert meaning.denied_by(await awaited_result_of(stitched, materials)) is None
            assert state_of(materials.modules()) == before
            alone = await awaited_result_of(stitched.with_options(max_workers=1), materials)
            assert meaning.denied_by(alone, workers=1) is None
            if graph.has_an_order:
                assert in_the_order_of(called, alone) is None
            if graph.awaits:
                assert meaning.of_a_call(result_of(stitched, materials)) is None  # from within a running loop

        run_on(loop, runs)
        assert state_of(materials.modules()) == before
        assert torch.is_grad_enabled() is grad


def in_the_order_of(called: Result, run: Result) -> str | None:
    """Whether a run with one computing thread did what a synchronous call did, in that order, to the same end."""
    if run.trace != called.trace:
        return f"ran {run.trace} instead of {called.trace}"
    if (type(run.error), str(run.error)) != (type(called.error), str(called.error)):
        return f"raised {run.error!r} instead of {called.error!r}"
    return None


@on_each_loop
@few
@given(graph=graphs(ways=SYNCHRONOUS, noise=True), seed=st.integers(0, 99))
def test_one_computing_thread_draws_the_random_numbers_of_a_synchronous_call(
    loop: str, graph: Graph, seed: int
) -> None:
    note(graph.script())
    materials = Materials(graph)
    stitched = stitched_of(graph, materials)
    torch.manual_seed(seed)
    called = result_of(stitched, materials)
    drawn = torch.get_rng_state()

    async def runs() -> None:
        torch.manual_seed(seed)
        alone = await awaited_result_of(stitched.with_options(max_workers=1), materials)
        assert in_the_order_of(called, alone) is None
        if alone.error is None:
            for kind in ("captured_inputs", "captured_outputs"):
                assert difference(getattr(alone.output, kind), getattr(called.output, kind), kind) is None
        assert torch.equal(torch.get_rng_state(), drawn)

    run_on(loop, runs)


@on_each_loop
@few
@given(graph=graphs(ways=WAYS, surely="raise"))
def test_a_run_that_failed_leaves_nothing_to_the_next(loop: str, graph: Graph) -> None:
    note(graph.script())
    materials = Materials(graph)
    meaning = Meaning(graph, materials)
    event(f"fails: {meaning.outcome.fails}")
    with defused():
        without = Meaning(graph, materials)
    stitched = stitched_of(graph, materials)
    before = state_of(materials.modules())

    async def runs() -> None:
        for one, workers in (stitched, 2), (stitched.with_options(max_workers=1), 1):
            assert meaning.denied_by(await awaited_result_of(one, materials), workers=workers) is None
            with defused():
                assert without.denied_by(await awaited_result_of(one, materials), workers=workers) is None
            assert meaning.denied_by(await awaited_result_of(one, materials), workers=workers) is None
            assert state_of(materials.modules()) == before

    run_on(loop, runs)


@on_each_loop
@few
@given(graph=graphs(ways=WAYS), patience=st.lists(st.integers(0, 30), min_size=1, max_size=4))
def test_a_cancelled_run_leaves_nothing_to_the_next(loop: str, graph: Graph, patience: list[int]) -> None:
    note(graph.script())
    materials = Materials(graph)
    meaning = Meaning(graph, materials)
    stitched = stitched_of(graph, materials)
    before = state_of(materials.modules())

    async def runs() -> None:
        for checkpoints in patience:
            ended: list[Result] = []

            async def one(ended: list[Result] = ended) -> None:
                ended.append(await awaited_result_of(stitched, materials))

            async with anyio.create_task_group() as group:
                group.start_soon(one)
                for _ in range(checkpoints):
                    await checkpoint()
                group.cancel_scope.cancel()
            assert state_of(materials.modules()) == before
            assert all(meaning.denied_by(result) is None for result in ended), "too late to be cancelled"
            assert meaning.denied_by(await awaited_result_of(stitched, materials)) is None

    run_on(loop, runs)


async def all_at_once(stitched: Any, meanings: list[Meaning]) -> list[tuple[Meaning, Result]]:
    """As many runs in one loop as there are meanings, each with inputs of its own: the place in the list, plus one."""

    async def one(place: int, meaning: Meaning) -> None:
        results.append((meaning, await awaited_result_of(stitched, meaning.materials, place + 1.0, alone=False)))

    results: list[tuple[Meaning, Result]] = []
    async with anyio.create_task_group() as group:
        for place, meaning in enumerate(meanings):
            group.start_soon(one, place, meaning)
    return results


@on_each_loop
@fifty_runs_each
@given(graph=graphs(ways=WAYS))
def test_many_runs_at_once_in_one_loop(loop: str, graph: Graph) -> None:
    # What one run changes in place may be another's: a constant.
    assume(not graph.changes_in_place())
    note(graph.script())
    materials = Materials(graph)
    meanings = [Meaning(graph, materials, place + 1.0) for place in range(50)]
    stitched = stitched_of(graph, materials)
    before = state_of(materials.modules())
    results: list[tuple[Meaning, Result]] = []

    async def runs() -> None:
        results.extend(await all_at_once(stitched, meanings))

    run_on(loop, runs)
    assert len(results) == len(meanings)
    assert [meaning.denied_by(result, alone=False) for meaning, result in results] == [None] * len(results)
    assert state_of(materials.modules()) == before


@few
@given(graph=graphs(ways=WAYS))
def test_loops_of_several_threads_run_one_graph(graph: Graph) -> None:
    assume(not graph.changes_in_place())
    note(graph.script())
    materials = Materials(graph)
    meanings = [Meaning(graph, materials, place + 1.0) for place in range(5)]
    stitched = stitched_of(graph, materials)
    before = state_of(materials.modules())
    loops = ("asyncio", "trio")
    both = threading.Barrier(len(loops))
    results: list[tuple[Meaning, Result]] = []

    def in_a_thread(loop: str) -> None:
        async def runs() -> None:
            both.wait(60)
            for _ in range(3):
                results.extend(await all_at_once(stitched, meanings))

        run_on(loop, runs)

    with ThreadPoolExecutor(len(loops)) as threads:
        list(threads.map(in_a_thread, loops))
    # Here, where nothing goes on any more: gradients are written to the leaves, which all the runs share.
    assert len(results) == 2 * 3 * len(meanings)
    assert [meaning.denied_by(result, alone=False) for meaning, result in results] == [None] * len(results)
    assert state_of(materials.modules()) == before
