"""Reducers join what several stitches bring to one port: `acc = reducer(acc, value, original, index, all_values)`.

Each stitch's own reducer is called in turn, in stitch order. At an input `acc` starts as an empty `InputArgs()` and the
default is `acc + value`, so that several stitches fill one call's arguments. At an output `acc` starts as `None` and
the default takes the newest value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

from weave.errors import StitchedModuleException
from weave.graph.args import InputArgs

OutputValue: TypeAlias = Any


def default_input_reducer_fn(acc: InputArgs, input_override: InputArgs, *args: Any) -> InputArgs:
    """`acc + input_override`: positionals one behind the other, the newest keyword of a name wins."""
    return acc + input_override


def default_output_reducer_fn(acc: OutputValue, input_override: OutputValue, *args: Any) -> OutputValue:
    """The newest value."""
    return input_override


class IOReducer:
    """What `InputReducer` and `OutputReducer` have in common."""


@dataclass(eq=False)
class InputReducer(IOReducer):
    """How a stitch joins the arguments at an input port.

    `reducer_fn(acc, value, original, index, all_values)`: all but `index` are `InputArgs`; `original` is what the
    submodule was called with (empty for a function). It may be an `nn.Module`. Must return an `InputArgs`.
    """

    reducer_fn: Callable[[InputArgs, InputArgs, InputArgs, int, list[InputArgs]], InputArgs] = default_input_reducer_fn

    @classmethod
    def default(cls) -> Self:
        """One that appends."""
        return cls()

    def __call__(
        self, acc: InputArgs, value: InputArgs, original: InputArgs, index: int, every: list[InputArgs]
    ) -> InputArgs:
        """One step of the reduction."""
        return self.reducer_fn(acc, value, original, index, every)


@dataclass(eq=False)
class OutputReducer(IOReducer):
    """How a stitch joins the value at an output port.

    `reducer_fn(acc, value, original, index, all_values)`. `original` is what the submodule returned, if any reducer on
    that port has `requires_original_output=True` (then the submodule runs), else `None` (then it does not run at all).
    """

    reducer_fn: Callable[[OutputValue, OutputValue, OutputValue | None, int, list[OutputValue]], OutputValue] = (
        default_output_reducer_fn
    )
    requires_original_output: bool = False

    @classmethod
    def default(cls) -> Self:
        """One that takes the newest value."""
        return cls()

    def __call__(
        self, acc: OutputValue, value: OutputValue, original: OutputValue | None, index: int, every: list[OutputValue]
    ) -> OutputValue:
        """One step of the reduction."""
        return self.reducer_fn(acc, value, original, index, every)


# One object for everybody who asks for the default: a reducer has no state of its own.
DEFAULT_INPUT_REDUCER = InputReducer()
DEFAULT_OUTPUT_REDUCER = OutputReducer()


def reduce_inputs(
    reducers: Sequence[Callable[..., Any] | None], values: Sequence[InputArgs], original: InputArgs, said: str
) -> InputArgs:
    """What stitches bring to an input port, each by its own reducer (`None`: the default), in order.

    Raises:
        StitchedModuleException: a reducer returned something other than an `InputArgs`; `said` names the port.
    """
    acc = InputArgs()
    ours = True  # nobody else has seen `acc`, so it may grow in place: thousands of stitches on a port stay linear
    every = list(values)
    for index, (reducer, value) in enumerate(zip(reducers, values, strict=True)):
        if reducer is not None:
            acc, ours = reducer(acc, value, original, index, every), False
        elif ours:
            acc.args += value.args
            acc.kwargs.update(value.kwargs)
        else:
            acc, ours = acc + value, True
        if not isinstance(acc, InputArgs):
            raise StitchedModuleException(
                f"the reducer of {said} returned a {type(acc).__name__}: at an input it must return an InputArgs"
            )
    return acc


def reduce_outputs(reducers: Sequence[Callable[..., Any] | None], values: Sequence[Any], original: Any) -> Any:
    """What stitches bring to an output port, each by its own reducer (`None`: the default), in order."""
    acc = None
    every = list(values)
    for index, (reducer, value) in enumerate(zip(reducers, values, strict=True)):
        acc = value if reducer is None else reducer(acc, value, original, index, every)
    return acc
