"""`TargetTypeSuite`: what a target type and its executor must do."""

from __future__ import annotations

import json
from typing import Any, Literal

from torch import nn

from weave.errors import KnotException
from weave.graph.args import InputArgs
from weave.graph.targets import FunctionTarget
from weave.testing.suites.base import copied, expect, on_loop, pickled
from weave.testing.suites.graphs import EXTERNAL, passed, tie
from weave.testing.suites.target_graph import TargetExample, descriptor
from weave.testing.suites.target_life import LifeChecks
from weave.testing.suites.target_resources import ResourceChecks
from weave.testing.suites.values import same, versions

__all__ = ["TargetExample", "TargetTypeSuite"]

KINDS: tuple[Literal["input", "output"], ...] = ("input", "output")


class TargetTypeSuite(LifeChecks, ResourceChecks):
    """Tests of a target type that a plugin registers.

        class TestShell(TargetTypeSuite):
            plugin = my_plugin
            examples = [({"stdin": "b\\na\\n"}, {"stdout": "a\\nb\\n"})]
            lasting = TargetExample(target=lambda: Shell("cat", "cat /dev/tty"))

            def target(self):
                return Shell("sort", "sort")

    Attributes:
        examples: `TargetExample`s, or tuples `(inputs, outputs)`: what is brought to its ports, and what comes of it. A
            second one of the same ports, with other values, shows that runs don't mix.
        failures: `TargetExample`s that say what the run `raises`.
        refused: ports that a knot must refuse, as `(kind, name)`.
        lasting: an example whose firing goes on until it is cancelled. Its `outputs` arrive before.
    """

    # --- the record ---

    def test_is_registered(self) -> None:
        """A knot finds its record, with an executor."""
        record = self.record
        expect(record.executor is not None, f"the target type {record.name!r} has no executor")
        expect(callable(getattr(record.executor, "fire", None)), f"the executor of {record.name!r} has no fire(firing)")
        lane = getattr(record.executor, "lane", None)
        if lane is not None:
            said = lane(self._target(self._examples[0]))
            expect(said in ("thread", "inline", "await"), f"lane(...) said {said!r}, not 'thread', 'inline' or 'await'")

    def test_there_are_examples(self) -> None:
        """For every kind of port that its record says can be stitched."""
        expect(self._examples, "give `examples`: what is brought to its ports, and what comes of it")
        record = self.record
        for end, kinds, used in (
            ("sources", record.sources, {"output": "outputs", "input": "captures"}),
            ("destinations", record.destinations, {"input": "inputs", "output": "replaces"}),
        ):
            for kind in kinds:
                shown = any(getattr(e, used[kind]) for e in self._examples)
                expect(
                    shown, f"the record says {end}={kinds!r}, and no example has {used[kind]}: give one, or say less"
                )

    def test_ports_that_it_does_not_have(self) -> None:
        """A knot refuses the kinds of port that the record leaves out, and the names in `refused`."""
        record = self.record
        wrong = [
            (kind, "", end) for kind in KINDS for end in ("sources", "destinations") if kind not in getattr(record, end)
        ]
        wrong += [(kind, name, end) for kind, name in self.refused for end in ("sources", "destinations")]
        for kind, name, end in wrong:
            port = descriptor(self._target(self._examples[0]), kind, name)
            stitch = (port, EXTERNAL.output("x")) if end == "sources" else (EXTERNAL.output("x"), port)
            try:
                tie([stitch], plugins=self.plugins)
            except KnotException:
                continue
            expect(False, f"a knot took {port!r} among its {end}: `prepare` must raise a KnotException")

    def test_owns(self, example: Any) -> None:
        """What it owns are modules and parameters: they go where the graph goes, and into its `state_dict`."""
        target = self._target(example)
        stitched = tie(self.stitches(example, target), target, plugins=self.plugins)
        for thing in self.record.owns(target):
            expect(isinstance(thing, nn.Module | nn.Parameter), f"`owns` gave a {type(thing).__name__}")
            registered = [*stitched.modules(), *stitched.parameters()]
            expect(any(thing is one for one in registered), f"the graph does not have {thing!r}")

    # --- values ---

    def test_values(self, driver: str, example: Any) -> None:
        """Each port gives what the example says, under a synchronous call and `run`; also the second time."""
        for time, out in zip(
            ("first", "second"), self.drive(driver, self.knot(example), example, example), strict=True
        ):
            self.check(out, example, f"the {time} run")
        self.settled("after two runs")

    def test_each_port_alone(self, driver: str, example: Any) -> None:
        """Any one port may be the only one that is stitched from."""
        ports = [("outputs", name) for name in example.outputs] + [("captures", name) for name in example.captures]
        for only in ports:
            [out] = self.drive(driver, self.knot(example, only), example)
            self.check(out, example, f"only {only[1]!r} is stitched", only)

    def test_several_stitches_from_a_port(self, driver: str, example: Any) -> None:
        """A value goes to everybody that is stitched."""
        # `adapter=InputArgs`: the value as it is, also one that is an `InputArgs`, which would be a call of its own.
        target = self._target(example)
        stitches = self.stitches(example, target)
        for name in example.outputs:
            again = FunctionTarget(f"again {name}", passed)
            stitches += [(self.port(target, "output", name), again.input(adapter=InputArgs))]
            stitches += [(again.output(), EXTERNAL.output(f"again {name}"))]
        [out] = self.drive(driver, tie(stitches, target, plugins=self.plugins), example)
        self.check(out, example, "two stitches from a port")
        for name, due in example.outputs.items():
            self.is_same(out[f"again {name}"], due, f"the second stitch from output {name!r}")

    def test_nothing_stitched_from_it(self, driver: str, example: Any) -> None:
        """A target from which nothing is stitched runs as well."""
        self.drive(driver, self.knot(example, ("", "")), example)
        self.settled("after a run")

    def test_changes_nothing_in_place(self, example: Any) -> None:
        """What it is brought belongs to others, who may still need it."""
        given = self.given(example)
        before = versions(list(given))

        async def main() -> None:
            async with self.knot(example) as stitched:
                await stitched.run(*given, **dict(example.kwargs))

        on_loop(self.backends[0], main)
        expect(same(list(given), list(self.given(example))), f"it changed a value in place, to {given!r}")
        expect(versions(list(given)) == before, "it changed a tensor in place")

    # --- copies, pictures ---

    def test_copies(self, example: Any) -> None:
        """A graph with it can be deep-copied, and the copy gives the same."""
        self._gives_the_same(copied(self.knot(example)), example, "a deep copy")

    def test_pickles(self, example: Any) -> None:
        """A graph with it can be pickled, as for another process, and what arrives gives the same."""
        self._gives_the_same(pickled(self.knot(example)), example, "what was pickled")

    def _gives_the_same(self, stitched: Any, example: TargetExample, where: str) -> None:
        for out in self.drive(self.backends[0], stitched, example):
            self.check(out, example, where)

    def test_is_drawn(self, example: Any) -> None:
        """A graph with it is described, drawn, and written as data that JSON can hold."""
        target = self._target(example)
        stitched = tie(self.stitches(example, target), target, plugins=self.plugins)
        node = stitched.plan.nodes[target]
        for what, text in (
            ("describe()", stitched.describe()),
            ("plan.to_mermaid()", stitched.plan.to_mermaid()),
            ("plan.to_dict()", json.dumps(stitched.plan.to_dict())),
        ):
            expect(node in text, f"{what} does not show the node {node!r}")
