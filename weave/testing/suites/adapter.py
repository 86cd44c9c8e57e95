"""`AdapterSuite`: what a registered adapter must do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from weave.graph.args import InputArgs
from weave.graph.targets import FunctionTarget, ModuleTarget
from weave.spi.records import AdapterDef
from weave.stitched import StitchedModule
from weave.testing.suites.base import PluginSuite, at_once, copied, drive, expect, in_the_plan, pickled
from weave.testing.suites.graphs import EXTERNAL, Asks, Repeats, Stitch, packed, passed, tie
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
Graph = tuple[str, StitchedModule, Any]


class AdapterExample(NamedTuple):
    """A value, and what it is mapped to. An `InputArgs` is what an input port has, anything else what an output has."""

    value: Any
    result: Any


class AdapterSuite(PluginSuite):
    """Tests of an adapter that a plugin registers.

        class TestHalve(AdapterSuite):
            plugin = my_plugin
            name = "halve"
            kind = "output"
            examples = [(4.0, 2.0)]

    Attributes:
        name: the adapter's.
        kind: of port: "input", "output", or `None` for both.
        examples: `AdapterExample`s, or tuples `(value, result)`.
        each_call: whether it runs at each call of a port with `call="all"`.
        differentiable: whether gradients flow; where the examples have no floating-point tensors, it does not matter.
    """

    name: str
    kind: Literal["input", "output"] | None = None
    examples: Sequence[Any] = ()
    each_call: bool = False
    differentiable: bool = True

    def parameters(self, test: str) -> dict[str, list[Any]]:
        """The examples."""
        examples = self._examples
        if test == "test_gradients":
            examples = [e for e in examples if floats(e.value) and floats(e.result)]
        return {"example": examples}

    def skipped(self, test: str) -> str:
        """What the subclass says."""
        if test == "test_gradients" and not self.differentiable:
            return "differentiable = False"
        return "each_call = False" if test == "test_each_call" and not self.each_call else ""

    @property
    def definition(self) -> AdapterDef:
        """The record, as a knot finds it."""
        return self.registry.adapter(self.name, self.kind or "output")

    # --- checks ---

    def test_is_registered(self) -> None:
        """A knot finds it by its name, for these kinds of port, and knows whether it runs at each call."""
        definition = self.definition
        expect(callable(definition.fn), f"fn of {definition} is not callable")
        for what in ("kind", "each_call"):
            said, due = getattr(definition, what), getattr(self, what)
            expect(said == due, f"the record of {self.name!r} has {what}={said!r}, the suite {what} = {due!r}")

    def test_there_are_examples(self) -> None:
        """For each kind of port that it is for."""
        examples = self._examples
        calls = [e for e in examples if isinstance(e.value, InputArgs)]
        if self.kind != "output":
            expect(
                calls, f"{self.name!r} is for inputs: give an example of an InputArgs, which is what is adapted there"
            )
        if self.kind != "input":
            expect(len(calls) < len(examples), f"{self.name!r} is for outputs: give an example that is no InputArgs")
        for e in calls:
            expect(isinstance(e.result, InputArgs), f"at an input the result must be an InputArgs, which {e} has not")

    def test_adapts(self, example: Any) -> None:
        """`fn(value)` gives the result."""
        self.is_same(self.definition.fn(fresh(example.value)), example.result, f"{self.name!r}, called by hand")

    def test_changes_nothing_in_place(self, example: Any) -> None:
        """The value belongs to others, who may still need it."""
        value = fresh(example.value)
        before = versions(value)
        self.definition.fn(value)
        expect(same(value, example.value), f"{self.name!r} changed its value in place: {example.value!r} is {value!r}")
        expect(versions(value) == before, f"{self.name!r} changed a tensor in place")

    def test_keeps_no_state(self, example: Any) -> None:
        """Called again, also after others, it does the same."""
        for _ in range(2):
            for other in (example, *self._examples):
                got = self.definition.fn(fresh(other.value))
                self.is_same(got, other.result, f"{self.name!r}, called once more")

    def test_in_a_graph(self, driver: str, example: Any) -> None:
        """By its name: at sources and destinations, of the caller, functions and submodules, called and run."""
        for where, stitched, due in self._graphs(fresh(example)):
            got = _got(drive(driver, stitched, *_given(example.value)))
            self.is_same(got, due, f"{self.name!r} at {where}")

    def test_each_call(self, driver: str) -> None:
        """With `call="all"` it is given each call's value, as it happens; the port has a list of its results."""
        for kind in ("input", "output"):
            examples = [e for e in self._examples if isinstance(e.value, InputArgs) == (kind == "input")]
            if not examples:
                continue
            calls = [e.value if kind == "input" else InputArgs(e.value) for e in examples]
            module = ModuleTarget("module", Repeats([fresh(call) for call in calls]))
            port = module.input if kind == "input" else module.output
            stitches: list[Stitch] = [(port("inner", adapter=self.name, call="all"), EXTERNAL.output("got"))]
            got = drive(driver, tie(stitches, plugins=self.plugins), {}, {})["got"]
            self.is_same(got, [e.result for e in examples], f'{self.name!r} at an {kind} with call="all"')

    def test_many_runs_at_once(self, backend: str) -> None:
        """Runs under way at once, with different values, don't meet."""
        graphs = [(e, *graph) for e in self._examples for graph in self._graphs(fresh(e))]
        wrong: list[str] = []

        async def one(example: Any, where: str, stitched: StitchedModule, due: Any) -> None:
            got = _got(await stitched.run(*_given(example.value)))
            if not self.same(got, due):
                wrong.append(f"at {where}: got {got!r}, expected {due!r}")

        at_once(backend, RUNS, one, graphs)
        expect(not wrong, f"{self.name!r} with {RUNS} runs at once: {wrong[:1]}")

    def test_gradients(self, driver: str, example: Any) -> None:
        """Gradients of the result reach the value, and are those that differences say. In a graph they are the same."""
        value = with_gradients(example.value)
        function: Callable[[Any], Any] = self.definition.fn
        found = gradients(function(value), value)
        expect(found is not None, f"the result of {self.name!r} has no gradient, though its value does")
        assert found is not None
        wrong = list(wrong_gradients(function, value, found))
        expect(not wrong, f"{self.name!r} has wrong gradients: {'; '.join(wrong)}")
        for where, stitched, _ in self._graphs(AdapterExample(value, example.result)):
            given = {"v": value}
            again = gradients(_got(drive(driver, stitched, given, given)), value)
            expect(again is not None and same(again, found), f"{self.name!r} at {where}: other gradients")

    def test_pickles(self, example: Any) -> None:
        """A knot that has it by name can be sent to another process, and copied."""
        for copy in (pickled, copied):
            for where, stitched, due in self._graphs(fresh(example)):
                got = _got(copy(stitched)(*_given(example.value)))
                self.is_same(got, due, f"{self.name!r} at {where}, {copy.__name__}")

    def test_is_named_in_the_plan(self, example: Any) -> None:
        """A plan's dict form has it under its name."""
        for where, stitched, _ in self._graphs(fresh(example)):
            said = in_the_plan(stitched, "adapter")
            expect(said == [self.name], f"{self.name!r} at {where}: the plan says {said}")

    # --- how ---

    @property
    def _examples(self) -> list[AdapterExample]:
        return [AdapterExample(*example) for example in self.examples]

    def _graphs(self, example: AdapterExample) -> Iterator[Graph]:
        value, due = example
        if isinstance(value, InputArgs):
            if self.kind != "output":
                yield from self._at_inputs(value, due)
            return
        if self.kind != "input":
            yield from self._at_outputs(value, due)
        if self.kind != "output":
            # From an output to an input: what is adapted is no InputArgs yet.
            function = FunctionTarget("function", packed)
            yield self._graph(
                "a function's input, from an output",
                due if isinstance(due, InputArgs) else InputArgs(due),
                (EXTERNAL.output("v"), function.input(adapter=self.name)),
                (function.output(), EXTERNAL.output("got")),
            )

    def _at_inputs(self, value: InputArgs, due: Any) -> Iterator[Graph]:
        name = self.name
        function = FunctionTarget("function", packed)
        calls, called = (ModuleTarget("module", Asks(call, None)) for call in (value, InputArgs()))
        yield self._graph("the caller's input", due, (EXTERNAL.input("v", adapter=name), EXTERNAL.input("got")))
        yield self._graph(
            "a function's input",
            due,
            (EXTERNAL.input("v"), function.input(adapter=name)),
            (function.output(), EXTERNAL.output("got")),
        )
        yield self._graph(
            "a captured input",
            due,
            (calls.input("inner", adapter=name), EXTERNAL.input("got")),
        )
        yield self._graph(
            "a replaced input",
            due,
            (EXTERNAL.input("v"), called.input("inner", adapter=name)),
            (called.input("inner"), EXTERNAL.input("got")),
        )

    def _at_outputs(self, value: Any, due: Any) -> Iterator[Graph]:
        name = self.name
        function = FunctionTarget("function", passed)
        answers, answered = (ModuleTarget("module", Asks(InputArgs(), answer)) for answer in (value, None))
        yield self._graph("the caller's output", due, (EXTERNAL.output("v"), EXTERNAL.output("got", adapter=name)))
        yield self._graph(
            "a function's output",
            due,
            (EXTERNAL.output("v"), function.input()),
            (function.output(adapter=name), EXTERNAL.output("got")),
        )
        yield self._graph(
            "a captured output",
            due,
            (answers.output("inner", adapter=name), EXTERNAL.output("got")),
        )
        yield self._graph(
            "a replaced output",
            due,
            (EXTERNAL.output("v"), answered.output("inner", adapter=name)),
            (answered.output("inner"), EXTERNAL.output("got")),
        )

    def _graph(self, where: str, due: Any, *stitches: Stitch) -> Graph:
        return where, tie(stitches, plugins=self.plugins, ignore_extra_overrides=True), due


def _given(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the graphs take, as an input and as an output; each ignores what it does not take."""
    given = fresh(value)
    return {"v": given}, {"v": given}


def _got(out: Any) -> Any:
    return out["got"]
