"""What a value looks like, without what is in it: shapes, dtypes and bytes.

In two steps, because the first is in the run's way: `facts` takes from a value what it takes to say it, holding nothing
of the value; `text` and `size` say it, elsewhere and later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from weave.graph.args import InputArgs

# Of a container so many elements are looked at, so deep: enough for what models return.
_MOST, _DEEP = 8, 3

Facts = (
    Any  # a tensor's (shape, dtype); a name; a container's [name, number of elements, keys or None, facts of the first]
)


def facts(value: Any, deep: int = _DEEP) -> Facts:
    """What `text` needs to know of a value."""
    if isinstance(value, torch.Tensor):
        try:
            return (value.shape, value.dtype)
        except Exception:  # a subclass may refuse anything
            return type(value).__name__
    if isinstance(value, InputArgs):
        value = (
            (*value.args, *value.kwargs.values())
            if not value.kwargs
            else {**dict(enumerate(value.args)), **value.kwargs}
        )
    if value is None or not isinstance(value, list | tuple | Mapping):
        return "None" if value is None else type(value).__name__
    if not deep:
        return type(value).__name__
    try:
        keys = None
        elements = value
        if isinstance(value, Mapping):
            keys = [str(key) for key, _ in zip(value, range(_MOST), strict=False)]
            elements = list(value.values())
        shown = [facts(element, deep - 1) for element in elements[:_MOST]]
        return [type(value).__name__, len(value), keys, shown]
    except Exception:  # a mapping of the user's own may do anything
        return type(value).__name__


def text(said: Facts) -> str:
    """How people write it: `float32[8, 16]`, `(float32[8, 16], None)`, `{logits: float32[2, 5]}`."""
    if isinstance(said, str):
        return said
    if isinstance(said, tuple):
        shape, dtype = said
        return f"{str(dtype).removeprefix('torch.')}[{', '.join(map(str, shape))}]"
    name, count, keys, shown = said
    parts = [text(element) for element in shown]
    if keys is not None:
        parts = [f"{key}: {part}" for key, part in zip(keys, parts, strict=False)]
    if count > len(parts):
        parts.append(f"... {count - len(parts)} more")
    inside = ", ".join(parts)
    if keys is not None:
        return f"{{{inside}}}" if name == "dict" else f"{name}({inside})"
    if name == "list":
        return f"[{inside}]"
    return f"({inside})" if name == "tuple" else f"{name}({inside})"


def size(said: Facts) -> int:
    """Bytes of the tensors in it, as far as they were looked at."""
    if isinstance(said, str):
        return 0
    if isinstance(said, tuple):
        shape, dtype = said
        return int(shape.numel()) * int(dtype.itemsize)
    return sum(size(element) for element in said[3])
