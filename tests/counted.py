"""Work counted in function calls, and a stack that is nearly used up: the same on any machine, however busy."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def shallow(more: int = 60) -> Iterator[None]:
    """Hardly more frames than now: code that recurses once a node fails."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + more)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def calls_of(work: Callable[[], Any]) -> int:
    """How many Python functions are called."""
    count = 0

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
