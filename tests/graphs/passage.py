"""The evaluator's forward of one module: every call of every submodule goes through `Passage.call`.

`nn.Module.__call__` itself is replaced while it lasts. That is slow, not for threads, and plainly right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .arguments import Args
from .description import Destination, Kind, Source
from .vocabulary import REQUIRING_OUTPUT_REDUCERS, tensors


class Exit(BaseException):
    """Leaves a forward of which nothing more is wanted."""


@dataclass
class Capture:
    """A source descriptor of the module: where it looks, and what it has seen."""

    place: int
    source: Source
    part: nn.Module
    adapter: Callable[[Any], Any] | None
    seen: list[Any]
    # Each captured tensor with the version that it had then, one list a call: of what the adapter gave, of what it got.
    versions: list[list[tuple[Tensor, int]]]
    raw_versions: list[list[tuple[Tensor, int]]]

    @property
    def awaited(self) -> bool:
        return self.source.call in ("last", "all") or not self.seen

    def offer(self, kind: Kind, part: nn.Module, number: int, value: Any) -> bool:
        if kind != self.source.kind or part is not self.part:
            return False
        call = 0 if self.source.call is None else self.source.call
        if isinstance(call, int) and call != number:
            return False
        if call == "last":
            for kept in (self.seen, self.versions, self.raw_versions):
                kept.clear()
        self.seen.append(value if self.adapter is None else self.adapter(value))
        self.versions.append([(tensor, tensor._version) for tensor in tensors(self.seen[-1])])
        self.raw_versions.append([(tensor, tensor._version) for tensor in tensors(value)])
        return True

    @property
    def value(self) -> Any:
        return list(self.seen) if self.source.call == "all" else self.seen[-1]

    def was_changed(self) -> bool:
        return changed_since(self.versions)

    def may_count_as_changed(self) -> bool:
        """Which call is the last is known at the end only, and an adapter may have waited for it: all but "clone"."""
        held = self.source.call in ("last", "all") and self.source.adapter != "clone"
        return held and changed_since(self.raw_versions)


def changed_since(versions: list[list[tuple[Tensor, int]]]) -> bool:
    return any(tensor._version != version for call in versions for tensor, version in call)


@dataclass
class Override:
    """One value stitched to a port of the module."""

    place: int
    destination: Destination
    part: nn.Module
    value: Any
    applied: bool = False

    def concerns(self, kind: Kind, part: nn.Module, number: int) -> bool:
        end = self.destination
        return kind == end.kind and part is self.part and end.call in (None, number)


Reduce = Callable[[list[Override], Any], Any]


@dataclass
class Passage:
    captures: list[Capture]
    overrides: list[Override]
    early_exit: bool
    reduce_inputs: Reduce
    reduce_outputs: Reduce

    def __post_init__(self) -> None:
        self.numbers: Counter[int] = Counter()
        self.finished = False
        self.outermost: nn.Module | None = None

    def run(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        wanted_grad = torch.is_grad_enabled()
        self.outermost = module
        try:
            with every_call_through(self.call):
                module(*args, **kwargs)
            self.finished = True
        except Exit:
            pass
        finally:
            torch.set_grad_enabled(wanted_grad)

    def call(self, plain: Callable[..., Any], part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        number = self.numbers[id(part)]
        self.numbers[id(part)] += 1
        received = self.overridden(self.reduce_inputs, "input", part, number, lambda: Args(*args, **kwargs))
        self.capture("input", part, number, received)
        overrides = [one for one in self.overrides if one.concerns("output", part, number)]
        if overrides and not any(one.destination.reducer in REQUIRING_OUTPUT_REDUCERS for one in overrides):
            result = self.overridden(self.reduce_outputs, "output", part, number, lambda: None)
        else:
            result = self.overridden(
                self.reduce_outputs, "output", part, number, lambda: plain(part, *received.args, **received.kwargs)
            )
        self.capture("output", part, number, result)
        return result

    def overridden(self, reduce: Reduce, kind: Kind, part: nn.Module, number: int, original: Callable[[], Any]) -> Any:
        overrides = [one for one in self.overrides if one.concerns(kind, part, number)]
        value = original()
        if not overrides:
            return value
        for one in overrides:
            one.applied = True
        return reduce(overrides, value)

    def capture(self, kind: Kind, part: nn.Module, number: int, value: Any) -> None:
        offered = [one.offer(kind, part, number, value) for one in self.captures]
        # With the result of the module itself its forward has ended, and there is nothing left to leave.
        ended = part is self.outermost and kind == "output"
        if self.early_exit and any(offered) and not ended and not any(one.awaited for one in self.captures):
            raise Exit

    def never_reached(self) -> list[Source | Destination]:
        """The ports that a forward which ran to its end did not pass."""
        if not self.finished:
            return []
        missing: list[Source | Destination] = [one.source for one in self.captures if not one.seen]
        return missing + [one.destination for one in self.overrides if not one.applied]

    def changed_later(self) -> list[tuple[Source, bool]]:
        """The captures whose value the module changed after the capture, and whether that is beyond doubt."""
        return [
            (one.source, one.was_changed()) for one in self.captures if one.was_changed() or one.may_count_as_changed()
        ]


@contextmanager
def every_call_through(call: Callable[..., Any]) -> Iterator[None]:
    plain = nn.Module.__call__

    def through(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return call(plain, self, args, kwargs)

    nn.Module.__call__ = through  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.__call__ = plain  # type: ignore[method-assign]
