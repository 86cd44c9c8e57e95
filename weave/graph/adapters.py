"""Adapters map a value on its way: at the source port, and again at the destination port.

An adapter is any callable of one argument, an `nn.Module` (then it belongs to the `StitchedModule`), or the name of
one that weave or a plugin registers (`adapter="clone"`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from weave.graph.args import InputArgs

InputAdapter: TypeAlias = Callable[[InputArgs], InputArgs]
OutputAdapter: TypeAlias = Callable[..., Any]


def default_input_adapter_fn(input_values: InputArgs) -> InputArgs:
    """The arguments as they are."""
    return input_values


def default_output_adapter_fn(v: Any) -> Any:
    """The value as it is."""
    return v


IDENTITIES = (default_input_adapter_fn, default_output_adapter_fn)


class EachCall:
    """An adapter that runs at every call of a port with `call="last"` or `"all"`, as it happens."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, value: Any) -> Any:
        """Adapt one value."""
        return self.function(value)
