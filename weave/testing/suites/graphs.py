"""The small graphs that the suites put things under test into. Their parts are importable, so that knots pickle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from weave.graph.args import InputArgs
from weave.graph.descriptors import IODescriptor, Node, StitchDescriptor
from weave.graph.targets import ExternalTarget, Target
from weave.stitched import StitchedModule

EXTERNAL = ExternalTarget()
Stitch = tuple[IODescriptor, IODescriptor]


def tie(stitches: Sequence[Stitch], *also: Target, **options: Any) -> StitchedModule:
    """What `Needle` does, which lives beside this package and not below it. `also` is in the graph without a stitch."""
    nodes = {target: Node(target) for target in also}
    for source, destination in stitches:
        stitch = StitchDescriptor(source, destination)
        nodes.setdefault(source.target, Node(source.target)).stitches_from.append(stitch)
        nodes.setdefault(destination.target, Node(destination.target)).stitches_to.append(stitch)
    return StitchedModule(nodes, **options)


def packed(*args: Any, **kwargs: Any) -> InputArgs:
    """What a function was called with, as its result."""
    return InputArgs.of(args, kwargs)


def passed(value: Any) -> Any:
    """The value."""
    return value


class Answer(nn.Module):
    """Takes anything, returns what it was made with."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Answer."""
        return self.answer


class Asks(nn.Module):
    """Calls its submodule `inner` once, which answers what is given here."""

    def __init__(self, call: InputArgs, answer: Any) -> None:
        super().__init__()
        self.inner = Answer(answer)
        self.call = call

    def forward(self) -> Any:
        """Ask."""
        return self.inner(*self.call.args, **self.call.kwargs)


class Echo(nn.Module):
    """Returns its first argument."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Echo."""
        return args[0] if args else None


class Repeats(nn.Module):
    """Calls its submodule `inner` once for each of some calls; `inner` echoes."""

    def __init__(self, calls: Sequence[InputArgs]) -> None:
        super().__init__()
        self.inner = Echo()
        self.calls = list(calls)

    def forward(self) -> Any:
        """Call it again and again."""
        return [self.inner(*call.args, **call.kwargs) for call in self.calls]
