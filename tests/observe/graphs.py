"""Graphs that several of these tests run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weave import ExternalTarget, FunctionTarget, Needle
from weave.stitched import StitchedModule


def chain(*nodes: tuple[str, Callable[..., Any]]) -> StitchedModule:
    """The caller's x through functions by name, to y."""
    caller, needle = ExternalTarget(), Needle()
    before: Any = caller.input("x")
    for name, function in nodes:
        target = FunctionTarget(name, function)
        needle.stitch(before, target.input())
        before = target.output()
    return needle.stitch(before, caller.output("y")).knot()
