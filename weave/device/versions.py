"""Noticing in-place changes: a value's tensors with their version counters, as they were when the value was delivered.

The counter is shared by a tensor, its views and its `.detach()`; `.data` and inference tensors escape it.
"""

from __future__ import annotations

from typing import Any

import torch

from weave.graph.args import InputArgs
from weave.graph.structure import leaves

# Types of which no value holds a tensor: the common ones, tested first because most functions of a graph give them.
WITHOUT_TENSORS = frozenset({int, float, bool, str, bytes, complex, type(None), type})


class Mark:
    """The tensors in a value and their versions.

    `since`: how many firings had ended; `waiting`: how many of its readings are not over, by consumers and, where it
    was delivered in the middle of a firing, by that.
    """

    __slots__ = ("__weakref__", "pairs", "since", "waiting")

    def __init__(self, pairs: tuple[tuple[torch.Tensor, int], ...], since: int, waiting: int) -> None:
        self.pairs = pairs
        self.since = since
        self.waiting = waiting

    def changed(self) -> bool:
        """Whether a tensor was changed in place since."""
        return any(tensor._version != version for tensor, version in self.pairs)


def mark(value: Any, since: int = 0, waiting: int = 1) -> Mark | None:
    """A mark of a value, `None` where it holds no tensor that counts its versions."""
    if type(value) in WITHOUT_TENSORS:
        return None
    if isinstance(value, torch.Tensor):
        if value.is_inference():
            return None
        return Mark(((value, value._version),), since, waiting)
    if not isinstance(value, list | tuple | dict | InputArgs):
        return None
    pairs = tuple((x, x._version) for x in leaves(value) if isinstance(x, torch.Tensor) and not x.is_inference())
    return Mark(pairs, since, waiting) if pairs else None
