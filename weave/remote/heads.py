"""What a head says: a plain value as it is, or an array that begins with one of these numbers. Caps on both sides.

[LIST, node...]  [TUPLE, node...]  [DICT, key node, node, ...]
[TENSOR, device, dtype, shape]  [TENSOR, device, dtype, shape, order of axes]    its bytes are the next frame
[BYTES, how many]                                                               they are the next frame
[OBJECT, registered name, node]
[LARGE_INT, bytes]  [SURROGATES, bytes]                                          what msgpack has no form for
"""

from __future__ import annotations

from typing import Any, TypeAlias

Node: TypeAlias = Any

LIST, TUPLE, DICT, TENSOR, LARGE_INT, BYTES, OBJECT, SURROGATES = range(8)

DEEPEST = 64  # containers in one another
MOST_ITEMS = 1 << 20
FRAMED = 4096  # bytes of so many are a frame: not copied, and not in the head, which has a limit of its own


def step(key: Any, fields: bool) -> str:
    """A place in a container, as people write it."""
    if type(key) is str:
        return f".{key}" if fields and key.isidentifier() else f"[{key[:60]!r}]"
    if type(key) is int and key.bit_length() < 64:
        return f"[{key}]"
    return f"[a {type(key).__name__}]"


def has_frames(said: Node) -> bool:
    """Whether frames belong to a node."""
    stack = [said]
    while stack:
        item = stack.pop()
        if type(item) is list and item:
            if item[0] == TENSOR or item[0] == BYTES:
                return True
            stack.extend(item[1:])
    return False
