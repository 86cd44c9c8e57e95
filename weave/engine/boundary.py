"""The external boundary of a run: the caller's values in, by name, and the captured ones out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from weave.device.versions import WITHOUT_TENSORS, Mark, mark
from weave.engine.run import EMPTY, Run, reduce
from weave.errors import OverridesException
from weave.graph.args import InputArgs
from weave.graph.plan import InPort, OutPort, Plan, ports_in, ports_out
from weave.graph.ports import nearest


class Boundary(NamedTuple):
    """The external ports of a plan. `asks`: those the caller brings values for; `gives`: those where values arrive."""

    asks: tuple[OutPort, ...]
    gives: tuple[InPort, ...]
    takes: Mapping[str, frozenset[str]]  # by kind, the names that are asked for

    @classmethod
    def of(cls, plan: Plan) -> Boundary:
        """A plan's."""
        asks = ports_out(plan.given)
        takes = {kind: frozenset(p.name for p in asks if p.kind == kind) for kind in ("input", "output")}
        return cls(asks, ports_in(plan.taken), takes)

    def give(self, run: Run, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> list[int]:
        """Hand the caller's values to the graph; returns the units that became ready, where somebody counts."""
        became: list[int] = []
        for port in self.asks:
            named = inputs[port.name] if port.kind == "input" else outputs[port.name]
            became += run.put_all(port.exits, InputArgs.from_value(named) if port.kind == "input" else named)
        return became

    def collect(self, run: Run) -> tuple[dict[str, InputArgs], dict[str, Any]]:
        """What arrived, reduced: the captured inputs and outputs."""
        captured_inputs: dict[str, InputArgs] = {}
        captured_outputs: dict[str, Any] = {}
        given: list[tuple[int, Mark | None]] = []
        for port in self.gives:
            edge = port.edges[0]
            value = run.values[edge.slot]
            if (
                port.kind == "output"
                and type(value) in WITHOUT_TENSORS
                and len(port.edges) == 1
                and edge.adapter is None
                and edge.reducer is None
            ):
                run.values[edge.slot] = EMPTY  # what most ports of a large graph give
            else:
                values, _ = run.take(None, port.edges)
                value = reduce(port.edges, values, None, run.plan)
            if port.kind == "input":
                captured_inputs[port.name] = value
            else:
                captured_outputs[port.name] = value
            given.append((port.edges[0].slot, mark(value)))
        # Adapters and reducers at the boundary are the last to run; one may have changed what another port has given.
        for slot, marked in given:
            if marked is not None and marked.changed():
                raise run.changed(slot, marked, by="external")
        return captured_inputs, captured_outputs

    def check(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any], *, ignore_extra: bool) -> None:
        """Raise an `OverridesException` unless the two dicts bring what the graph takes."""
        given: dict[str, Mapping[str, Any]] = {"input": inputs, "output": outputs}
        missing: list[str] = []
        extra: list[str] = []
        for kind, dictionary in given.items():
            if not isinstance(dictionary, Mapping):
                raise TypeError(
                    "a StitchedModule is called with two dicts first: stitched(input_overrides, output_overrides, *args, "
                    f"**kwargs); {kind}_overrides is a {type(dictionary).__name__}"
                )
            takes = self.takes[kind]
            if dictionary.keys() == takes:
                continue
            missing += [f"{kind} {name!r}" for name in sorted(takes - dictionary.keys(), key=str)]
            if not ignore_extra:
                extra += [f"{kind} {name!r} ({self._hint(kind, name)})" for name in dictionary if name not in takes]
        if missing or extra:
            expected = [f"{kind} {name!r}" for kind, takes in self.takes.items() for name in sorted(takes, key=str)]
            said = [f"missing: {', '.join(missing)}"] if missing else []
            said += [f"not taken by the graph: {', '.join(extra)}"] if extra else []
            raise OverridesException(
                f"wrong names in the overrides; {'; '.join(said)}. It takes {', '.join(expected) or 'none at all'}. "
                "The first dict is for ExternalTarget().input(...), the second for ExternalTarget().output(...)"
                + ("; knot(ignore_extra_overrides=True) lets extra ones pass" if extra else ""),
                missing=tuple(missing),
                extra=tuple(extra),
                expected=tuple(expected),
            )

    def _hint(self, kind: str, name: str) -> str:
        other = "output" if kind == "input" else "input"
        if name in self.takes[other]:
            return f"it belongs in {other}_overrides"
        return near_text(name, sorted(self.takes[kind], key=str))


def near_text(name: str, names: list[str]) -> str:
    """A hint at the names that a wrong one may have meant."""
    near = nearest(str(name), names)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    return f"there are {', '.join(map(repr, names))}" if names else "there are none"
