"""What a run of a graph gives, worked out from the definition of a stitched graph and with nothing of the engine's.

One target after another, each after those that it depends on; a target whose sources failed is not evaluated. Where a
run can fail in more than one way, every way is listed: the engine may meet any of them first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .aliasing import Book, Holding
from .arguments import Args
from .description import EXTERNAL, Destination, Given, Graph, Materials, Source
from .models import ports
from .passage import Capture, Override, Passage
from .vocabulary import TRACE


class WrongTypeError(Exception):
    """The input reducer of a destination (the error's argument is its place) gave something that is no arguments."""


class SourceFailedError(Exception):
    """The target can't be evaluated: something that it takes a value from failed."""


@dataclass(frozen=True)
class Due:
    """An error that a run may end with: `words` are in its message, `certain` says that the run can't end well."""

    kind: str
    words: tuple[str, ...] = ()
    error: BaseException | None = None
    certain: bool = True


@dataclass
class Outcome:
    captured_inputs: dict[str, Any] = field(default_factory=dict)
    captured_outputs: dict[str, Any] = field(default_factory=dict)
    dues: list[Due] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    # In a run on a loop a module's consumers start while its forward goes on: further errors that it may end with, and all
    # that it may have run when it ends with one.
    dues_on_a_loop: list[Due] = field(default_factory=list)
    trace_on_a_loop: list[str] = field(default_factory=list)
    # Whether some consumer changed a value that it was given.
    consumer_changed: bool = False

    @property
    def fails(self) -> bool:
        return any(due.certain for due in self.dues)


@dataclass(frozen=True)
class Delivery:
    """A value on its way, for the question who else still needed it."""

    producer: int
    consumer: int
    families: frozenset[int]


class Evaluation:
    """One evaluation. A `hasty` one gives on what a module delivered before it failed, as a run on a loop may."""

    def __init__(self, graph: Graph, materials: Materials, factor: float = 1.0, *, hasty: bool = False) -> None:
        self.hasty = hasty
        self.graph = graph
        self.materials = materials
        self.given: Given = materials.given(Args, factor)
        self.book = Book() if graph.changes_in_place() else None
        self.values: dict[int, Any] = {}
        self.evaluated: set[int] = set()
        self.deliveries: list[Delivery] = []
        self.changes: list[tuple[int, int]] = []
        # What a module gave and has in its own hands too, which is not what an adapter has made of it.
        self.held: dict[int, frozenset[int]] = {}
        self.outcome = Outcome()

    def run(self) -> Outcome:
        TRACE.clear()
        outcome = self.outcome
        if self.names_are_wrong():
            outcome.dues.append(Due("overrides"))
            return outcome
        self.take_from_the_caller()
        for target in range(1, len(self.graph.targets)):
            self.evaluate(target)
        self.give_to_the_caller()
        outcome.trace = list(TRACE)
        outcome.consumer_changed = bool(self.changes)
        if any(self.somebody_else_needed(*change) for change in self.changes):
            outcome.dues.append(Due("changed", certain=False))
        if any(self.somebody_else_was_at_it(*change) for change in self.changes):
            outcome.dues_on_a_loop.append(Due("changed", certain=False))
        return outcome

    # The external boundary.

    def names_are_wrong(self) -> bool:
        missing = self.graph.withheld
        return bool(missing) or bool(self.graph.extra and not self.graph.ignore_extra)

    def take_from_the_caller(self) -> None:
        for place, source in enumerate(self.graph.sources):
            if source.target == EXTERNAL:
                if source.kind == "input":
                    value = Args.from_value(self.given.input_overrides[source.port])
                else:
                    value = self.given.output_overrides[source.port]
                self.produced(place, self.adapted(place, value))

    def give_to_the_caller(self) -> None:
        holding = Holding(self.book)
        ends: dict[tuple[str, str], list[tuple[int, Any]]] = {}
        try:
            for place, end, value in self.delivered(EXTERNAL, holding):
                ends.setdefault((end.kind, end.port), []).append((place, value))
            for (kind, port), pairs in ends.items():
                if kind == "input":
                    self.outcome.captured_inputs[port] = self.reduce_inputs(pairs, Args())
                else:
                    self.outcome.captured_outputs[port] = self.reduce_outputs(pairs, None)
        except SourceFailedError:
            return
        except WrongTypeError as error:
            self.outcome.dues.append(Due("wrong type", self.words(error.args[0])))

    # Targets.

    def evaluate(self, target: int) -> None:
        if target in self.evaluated:
            return
        self.evaluated.add(target)
        what = self.graph.targets[target]
        holding = Holding(self.book)
        try:
            if what.kind == "constant":
                self.produce(target, self.materials.constant(target, Args))
            elif what.kind == "function":
                self.evaluate_function(target, holding)
            else:
                self.evaluate_module(target, holding)
        except SourceFailedError:
            return
        except WrongTypeError as error:
            self.outcome.dues.append(Due("wrong type", self.words(error.args[0])))
        except Exception as error:
            self.outcome.dues.append(Due("raised", error=error))
        finally:
            self.changes += [(target, family) for family in holding.changed()]

    def evaluate_function(self, target: int, holding: Holding) -> None:
        pairs = [(place, value) for place, _, value in self.delivered(target, holding)]
        arguments = self.reduce_inputs(pairs, Args())
        function = self.materials.function(target, Args)
        self.produce(target, function(*arguments.args, **arguments.kwargs))

    def evaluate_module(self, target: int, holding: Holding) -> None:
        name = self.graph.targets[target].name
        module = self.materials.models[self.graph.targets[target].what]
        parts = ports(module)
        self.expect(EXTERNAL, target, [self.given.args, self.given.kwargs])
        args, kwargs = holding.receive(self.given.args), holding.receive(self.given.kwargs)
        passage = Passage(
            captures=[
                Capture(place, source, parts[source.port], self.materials.source_adapter(place, Args), [], [], [])
                for place, source in enumerate(self.graph.sources)
                if source.target == target
            ],
            overrides=[
                Override(place, end, parts[end.port], value) for place, end, value in self.delivered(target, holding)
            ],
            early_exit=self.graph.early_exit,
            reduce_inputs=lambda found, original: self.reduce_inputs([(o.place, o.value) for o in found], original),
            reduce_outputs=lambda found, original: self.reduce_outputs([(o.place, o.value) for o in found], original),
        )
        try:
            passage.run(module, args, kwargs)
        except Exception:
            if self.hasty:
                self.produce_captured(passage)
            raise
        faults = [Due("unreached", (name, end.port)) for end in passage.never_reached()]
        faults += [Due("changed", (name, source.port), certain=certain) for source, certain in passage.changed_later()]
        self.outcome.dues += faults
        if self.hasty or not any(fault.certain for fault in faults):
            self.produce_captured(passage)

    def words(self, place: int) -> tuple[str, ...]:
        end = self.graph.destinations[place]
        return self.graph.targets[end.target].name, end.port

    # Stitches.

    def adapted(self, place: int, value: Any) -> Any:
        adapter = self.materials.source_adapter(place, Args)
        return value if adapter is None else adapter(value)

    def produce(self, target: int, value: Any) -> None:
        """Gives a function's result or a constant's value to the sources that look at it."""
        for place, source in enumerate(self.graph.sources):
            if source.target == target:
                self.produced(place, self.adapted(place, value))

    def produce_captured(self, passage: Passage) -> None:
        for capture in passage.captures:
            if capture.seen:
                if self.book is not None:
                    seen = [tensor for call in capture.raw_versions for tensor, _ in call]
                    target = capture.source.target
                    self.held[target] = self.held.get(target, frozenset()) | self.book.families(seen)
                self.produced(capture.place, capture.value)

    def produced(self, place: int, value: Any) -> None:
        self.values[place] = value
        for source, destination in self.graph.distinct_stitches:
            if source == place:
                self.expect(self.graph.sources[place].target, self.graph.destinations[destination].target, value)

    def expect(self, producer: int, consumer: int, value: Any) -> None:
        if self.book is not None:
            self.deliveries.append(Delivery(producer, consumer, self.book.families(value)))

    def delivered(self, target: int, holding: Holding) -> list[tuple[int, Destination, Any]]:
        """What is stitched to the target, in stitch order, through the destinations' adapters."""
        stitches = self.graph.into(target)
        for source, _ in stitches:
            if self.graph.sources[source].target != EXTERNAL:
                self.evaluate(self.graph.sources[source].target)
            if source not in self.values:
                raise SourceFailedError
        found = []
        for source, place in stitches:
            value = holding.receive(self.values[source])
            adapter = self.materials.destination_adapter(place, Args)
            if adapter is not None:
                value = adapter(value)
            end = self.graph.destinations[place]
            if end.kind == "input" and not isinstance(value, Args):
                value = Args(value)
            found.append((place, end, value))
        return found

    def reduce_inputs(self, pairs: list[tuple[int, Any]], original: Args) -> Args:
        acc: Any = Args()
        values = [value for _, value in pairs]
        for index, (place, value) in enumerate(pairs):
            reduction = self.materials.reduction(place, Args)
            acc = acc + value if reduction is None else reduction(acc, value, original, index, values)
            if not isinstance(acc, Args):
                raise WrongTypeError(place)
        joined: Args = acc
        return joined

    def reduce_outputs(self, pairs: list[tuple[int, Any]], original: Any) -> Any:
        acc: Any = None
        values = [value for _, value in pairs]
        for index, (place, value) in enumerate(pairs):
            reduction = self.materials.reduction(place, Args)
            acc = value if reduction is None else reduction(acc, value, original, index, values)
        return acc

    # Changes in place.

    def somebody_else_needed(self, changer: int, family: int) -> bool:
        """Whether the value could still have been on its way to somebody else when this consumer changed it."""
        return any(
            delivery.consumer != changer
            and delivery.producer != changer
            and not self.depends(delivery.producer, changer)
            and not self.depends(changer, delivery.consumer)
            for delivery in self.deliveries
            if family in delivery.families
        )

    def somebody_else_was_at_it(self, changer: int, family: int) -> bool:
        """Whether a forward that still had the value may have gone on, in a run on a loop, when this consumer changed it."""
        return any(
            other not in (changer, EXTERNAL)
            and self.graph.targets[other].kind == "module"
            and not self.depends(delivery.producer, changer)
            and not self.depends(other, changer)
            and not self.has_ended_before(other, changer)
            for delivery in self.deliveries
            if family in delivery.families
            for other in (delivery.producer, delivery.consumer)
            if other == delivery.consumer or family in self.held.get(other, ())
        )

    def has_ended_before(self, module: int, target: int) -> bool:
        """Whether the module's forward is over, in every order, when the target starts."""
        behind_its_end = {
            self.graph.destinations[destination].target
            for source, destination in self.graph.distinct_stitches
            if self.graph.sources[source].target == module and leaves_at_the_end(self.graph.sources[source])
        }
        return any(one == target or self.depends(target, one) for one in behind_its_end - {EXTERNAL})

    def depends(self, target: int, on: int) -> bool:
        """Whether `target` comes after `on`, in every order. The boundary is before and after everything: neither."""
        seen: set[int] = set()
        waiting = [target] if EXTERNAL not in (target, on) else []
        while waiting:
            before = {self.graph.sources[source].target for source, _ in self.graph.into(waiting.pop())}
            waiting += before - seen - {EXTERNAL}
            seen |= before
        return on in seen


def leaves_at_the_end(source: Source) -> bool:
    """Whether a module's value is delivered when its forward has ended: its own result, and what is only known then."""
    return (source.port == "" and source.kind == "output") or source.call in ("last", "all")


def evaluate(graph: Graph, materials: Materials, factor: float = 1.0) -> tuple[Outcome, Evaluation]:
    """What a run gives; another `factor`, what one with other inputs gives."""
    evaluation = Evaluation(graph, materials, factor)
    outcome = evaluation.run()
    outcome.trace_on_a_loop = outcome.trace
    if outcome.fails and graph.models:
        hasty = Evaluation(graph, materials, factor, hasty=True).run()
        outcome.dues_on_a_loop += [*hasty.dues, *hasty.dues_on_a_loop]
        outcome.trace_on_a_loop = hasty.trace
    return outcome, evaluation
