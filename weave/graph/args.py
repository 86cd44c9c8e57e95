"""`InputArgs`: the arguments of a call, as one value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class InputArgs:
    """The arguments of one call: `args` (a list of the positionals) and `kwargs` (a dict of the keywords).

    `a + b` puts b's positionals behind a's and lets b's keywords win. Nothing here changes the operands.
    """

    __slots__ = ("args", "kwargs")

    args: list[Any]
    kwargs: dict[str, Any]

    def __init__(self, /, *args: Any, **kwargs: Any) -> None:
        self.args = list(args)
        self.kwargs = kwargs

    @classmethod
    def of(cls, args: Iterable[Any], kwargs: dict[str, Any]) -> InputArgs:
        """`InputArgs(*args, **kwargs)`, for keywords of any name and without unpacking them twice."""
        self = cls.__new__(cls)
        self.args = list(args)
        self.kwargs = kwargs
        return self

    @classmethod
    def from_value(cls, value: Any) -> InputArgs:
        """An `InputArgs` as it is; exactly a `list` or `tuple` spread over the positionals; else one positional.

        A string, a named tuple, a `torch.Size` or a `PackedSequence` is one value, not a sequence to spread.
        """
        if isinstance(value, InputArgs):
            return value
        if type(value) is list or type(value) is tuple:
            return cls.of(value, {})
        return cls.of((value,), {})

    def __add__(self, other: InputArgs) -> InputArgs:
        if not isinstance(other, InputArgs):
            return NotImplemented
        return InputArgs.of(self.args + other.args, {**self.kwargs, **other.kwargs})

    def drop_args(self, index: int | slice | None = None) -> InputArgs:
        """A copy without one positional, a slice of them, or (`None`) any. `IndexError` where there is no such one."""
        if index is None:
            return InputArgs.of((), dict(self.kwargs))
        kept = list(self.args)
        try:
            del kept[index]
        except IndexError:
            raise IndexError(
                f"drop_args({index}): this call has {len(kept)} positional argument(s) and the keywords "
                f"{sorted(self.kwargs)}; use drop_kwargs(...) for an argument that was passed by name"
            ) from None
        return InputArgs.of(kept, dict(self.kwargs))

    def drop_kwargs(self, names: Iterable[str] | None = None) -> InputArgs:
        """A copy without the keywords of these names (absent ones are ignored), or (`None`) without any."""
        if names is None:
            return InputArgs.of(self.args, {})
        dropped = {names} if isinstance(names, str) else set(names)
        return InputArgs.of(self.args, {k: v for k, v in self.kwargs.items() if k not in dropped})

    def __repr__(self) -> str:
        said = [repr(a) for a in self.args] + [f"{k}={v!r}" for k, v in self.kwargs.items()]
        return f"InputArgs({', '.join(said)})"
