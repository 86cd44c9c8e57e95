"""Containers that weave looks into: list, tuple, dict (their subclasses too) and `InputArgs`. Nothing else.

Objects of other kinds (caches, datasets, your dataclasses) are passed on as they are: what hides in them is theirs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from weave.graph.args import InputArgs

_PLAIN = (int, float, bool, str, bytes, complex, type(None))


def leaves(value: Any) -> Iterator[Any]:
    """What is in a value, containers opened, in order. Iterative, and a container that holds itself ends."""
    stack, opened = [value], set[int]()
    while stack:
        item = stack.pop()
        if type(item) in _PLAIN:
            yield item
        elif isinstance(item, list | tuple | dict | InputArgs):
            if id(item) in opened:
                continue
            opened.add(id(item))
            if isinstance(item, InputArgs):
                stack.extend(reversed([*item.args, *item.kwargs.values()]))
            else:
                stack.extend(reversed(list(item.values() if isinstance(item, dict) else item)))
        else:
            yield item


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """The same structure with `function` applied to what is in it. Containers keep their type; new objects are made."""
    if isinstance(value, InputArgs):
        return InputArgs.of(
            [map_leaves(function, v) for v in value.args], {k: map_leaves(function, v) for k, v in value.kwargs.items()}
        )
    if isinstance(value, dict):
        # copy.copy keeps the type with whatever it carries (a ModelOutput, a defaultdict's factory).
        new = {} if type(value) is dict else copy.copy(value)
        for k, v in list(value.items()):
            new[k] = map_leaves(function, v)
        return new
    if isinstance(value, list):
        items = [map_leaves(function, v) for v in value]
        if type(value) is list:
            return items
        same = copy.copy(value)
        same[:] = items
        return same
    if isinstance(value, tuple):
        items = [map_leaves(function, v) for v in value]
        if type(value) is tuple:
            return tuple(items)
        if hasattr(value, "_make"):  # a named tuple
            return type(value)._make(items)
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value  # a torch.Size, say: nothing in it changed
        return type(value)(items)
    return function(value)


def rebuild(value: Any, others: list[Any], function: Callable[..., Any]) -> Any:
    """Combine structures of one shape leaf by leaf: `function(leaf, *leaves of the others)`.

    Raises:
        ValueError: where the structures differ; the message says how.
    """
    for other in others:
        if _shape(other) != _shape(value):
            raise ValueError(f"values of different structure: {_shape(value)} and {_shape(other)}")
    columns = [iter(list(_ordered(other))) for other in others]
    return map_leaves(lambda leaf: function(leaf, *(next(c) for c in columns)), value)


def _ordered(value: Any) -> Iterator[Any]:
    """Leaves in the order in which `map_leaves` meets them (`leaves` skips a repeated container, this does not)."""
    gathered: list[Any] = []

    def keep(leaf: Any) -> Any:
        gathered.append(leaf)
        return leaf

    map_leaves(keep, value)
    return iter(gathered)


def _shape(value: Any) -> str:
    if isinstance(value, InputArgs):
        return f"InputArgs({', '.join([*map(_shape, value.args), *(f'{k}={_shape(v)}' for k, v in value.kwargs.items())])})"
    if isinstance(value, dict):
        return f"{type(value).__name__}({', '.join(f'{k!r}: {_shape(v)}' for k, v in value.items())})"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(map(_shape, value))})"
    return "·"
