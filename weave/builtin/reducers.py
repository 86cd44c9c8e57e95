"""The built-in reducers. The arithmetic ones work leaf by leaf on values of equal structure and refuse others."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from weave.errors import StitchedModuleException
from weave.graph.args import InputArgs
from weave.graph.reducers import default_input_reducer_fn, default_output_reducer_fn
from weave.graph.structure import rebuild
from weave.spi.hooks import hookimpl
from weave.spi.records import ReducerDef

Fn = Callable[..., Any]


def _first(acc: Any, value: Any, original: Any, index: int, every: list[Any]) -> Any:
    return value if index == 0 else acc


def _last(acc: Any, value: Any, original: Any, index: int, every: list[Any]) -> Any:
    return value


def _keep_kwargs(acc: InputArgs, value: InputArgs, original: InputArgs, index: int, every: Any) -> InputArgs:
    if index == 0:
        acc = original.drop_args()
    return acc + value


def _all_at_once(name: str, combine: Fn) -> Fn:
    """A reducer that is due when the last stitch has brought its value. A node's gradient flows to each of them."""

    def reducer(acc: Any, value: Any, original: Any, index: int, every: list[Any]) -> Any:
        if index < len(every) - 1:
            return value
        try:
            return rebuild(every[0], every[1:], combine)
        except (ValueError, TypeError) as error:
            raise StitchedModuleException(f'reducer "{name}": {error}') from error

    return reducer


def _sum(*leaves: Any) -> Any:
    return functools.reduce(lambda a, b: a + b, leaves)


def _mean(*leaves: Any) -> Any:
    return _sum(*leaves) / len(leaves)


def _max(*leaves: Any) -> Any:
    if isinstance(leaves[0], torch.Tensor):
        return functools.reduce(torch.maximum, leaves)
    return max(leaves)


def _stack(*leaves: Any) -> Any:
    return torch.stack(leaves)


def _add_original(acc: Any, value: Any, original: Any, index: int, every: list[Any]) -> Any:
    before = original if index == 0 else acc
    try:
        return rebuild(before, [value], _sum)
    except (ValueError, TypeError) as error:
        raise StitchedModuleException(f'reducer "add_original": {error}') from error


@hookimpl
def weave_reducers() -> list[ReducerDef]:
    """`concat`, `last`, `first`, `sum`, `mean`, `max`, `stack`, `keep_kwargs`, `add_original`."""
    both: dict[str, tuple[Fn, Fn]] = {
        "first": (_first, _first),
        "last": (_last, default_output_reducer_fn),
        **{
            name: (_all_at_once(name, combine),) * 2
            for name, combine in (("sum", _sum), ("mean", _mean), ("max", _max), ("stack", _stack))
        },
    }
    defs = [ReducerDef(name=n, fn=fns[0], kind="input") for n, fns in both.items()]
    defs += [ReducerDef(name=n, fn=fns[1], kind="output") for n, fns in both.items()]
    return [
        *defs,
        ReducerDef(name="concat", fn=default_input_reducer_fn, kind="input"),
        ReducerDef(name="keep_kwargs", fn=_keep_kwargs, kind="input"),
        ReducerDef(name="add_original", fn=_add_original, kind="input"),
        ReducerDef(name="add_original", fn=_add_original, kind="output", requires_original_output=True),
    ]
