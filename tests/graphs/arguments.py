"""A call's arguments as a value, by its definition: the evaluator's own, so that weave's is held against it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Args:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = list(args)
        self.kwargs = dict(kwargs)

    def __add__(self, other: Args) -> Args:
        return Args(*self.args, *other.args, **{**self.kwargs, **other.kwargs})

    def __repr__(self) -> str:
        return f"Args(*{self.args!r}, **{self.kwargs!r})"

    def drop_args(self, which: int | slice | None = None) -> Args:
        kept = list(self.args)
        if which is None:
            kept = []
        else:
            del kept[which]
        return Args(*kept, **self.kwargs)

    def drop_kwargs(self, names: Iterable[str] | None = None) -> Args:
        gone = set(self.kwargs if names is None else names)
        return Args(*self.args, **{name: value for name, value in self.kwargs.items() if name not in gone})

    @classmethod
    def from_value(cls, value: Any) -> Args:
        if isinstance(value, Args):
            return value
        if type(value) in (list, tuple):
            return cls(*value)
        return cls(value)
