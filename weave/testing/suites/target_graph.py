"""Examples of a target type, and the graphs and runs that the checks of `TargetTypeSuite` are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from weave.errors import PluginException
from weave.graph.args import InputArgs
from weave.graph.descriptors import InputDescriptor, IODescriptor, OutputDescriptor
from weave.graph.targets import ConstantTarget, Target
from weave.spi.records import TargetType
from weave.stitched import StitchedModule, StitchedModuleOutput
from weave.testing.suites.base import PluginSuite, expect, on_loop
from weave.testing.suites.graphs import EXTERNAL, Stitch, tie
from weave.testing.suites.values import fresh

Kind = Literal["input", "output"]


@dataclass(frozen=True, kw_only=True)
class TargetExample:
    """A run of a graph with one target in it.

    Attributes:
        inputs: what is brought to its input ports, by port name (`""` where the port has none); an `InputArgs` is a
            call's arguments, anything else one positional.
        outputs: what must come at its output ports.
        captures: what must come at its input ports where they are stitched *from*, as `InputArgs`.
        replaces: what is brought to its output ports, where they can be stitched *to*.
        args: the run's positional arguments.
        kwargs: the run's keyword arguments.
        target: makes the target, where it is not the suite's own `target()`.
        raises: what the run raises, in an example of the suite's `failures`.
    """

    inputs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    captures: Mapping[str, Any] = field(default_factory=dict)
    replaces: Mapping[str, Any] = field(default_factory=dict)
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    target: Callable[[], Target] | None = None
    raises: type[BaseException] | None = None

    @property
    def shape(self) -> Any:
        """Examples of one shape can be runs of one graph."""
        inputs = [(name, isinstance(value, InputArgs)) for name, value in self.inputs.items()]
        return self.target, inputs, list(self.outputs), list(self.captures), list(self.replaces)


class TargetSuiteBase(PluginSuite):
    """What a subclass says, and how graphs are made of it. See `TargetTypeSuite`."""

    examples: Sequence[Any] = ()
    failures: Sequence[TargetExample] = ()
    refused: Sequence[tuple[Kind, str]] = ()
    lasting: TargetExample | None = None

    def target(self) -> Target:
        """A new target, ready to be stitched."""
        raise NotImplementedError(f"{type(self).__name__} needs `def target(self)`, which makes the target under test")

    def unfinished(self) -> Sequence[Any]:
        """What is open or going on just now, as far as you can tell (connections, processes). Empty between runs."""
        return ()

    def parameters(self, test: str) -> dict[str, list[Any]]:
        """The examples; those that leave by an output; those that fail."""
        leaving = [e for e in self._examples if e.outputs]
        return {
            "example": leaving if test == "test_an_error_behind_it" else self._examples,
            "failure": list(self.failures),
        }

    def skipped(self, test: str) -> str:
        """What the target type has not, or the subclass does not give."""
        if test in ("test_cancelled_midway", "test_a_siblings_failure_stops_it"):
            return "" if self.lasting else "no `lasting` example: one whose firing goes on until it is cancelled"
        if test.startswith("test_resources"):
            try:
                return "" if self.record.resources else "the target type has no resources"
            except PluginException:
                return "the target type is not registered"
        return ""

    @property
    def record(self) -> TargetType:
        """The record, as a knot finds it."""
        return self.registry.target_type(self._target(self._examples[0] if self._examples else TargetExample()))

    @property
    def _examples(self) -> list[TargetExample]:
        return [e if isinstance(e, TargetExample) else TargetExample(inputs=e[0], outputs=e[1]) for e in self.examples]

    def _target(self, example: TargetExample) -> Target:
        return self.target() if example.target is None else example.target()

    # --- graphs ---

    def port(self, target: Any, kind: Kind, name: str, **more: Any) -> IODescriptor:
        """A port, for a stitch."""
        named = target.named_inputs if kind == "input" else target.named_outputs
        made: IODescriptor = getattr(target, kind)(*([name] if named else []), **more)
        return made

    def stitches(self, example: TargetExample, target: Target, only: tuple[str, str] | None = None) -> list[Stitch]:
        """The stitches of an example; what leaves the target, or only one port of it, goes to the caller."""
        made: list[Stitch] = []
        for name, value in example.inputs.items():
            source = EXTERNAL.input if isinstance(value, InputArgs) else EXTERNAL.output
            made.append((source(f"into input {name}"), self.port(target, "input", name)))
        for name in example.replaces:
            made.append((EXTERNAL.output(f"into output {name}"), self.port(target, "output", name)))
        for name in example.outputs:
            if only in (None, ("outputs", name)):
                made.append((self.port(target, "output", name), EXTERNAL.output(f"from output {name}")))
        for name in example.captures:
            if only in (None, ("captures", name)):
                made.append((self.port(target, "input", name), EXTERNAL.input(f"from input {name}")))
        # So that there is a caller in the graph, also where the target alone has nothing to do with it.
        return [*made, (ConstantTarget("beside", 0).output(), EXTERNAL.output("beside"))]

    def knot(self, example: TargetExample, only: tuple[str, str] | None = None, **options: Any) -> StitchedModule:
        """The graph of an example, with a new target."""
        target = self._target(example)
        return tie(self.stitches(example, target, only), target, plugins=self.plugins, **options)

    def given(self, example: TargetExample) -> tuple[Any, ...]:
        """What a run of that graph is called with, beside its keywords."""
        inputs: dict[str, Any] = {}
        outputs: dict[str, Any] = {}
        for name, value in fresh(dict(example.inputs)).items():
            (inputs if isinstance(value, InputArgs) else outputs)[f"into input {name}"] = value
        for name, value in fresh(dict(example.replaces)).items():
            outputs[f"into output {name}"] = value
        return inputs, outputs, *fresh(list(example.args))

    # --- runs ---

    def drive(self, driver: str, stitched: StitchedModule, *examples: TargetExample) -> list[StitchedModuleOutput]:
        """Run a graph for one example after another, with its resources open."""
        if driver == "inline":
            self.needs_no_loop()
            with stitched:
                return [stitched(*self.given(e), **fresh(dict(e.kwargs))) for e in examples]

        async def main() -> list[StitchedModuleOutput]:
            async with stitched:
                return [await self.arun(stitched, e) for e in examples]

        return on_loop(driver, main)

    async def arun(self, stitched: StitchedModule, example: TargetExample) -> StitchedModuleOutput:
        """Run a graph once."""
        return await stitched.run(*self.given(example), **fresh(dict(example.kwargs)))

    def needs_no_loop(self) -> None:
        """Skip a synchronous check where resources are opened asynchronously: they belong to a loop."""
        make = self.record.resources
        if make is not None and not hasattr(type(make(self._target(self._examples[0]))), "__enter__"):
            pytest.skip("its resources are opened on a loop (`async with`), so a synchronous call can't use them")

    def check(
        self, out: StitchedModuleOutput, example: TargetExample, where: str, only: tuple[str, str] | None = None
    ) -> None:
        """Fail unless a run gave what the example says."""
        for name, due in example.outputs.items():
            if only in (None, ("outputs", name)):
                self.is_same(out.captured_outputs[f"from output {name}"], due, f"{where}, output {name!r}")
        for name, due in example.captures.items():
            if only in (None, ("captures", name)):
                self.is_same(out.captured_inputs[f"from input {name}"], due, f"{where}, input {name!r}")

    def settled(self, where: str) -> None:
        """Fail if the subclass knows of something that is still open."""
        left = list(self.unfinished())
        expect(not left, f"{where}: still open or going on: {left!r}")


def descriptor(target: Target, kind: Kind, name: str) -> IODescriptor:
    """A port, whether or not the target's class offers it."""
    return InputDescriptor(target, name) if kind == "input" else OutputDescriptor(target, name)
