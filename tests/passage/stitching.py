"""The few words in which the tests here say a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

import weave
from weave.passage.touch import ATTRIBUTE

EXT = weave.ExternalTarget()


def knot(*stitches: tuple[Any, Any], **options: Any) -> weave.StitchedModule:
    needle = weave.Needle()
    for source, destination in stitches:
        needle.stitch(source, destination)
    return needle.knot(**options)


def ports(
    module: nn.Module,
    outputs: Sequence[str] = (),
    inputs: Sequence[str] = (),
    *,
    new_outputs: Sequence[str] = (),
    new_inputs: Sequence[str] = (),
    **options: Any,
) -> weave.StitchedModule:
    """One module; external names are its ports' names. `""` takes the external input `"x"`, if nothing new."""
    m = weave.ModuleTarget("m", module)
    stitches: list[tuple[Any, Any]] = [] if "" in (*new_inputs, *new_outputs) else [(EXT.input("x"), m.input(""))]
    stitches += [(EXT.input(name), m.input(name)) for name in new_inputs]
    stitches += [(EXT.output(name), m.output(name)) for name in new_outputs]
    stitches += [(m.output(name), EXT.output(name)) for name in outputs]
    stitches += [(m.input(name), EXT.input(name)) for name in inputs]
    return knot(*stitches, **options)


def touched(module: nn.Module) -> list[str]:
    """The submodules that weave holds on to now."""
    return [name for name, m in module.named_modules() if ATTRIBUTE in m.__dict__]


def keeps_kwargs(acc: Any, value: Any, original: Any, index: int, every: Any) -> Any:
    """The reducer of the seed's own programs: the first positional replaced, everything else as it was called."""
    return value + original.drop_args(0)


def adds(acc: Any, value: Any, original: Any, index: int, every: Any) -> Any:
    """What the submodule returned, plus what the stitch brings."""
    return (original if index == 0 else acc) + value


ADDS = weave.OutputReducer(adds, requires_original_output=True)
