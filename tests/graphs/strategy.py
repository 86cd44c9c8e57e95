"""How hypothesis draws a graph: acyclic by construction, and nothing in it that the knot would refuse.

Most graphs are meant to run to their end. What can go wrong in one comes from its `accidents`, drawn first, so that
errors stay rare enough for values to be compared, and shrink away when they have nothing to do with a failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import TypeVar

from hypothesis import strategies as st
from torch import nn

from . import vocabulary
from .description import EXTERNAL, Call, Destination, Graph, Kind, Source, Target, build_models, tensor
from .models import MODELS, NOISY_MODELS, ports
from .ways import PLAIN

T = TypeVar("T")

# What a caller passes under an external name.
GIVEN_INPUTS = ("tensor", "list", "args", "tuple", "number", "string")
GIVEN_OUTPUTS = ("tensor", "tuple", "none", "number")

KINDS_OF_ACCIDENT = ("in_place", "raise", "strict", "unreached", "wrong_type", "names")
ACCIDENTS: list[frozenset[str]] = [frozenset()] * 9 + [
    frozenset(pair) for pair in product(KINDS_OF_ACCIDENT, KINDS_OF_ACCIDENT)
]
# Graphs that draw random numbers do so in about every third place that can.
NOISE = (vocabulary.NOISE,)
ACCIDENT_MODELS = (("in_place", "washed"), ("raise", "fused"), ("strict", "strict"))


DIGIT = st.integers(0, 9)
# A strategy checks itself when it is first drawn from, which costs more than the draw.
sample = cache(st.sampled_from)


@dataclass(frozen=True)
class Anatomy:
    """What a model has: its ports, which of them are one object, and how often a plain forward starts and ends each."""

    same: dict[str, frozenset[str]]
    starts: dict[str, int]
    ends: dict[str, int]

    def calls(self, kind: Kind, port: str) -> int:
        return self.starts[port] if kind == "input" else self.ends[port]


@cache
def anatomy(models: tuple[str, ...], side: bool) -> list[Anatomy]:
    return [_anatomy(model, side) for model in build_models(models)]


def _anatomy(model: nn.Module, side: bool) -> Anatomy:
    parts = ports(model)
    starts: Counter[nn.Module] = Counter()
    ends: Counter[nn.Module] = Counter()
    for part in set(parts.values()):
        part.register_forward_pre_hook(lambda part, _: starts.update([part]))
        part.register_forward_hook(lambda part, *_: ends.update([part]))
    with suppress(vocabulary.PlannedError, TypeError):
        model(tensor(), **({"side": True} if side else {}))
    return Anatomy(
        {name: frozenset(n for n, p in parts.items() if p is part) for name, part in parts.items()},
        {name: starts[part] for name, part in parts.items()},
        {name: ends[part] for name, part in parts.items()},
    )


def inside(port: str, whole: frozenset[str]) -> bool:
    """Whether the port lies below any of the names of a submodule."""
    return any(name == "" or port.startswith(f"{name}.") for name in whole) and port not in whole


@dataclass
class Drawing:
    """A graph half drawn."""

    draw: st.DrawFn
    accidents: frozenset[str]
    side: bool
    models: tuple[str, ...]
    ways: tuple[str, ...] = (PLAIN,)
    noise: tuple[str, ...] = ()
    targets: list[Target] = field(default_factory=lambda: [Target("external")])
    sources: list[Source] = field(default_factory=list)
    destinations: list[Destination] = field(default_factory=list)
    stitches: list[tuple[int, int]] = field(default_factory=list)

    def one(self, choices: Iterable[T]) -> T:
        found: T = self.draw(sample(tuple(choices)))
        return found

    def upto(self, most: int) -> int:
        return self.draw(st.integers(0, most))

    def chance(self, in_ten: int) -> bool:
        """True `in_ten` times in ten; hypothesis shrinks it to False."""
        return self.draw(DIGIT) >= 10 - in_ten

    def maybe(self, in_ten: int, choices: Iterable[T]) -> T | None:
        """None or, `in_ten` times in ten, one of the choices: in a single draw, of which there are many."""
        some = tuple(choices)
        found: T | None = self.draw(sample((None,) * (len(some) * (10 - in_ten) // in_ten) + some))
        return found

    def anatomy(self, target: int) -> Anatomy:
        model: int = self.targets[target].what
        return anatomy(self.models, self.side)[model]

    def with_noise(self, choices: tuple[str, ...]) -> tuple[str, ...]:
        return choices + self.noise * (len(choices) // 2)

    # Targets.

    def add_target(self) -> None:
        kind = self.one(["function", "module", "function", "module", "constant"])
        if kind == "module" and self.models:
            model = self.upto(len(self.models) - 1)
            accidental = [place for place, name in enumerate(self.models) if name in ("washed", "fused", "strict")]
            if accidental and self.chance(5):
                model = self.one(accidental)
            self.targets.append(Target("module", self.one(["model", "student"]), model))
            self.add_overrides(len(self.targets) - 1)
        elif kind == "constant":
            self.targets.append(Target("constant", self.one(["c", "d"]), self.one(vocabulary.CONSTANTS)))
        else:
            what = self.one(self.with_noise((*vocabulary.FUNCTIONS, vocabulary.MODULE_FUNCTION)))
            if "in_place" in self.accidents and self.chance(5):
                what = self.one(vocabulary.IN_PLACE_FUNCTIONS)
            if "raise" in self.accidents and self.chance(2):
                what = "raise"
            way = self.one(self.ways) if len(self.ways) > 1 else self.ways[0]
            self.targets.append(Target("function", self.one(["f", "g"]), what, way))
            for _ in range(self.upto(3)):
                self.stitch(self.source(), self.destination(len(self.targets) - 1, "input", ""))

    def add_overrides(self, target: int) -> None:
        found: list[Destination] = []
        for _ in range(self.upto(3)):
            kind: Kind = self.one(["input", "output"])
            if found and self.chance(5):
                port, kind, call = found[-1].port, found[-1].kind, found[-1].call
                port = self.one(sorted(self.anatomy(target).same[port]))
            else:
                port = self.port(target, kind)
                call = self.override_call(target, kind, port)
            found.append(self.a_destination(target, kind, port, call))
        for destination in without_contradictions(found, self.anatomy(target)):
            self.destinations.append(destination)
            for _ in range(1 + self.chance(2)):
                self.stitch(self.source(), len(self.destinations) - 1)

    # Ports.

    def port(self, target: int, kind: Kind) -> str:
        """Mostly one that a plain forward passes."""
        shape = self.anatomy(target)
        if self.models[self.targets[target].what] == "washed" and self.chance(5):
            # What the module itself changes later, where its forward goes on.
            return "conv" if kind == "output" else "act"
        ghosts = "unreached" in self.accidents and self.chance(2)
        return self.one([name for name in shape.same if ghosts or shape.calls(kind, name)] or [""])

    def capture_call(self, target: int, kind: Kind, port: str) -> Call:
        calls = self.anatomy(target).calls(kind, port)
        if port != "" and "unreached" in self.accidents and self.chance(2):
            return calls
        choices: list[Call] = ["last", "all", 0, max(calls - 1, 0)]
        return self.maybe(5 if calls > 1 else 2, choices)

    def override_call(self, target: int, kind: Kind, port: str) -> Call:
        calls = self.anatomy(target).calls(kind, port)
        if port != "" and "unreached" in self.accidents and self.chance(2):
            return calls
        return self.maybe(5 if calls > 1 else 1, [0, max(calls - 1, 0)])

    def source(self, after: int | None = None) -> int:
        """A source on a target drawn before this one: often one that is there already."""
        last = len(self.targets) - 1 if after is None else after
        earlier = [place for place, source in enumerate(self.sources) if source.target < max(last, 1)]
        if earlier and self.chance(3):
            return self.one(earlier)
        return self.source_on(self.upto(max(last - 1, 0)))

    def source_on(self, target: int) -> int:
        what = self.targets[target]
        kind: Kind = "output" if what.kind in ("function", "constant") else self.one(["output", "input"])
        port, call = "", None
        if what.kind == "external":
            port = self.one("xyz" if kind == "input" else "uv")
        elif what.kind == "module":
            overridden = [end for end in self.destinations if end.target == target]
            open_ports = [
                name
                for name in [self.port(target, kind) for _ in range(2)]
                if not any(inside(name, skipped) for skipped in skipped_everywhere(overridden, self.anatomy(target)))
            ]
            port = self.one(open_ports or [""])
            call = self.capture_call(target, kind, port)
        adapters: tuple[str, ...] = vocabulary.OF_OUTPUT_SOURCE if kind == "output" else vocabulary.OF_INPUT_SOURCE
        if call == "all":
            # Adapters map each call's value at the capture: only what gives the same on the list can be foreseen.
            adapters = ("double", "clone")
        elif call == "last":
            adapters = tuple(name for name in adapters if name != "linear")
        self.sources.append(Source(target, kind, port, call, self.maybe(4, self.with_noise(adapters))))
        return len(self.sources) - 1

    def destination(self, target: int, kind: Kind, port: str) -> int:
        """A destination on a port: sometimes one that is there already."""
        there = [
            place
            for place, end in enumerate(self.destinations)
            if (end.target, end.kind, end.port) == (target, kind, port)
        ]
        if there and self.chance(2):
            return self.one(there)
        self.destinations.append(self.a_destination(target, kind, port, None))
        return len(self.destinations) - 1

    def a_destination(self, target: int, kind: Kind, port: str, call: Call) -> Destination:
        if kind == "input":
            adapter = self.maybe(3, self.with_noise(vocabulary.OF_INPUT_DESTINATION))
            reducer = self.maybe(4, vocabulary.INPUT_REDUCERS)
            if port == "" and "wrong_type" in self.accidents and self.chance(1):
                reducer = "wrong_type"
        else:
            adapter = self.maybe(3, self.with_noise(vocabulary.OF_OUTPUT_DESTINATION))
            reducer = self.maybe(
                6,
                [*vocabulary.PLAIN_OUTPUT_REDUCERS, *vocabulary.REQUIRING_OUTPUT_REDUCERS] * (target != EXTERNAL)
                or vocabulary.PLAIN_OUTPUT_REDUCERS,
            )
        return Destination(target, kind, port, call, adapter, reducer)

    # Stitches.

    def stitch(self, source: int, destination: int) -> None:
        self.stitches.append((source, destination))
        if self.chance(1):
            # The very same two descriptors again: no further stitch.
            self.stitches.append((source, destination))

    def stitch_to_the_boundary(self, source: int) -> None:
        kind: Kind = self.one(["output", "output", "input"])
        self.stitch(source, self.destination(EXTERNAL, kind, self.one(["r", "s", "t", "x", "u"])))

    def capture_everything_of_interest(self) -> None:
        busy = {self.sources[s].target for s, _ in self.stitches}
        fed = {self.destinations[d].target for _, d in self.stitches}
        for target, what in enumerate(self.targets):
            if target == EXTERNAL:
                continue
            # A target takes part by being stitched; one that only takes still runs.
            needed = target not in busy and (target not in fed or what.kind == "constant")
            if needed or (target not in busy and self.chance(8)) or self.chance(2):
                self.stitch_to_the_boundary(self.source_on(target))
        involved = {self.sources[s].target for s, _ in self.stitches} | {
            self.destinations[d].target for _, d in self.stitches
        }
        if EXTERNAL not in involved or self.chance(2):
            self.stitch_to_the_boundary(self.source_on(EXTERNAL))


def without_contradictions(found: list[Destination], shape: Anatomy) -> list[Destination]:
    """The overrides of one module that can stand side by side, and whose meeting is defined.

    Dropped: an override of every call next to one of a single call of the same submodule; an input's where some call's
    output is replaced without running; anything inside a submodule that is never run.
    """
    kept: list[Destination] = []
    for end in found:
        rivals = [one for one in kept if one.kind == end.kind and one.port in shape.same[end.port]]
        if not any((one.call is None) != (end.call is None) for one in rivals):
            kept.append(end)
    skipped = [port for port, _ in skipped_calls(kept, shape)]
    kept = [end for end in kept if end.kind == "output" or end.port not in frozenset().union(*skipped)]
    never_run = skipped_everywhere(kept, shape)
    return [end for end in kept if not any(inside(end.port, whole) for whole in never_run)]


def skipped_calls(overrides: list[Destination], shape: Anatomy) -> list[tuple[frozenset[str], Call]]:
    """The submodules, by their names, that are not run at a call."""
    meetings: dict[tuple[frozenset[str], Call], list[Destination]] = {}
    for end in overrides:
        if end.kind == "output":
            meetings.setdefault((shape.same[end.port], end.call), []).append(end)
    return [
        meeting
        for meeting, ends in meetings.items()
        if not any(end.reducer in vocabulary.REQUIRING_OUTPUT_REDUCERS for end in ends)
    ]


def skipped_everywhere(overrides: list[Destination], shape: Anatomy) -> list[frozenset[str]]:
    return [names for names, call in skipped_calls(overrides, shape) if call is None]


@st.composite
def graphs(draw: st.DrawFn, *, ways: tuple[str, ...] = (PLAIN,), noise: bool = False, surely: str = "") -> Graph:
    """Graphs whose functions are given in some of the `ways`.

    `noise` draws random numbers. One accident may be asked for `surely`; it may still not come to it.
    """
    accidents = draw(st.sampled_from(ACCIDENTS)) | ({surely} if surely else set())
    wrapped = draw(st.booleans())
    named = sorted(MODELS) + sorted(NOISY_MODELS) * 4 * noise
    models = draw(st.lists(st.sampled_from(named), max_size=3))
    models += [model for accident, model in ACCIDENT_MODELS if accident in accidents and draw(st.booleans())]
    if models and wrapped:
        models.append(f"wrap:{draw(st.integers(0, len(models) - 1))}")
    # A few ways for each graph: functions of one kind only, in chains, are as much a case as a mixture of all.
    ways = tuple(draw(st.lists(sample(ways), min_size=1, max_size=4))) if len(ways) > 1 else ways
    drawing = Drawing(draw, accidents, draw(st.booleans()), tuple(models), ways, NOISE * noise)
    for _ in range(draw(st.integers(0, 29))):
        # A choice for each: one target shrinks away without the others.
        if drawing.chance(9):
            drawing.add_target()
    drawing.capture_everything_of_interest()
    return finished(drawing, draw)


def finished(drawing: Drawing, draw: st.DrawFn) -> Graph:
    used_sources = sorted({s for s, _ in drawing.stitches})
    used_destinations = sorted({d for _, d in drawing.stitches})
    stitches = draw(st.permutations(drawing.stitches))
    graph = Graph(
        targets=tuple(drawing.targets),
        sources=tuple(drawing.sources[s] for s in used_sources),
        destinations=tuple(drawing.destinations[d] for d in used_destinations),
        stitches=tuple((used_sources.index(s), used_destinations.index(d)) for s, d in stitches),
        models=drawing.models,
        arguments=draw(st.integers(1, 2)),
        side=drawing.side,
        scale=draw(st.booleans()),
        early_exit=draw(st.sampled_from([True, False])),
        ignore_extra=draw(st.booleans()),
    )
    taken = [(one.kind, one.port) for one in graph.sources if one.target == EXTERNAL]
    inputs = sorted({port for kind, port in taken if kind == "input"})
    outputs = sorted({port for kind, port in taken if kind == "output"})
    graph = replace(
        graph,
        given_inputs=tuple(
            (name, drawing.one(["tensor", "list", "args", "tuple", "number", "string"])) for name in inputs
        ),
        given_outputs=tuple((name, drawing.one(["tensor", "tuple", "none", "number"])) for name in outputs),
    )
    if "names" in drawing.accidents and drawing.chance(4):
        withheld = tuple(name for name in inputs + outputs if drawing.chance(2))
        extra = ("spare",) if not withheld or drawing.chance(5) else ()
        graph = replace(graph, withheld=withheld, extra=extra)
    return graph
