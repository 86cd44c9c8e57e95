"""`ReducerSuite`: what a registered reducer must do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from weave.graph.args import InputArgs
from weave.graph.targets import FunctionTarget, ModuleTarget
from weave.spi.records import ReducerDef
from weave.stitched import StitchedModule
from weave.testing.suites.base import PluginSuite, at_once, copied, drive, expect, in_the_plan, pickled
from weave.testing.suites.graphs import EXTERNAL, Asks, Stitch, packed, tie
from weave.testing.suites.values import (
    floats,
    fresh,
    gradients,
    same,
    versions,
    with_gradients,
    wrong_gradients,
)

RUNS = 20


class ReducerExample(NamedTuple):
    """Values that stitches bring to one port, in order; what they are reduced to; what was there before.

    For a reducer of inputs, what is no `InputArgs` stands for one with that as its only positional.
    """

    values: Sequence[Any]
    result: Any
    original: Any = None


class ReducerSuite(PluginSuite):
    """Tests of a reducer that a plugin registers.

        class TestLongest(ReducerSuite):
            plugin = my_plugin
            name = "longest"
            kind = "output"
            examples = [([[1], [1, 2]], [1, 2])]

    Attributes:
        name: the reducer's.
        kind: of port: "input" or "output".
        examples: `ReducerExample`s, or tuples `(values, result)` or `(values, result, original)`.
        passes_one_through: whether a single value comes out as it went in.
        differentiable: whether gradients flow; where the examples have no floating-point tensors, it does not matter.
    """

    name: str
    kind: Literal["input", "output"] = "output"
    examples: Sequence[Any] = ()
    passes_one_through: bool = True
    differentiable: bool = True

    def parameters(self, test: str) -> dict[str, list[Any]]:
        """The examples."""
        examples = self._examples
        if test == "test_gradients":
            examples = [e for e in examples if floats(list(e.values)) and floats(e.result)]
        return {"example": examples}

    def skipped(self, test: str) -> str:
        """Gradients, where the subclass says so."""
        return "differentiable = False" if test == "test_gradients" and not self.differentiable else ""

    @property
    def definition(self) -> ReducerDef:
        """The record, as a knot finds it."""
        return self.registry.reducer(self.name, self.kind)

    # --- checks ---

    def test_is_registered(self) -> None:
        """A knot finds it by its name, for its kind of port."""
        definition = self.definition
        expect(callable(definition.fn), f"fn of {definition} is not callable")
        expect(
            self.kind == "output" or not definition.requires_original_output,
            f"{self.name!r} is for inputs: requires_original_output means something at outputs only; the original call is "
            "always given",
        )

    def test_there_are_examples(self) -> None:
        """With several values at a port; and with an original where the reducer wants one."""
        examples = self._examples
        expect(any(len(e.values) > 1 for e in examples), "give `examples`, at least one of them with several values")
        if self.definition.requires_original_output:
            expect(
                all(e.original is not None for e in examples),
                f"{self.name!r} requires the original: give it as the third item of every example",
            )

    def test_reduces(self, example: Any) -> None:
        """`fn(acc, value, original, index, all_values)`, called once for each value, gives the result."""
        self.is_same(self._fold(fresh(example)), example.result, f"{self.name!r}, called by hand")

    def test_one_value(self, example: Any) -> None:
        """A single value passes through. (Or an example says what it becomes: `passes_one_through = False`.)"""
        if self.passes_one_through:
            for value in example.values:
                alone = example._replace(values=[value])
                self.is_same(self._fold(fresh(alone)), value, f"{self.name!r} with one value")
        else:
            expect(
                any(len(e.values) == 1 for e in self._examples),
                "passes_one_through = False: give an example with one value",
            )

    def test_changes_nothing_in_place(self, example: Any) -> None:
        """Values, originals and `all_values` belong to others, who may still need them. `acc` was returned, and is one."""
        used = fresh(example)
        before = versions([used.values, used.original])
        every = self._fold(used, returns="all_values")
        expect(
            len(every) == len(used.values) and all(map(_is, every, used.values)),
            f"{self.name!r} changed the list `all_values`",
        )
        expect(
            same(list(used.values), list(example.values)) and same(used.original, example.original),
            f"{self.name!r} changed a value in place: it got {example!r} and left {used!r}",
        )
        expect(versions([used.values, used.original]) == before, f"{self.name!r} changed a tensor in place")

    def test_keeps_no_state(self, example: Any) -> None:
        """Two reductions, step by step in turn: whatever belongs to one is in `acc`."""
        steps = [self._steps(fresh(example)), self._steps(fresh(example))]
        got: list[Any] = [None, None]
        for _ in example.values:
            got = [next(step) for step in steps]
        for value in got:
            self.is_same(value, example.result, f"{self.name!r}, two reductions at a time")

    def test_in_a_graph(self, driver: str, example: Any) -> None:
        """By its name: at the caller's port, a function's and a submodule's, under a synchronous call and `run`."""
        for where, stitched, read in self._graphs(example):
            self.is_same(
                read(drive(driver, stitched, *self._given(example))), example.result, f"{self.name!r} at {where}"
            )

    def test_many_runs_at_once(self, backend: str) -> None:
        """Runs under way at once, with different values, don't meet."""
        graphs = [(e, *graph) for e in self._examples for graph in self._graphs(e)]
        wrong: list[str] = []

        async def one(example: Any, where: str, stitched: StitchedModule, read: Callable[[Any], Any]) -> None:
            got = read(await stitched.run(*self._given(example)))
            if not self.same(got, example.result):
                wrong.append(f"at {where}: got {got!r}, expected {example.result!r}")

        at_once(backend, RUNS, one, graphs)
        expect(not wrong, f"{self.name!r} with {RUNS} runs at once: {wrong[:1]}")

    def test_gradients(self, driver: str, example: Any) -> None:
        """Gradients of the result reach the values, and are those that differences say. In a graph they are the same."""
        values = with_gradients(list(example.values))

        def by_hand(values: Any) -> Any:
            return self._fold(fresh_original(example, values))

        found = gradients(by_hand(values), values)
        expect(found is not None, f"the result of {self.name!r} has no gradient, though its values do")
        assert found is not None
        wrong = list(wrong_gradients(by_hand, values, found))
        expect(not wrong, f"{self.name!r} has wrong gradients: {'; '.join(wrong)}")
        for where, stitched, read in self._graphs(example):
            again = gradients(read(drive(driver, stitched, *self._given(example, values))), values)
            expect(
                again is not None and all(map(_same_or_none, again, found)),
                f"{self.name!r} at {where}: other gradients",
            )

    def test_pickles(self, example: Any) -> None:
        """A knot that has it by name can be sent to another process, and copied."""
        for copy in (pickled, copied):
            for where, stitched, read in self._graphs(example):
                got = read(copy(stitched)(*self._given(example)))
                self.is_same(got, example.result, f"{self.name!r} at {where}, {copy.__name__}")

    def test_is_named_in_the_plan(self, example: Any) -> None:
        """A plan's dict form has it under its name."""
        for where, stitched, _ in self._graphs(example):
            said = in_the_plan(stitched, "reducer")
            expect(said == [self.name] * len(example.values), f"{self.name!r} at {where}: the plan says {said}")

    # --- how ---

    @property
    def _examples(self) -> list[ReducerExample]:
        return [self._proper(example) for example in self.examples]

    def _proper(self, example: Any) -> ReducerExample:
        values, result, original = ReducerExample(*example)
        if self.kind == "input":
            original = InputArgs() if original is None else _call(original)
            values, result = [_call(value) for value in values], _call(result)
        return ReducerExample(list(values), result, original)

    def _steps(self, example: ReducerExample, every: list[Any] | None = None) -> Iterator[Any]:
        definition = self.definition
        every = list(example.values) if every is None else every
        looks = self.kind == "input" or definition.requires_original_output
        acc = InputArgs() if self.kind == "input" else None
        for index, value in enumerate(example.values):
            acc = definition.fn(acc, value, example.original if looks else None, index, every)
            if self.kind == "input":
                expect(
                    isinstance(acc, InputArgs), f"{self.name!r} returned a {type(acc).__name__}, at an input: InputArgs"
                )
            yield acc

    def _fold(self, example: ReducerExample, returns: str = "result") -> Any:
        every = list(example.values)
        steps = list(self._steps(example, every))
        return every if returns == "all_values" else steps[-1]

    def _given(
        self, example: ReducerExample, values: Sequence[Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        named = {f"v{index}": value for index, value in enumerate(fresh(example.values) if values is None else values)}
        return (named, {}) if self.kind == "input" else ({}, named)

    def _graphs(self, example: ReducerExample) -> Iterator[tuple[str, StitchedModule, Callable[[Any], Any]]]:
        count, name, plugins = range(len(example.values)), self.name, self.plugins
        module = ModuleTarget("module", Asks(*self._asked(example)))
        if self.kind == "input":
            sources = [EXTERNAL.input(f"v{index}") for index in count]
            stitches: list[Stitch] = [(s, module.input("inner", reducer=name)) for s in sources]
            stitches.append((module.input("inner"), EXTERNAL.input("got")))
            yield "a submodule's input", tie(stitches, plugins=plugins), _input
            if not example.original.args and not example.original.kwargs:
                function = FunctionTarget("function", packed)
                stitches = [(s, function.input(reducer=name)) for s in sources]
                stitches.append((function.output(), EXTERNAL.output("got")))
                yield "a function's input", tie(stitches, plugins=plugins), _output
                stitches = [(s, EXTERNAL.input("got", reducer=name)) for s in sources]
                yield "the caller's input", tie(stitches, plugins=plugins), _input
            return
        outs = [EXTERNAL.output(f"v{index}") for index in count]
        stitches = [(s, module.output("inner", reducer=name)) for s in outs]
        stitches.append((module.output("inner"), EXTERNAL.output("got")))
        yield "a submodule's output", tie(stitches, plugins=plugins), _output
        if not self.definition.requires_original_output:
            stitches = [(s, EXTERNAL.output("got", reducer=name)) for s in outs]
            yield "the caller's output", tie(stitches, plugins=plugins), _output

    def _asked(self, example: ReducerExample) -> tuple[InputArgs, Any]:
        original = fresh(example.original)
        return (original, None) if self.kind == "input" else (InputArgs(), original)


def fresh_original(example: ReducerExample, values: list[Any]) -> ReducerExample:
    """An example with other values, and an original that nobody else has."""
    return example._replace(values=values, original=fresh(example.original))


def _call(value: Any) -> InputArgs:
    return value if isinstance(value, InputArgs) else InputArgs(value)


def _is(one: Any, other: Any) -> bool:
    return one is other


def _same_or_none(one: Any, other: Any) -> bool:
    return (one is None) == (other is None) and (one is None or same(one, other))


def _input(out: Any) -> Any:
    return out.captured_inputs["got"]


def _output(out: Any) -> Any:
    return out.captured_outputs["got"]
