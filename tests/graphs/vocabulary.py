"""Every function, adapter, reducer and constant that a random graph may name.

All of them take whatever arrives (tensors, numbers, containers, a call's arguments), so that a random wiring computes
something instead of failing on a type, and what they compute depends on the structure of what they were given: on each
value's position, on its keyword, on tuple against list, on a call's arguments against their values.

A call's arguments are an `Args` for the naive evaluator, an `InputArgs` for weave: the vocabulary is told which.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

BATCH, WIDTH = 2, 4

# What ran, by label: one list for both evaluations, emptied before each.
TRACE: list[str] = []


class PlannedError(Exception):
    """Raised by the functions and modules of a graph that are there to raise."""


class Fuse:
    """Whether the functions and modules that are there to raise do raise."""

    burns = True


@contextmanager
def defused() -> Iterator[None]:
    """Nothing raises on purpose: what a run that failed would have given."""
    Fuse.burns = False
    try:
        yield
    finally:
        Fuse.burns = True


# Every planned error raised since the last `RAISED.clear()`: the caller must get one of these very objects.
RAISED: list[PlannedError] = []


def planned_error(label: str) -> PlannedError:
    error = PlannedError(label)
    RAISED.append(error)
    return error


def is_args(value: Any) -> bool:
    """Whether the value is a call's arguments, the evaluator's or weave's."""
    return hasattr(value, "args") and hasattr(value, "kwargs") and hasattr(value, "drop_args")


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every tensor and number in a value, with a path that tells the containers apart."""
    if isinstance(value, (Tensor, int, float)):
        yield path, value
    elif is_args(value):
        yield from leaves(value.args, f"{path}*")
        yield from leaves(value.kwargs, f"{path}*")
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from leaves(value[key], f"{path}.{key}")
    elif isinstance(value, (list, tuple)):
        bracket = "[" if isinstance(value, list) else "("
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}{bracket}{index}")
    elif isinstance(value, str):
        yield f"{path}'{value}'", 1.0


def tensors(value: Any) -> list[Tensor]:
    return [leaf for _, leaf in leaves(value) if isinstance(leaf, Tensor)]


def mapped(value: Any, function: Callable[[Tensor], Any]) -> Any:
    """The value with every tensor replaced."""
    if isinstance(value, Tensor):
        return function(value)
    if is_args(value):
        return type(value)(
            *(mapped(item, function) for item in value.args),
            **{key: mapped(item, function) for key, item in value.kwargs.items()},
        )
    if isinstance(value, dict):
        return {key: mapped(item, function) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([mapped(item, function) for item in value])
    return value


def blend(*args: Any, **kwargs: Any) -> Tensor:
    """One (BATCH, WIDTH) tensor that depends on all the arguments and on where each stands.

    A single tensor is passed through as it is, so that one object can travel through many hands.
    """
    if len(args) == 1 and not kwargs and isinstance(args[0], Tensor) and args[0].shape == (BATCH, WIDTH):
        return args[0]
    found = list(leaves([list(args), kwargs]))
    total = torch.zeros(BATCH, WIDTH, dtype=torch.float64)
    for path, leaf in found:
        total = total + (0.25 + zlib.crc32(path.encode()) % 997 / 997) * leaf / len(found)
    return total


def changed_in_place(*args: Any, **kwargs: Any) -> Tensor:
    """The first tensor among the arguments, after adding 1 to it in place."""
    found = tensors([list(args), kwargs])
    if not found:
        return torch.ones(BATCH, WIDTH, dtype=torch.float64)
    # A parameter can't be changed in place while gradients are wanted: that would be torch's error, not the graph's.
    if found[0].is_leaf and found[0].requires_grad:
        return found[0] + 1.0
    return found[0].add_(1.0)


def noisy(tensor: Tensor) -> Tensor:
    """Another value at each call: the next of torch's random numbers, of which all threads share one sequence."""
    return tensor + torch.rand(())


@dataclass(frozen=True)
class Function:
    """A `FunctionTarget`'s function."""

    kind: str
    label: str
    args_class: type

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        TRACE.append(self.label)
        match self.kind:
            case "blend":
                return blend(*args, **kwargs)
            case "identity":
                return args[0] if args else None
            case "pair":
                return blend(*args, **kwargs), blend(*args, twice=True, **kwargs)
            case "mapping":
                return {"a": blend(*args, **kwargs), "b": [len(args), sorted(kwargs)]}
            case "args":
                return self.args_class(blend(*args, **kwargs), scale=2.0)
            case "number":
                return len(args) + 0.5
            case "none":
                return None
            case "raise":
                if Fuse.burns:
                    raise planned_error(self.label)
                return blend(*args, **kwargs)
            case "noise":
                return noisy(blend(*args, **kwargs))
            case "in_place":
                return changed_in_place(*args, **kwargs)
            case "in_place_quiet":
                return changed_in_place(*args, **kwargs) * 2.0
        raise AssertionError(self.kind)


FUNCTIONS = ("blend", "identity", "pair", "mapping", "args", "number", "none")
MODULE_FUNCTION = "linear"
IN_PLACE_FUNCTIONS = ("in_place", "in_place_quiet")
# What depends on how many random numbers have been drawn before: the evaluator's order is not the engine's, so these come
# only where two drivers of the engine are compared.
NOISE = "noise"
CONSTANTS = ("tensor", "parameter", "number", "pair", "none", "args", "string")


@dataclass(frozen=True)
class Adapter:
    """An adapter, of a source or of a destination."""

    kind: str
    args_class: type

    def __call__(self, value: Any) -> Any:
        match self.kind:
            case "double":
                return mapped(value, lambda tensor: tensor * 2.0)
            case "clone":
                return mapped(value, torch.clone)
            case "noise":
                return mapped(value, noisy)
            case "first":
                return value[0] if isinstance(value, (list, tuple)) and value else value
            case "wrap":
                return (value, 1.0)
            case "to_args":
                return self.args_class(value, extra=0.5)
            case "reverse":
                return self.args_class(*reversed(value.args), **value.kwargs)
            case "drop_keywords":
                return value.drop_kwargs()
            case "drop_scale":
                return value.drop_kwargs(["scale", "absent"])
            case "drop_first":
                return value.drop_args(0) if value.args else value
            case "spread":
                return self.args_class.from_value(value)  # type: ignore[attr-defined]
            case "keyword":
                return value if is_args(value) else self.args_class(given=value)
        raise AssertionError(self.kind)


# `None` is the default adapter, which gives the value back. "linear" is an `nn.Module`, "clone" weave's own.
OF_OUTPUT_SOURCE = ("double", "clone", "first", "wrap", "to_args", "linear")
OF_INPUT_SOURCE = ("double", "clone", "reverse", "drop_keywords", "drop_scale", "drop_first")
OF_INPUT_DESTINATION = ("double", "clone", "spread", "keyword")
OF_OUTPUT_DESTINATION = ("double", "clone", "first", "wrap", "linear")


@dataclass(frozen=True)
class InputReduction:
    """A `reducer_fn` of an input port."""

    kind: str
    args_class: type

    def __call__(self, acc: Any, value: Any, original: Any, index: int, all_values: list[Any]) -> Any:
        match self.kind:
            case "replace_positionals":
                return (original.drop_args() if index == 0 else acc) + value
            case "replace_first":
                return value + original.drop_args(slice(0, 1)) + acc.drop_args()
            case "drop_scale":
                return original.drop_kwargs(["scale"]).drop_args() + acc + value
            case "prepend":
                return value + acc
            case "last_only":
                return value if index == len(all_values) - 1 else acc
            case "all_at_once":
                return acc if index else self.args_class(blend(all_values, original), place=index)
            case "wrong_type":
                return (acc, value)
        raise AssertionError(self.kind)


@dataclass(frozen=True)
class OutputReduction:
    """A `reducer_fn` of an output port."""

    kind: str

    def __call__(self, acc: Any, value: Any, original: Any, index: int, all_values: list[Any]) -> Any:
        match self.kind:
            case "sum":
                return blend(acc, value)
            case "weigh":
                return blend(acc, value, index, len(all_values), all_values[0])
            case "observe":
                # Told the original only where another reducer on the port requires it.
                return blend(acc, value, original=original)
            case "with_original":
                return blend(acc, value, original=original)
            case "ignore_original":
                return value
        raise AssertionError(self.kind)


# `None` is the default: inputs are joined, of outputs the newest is taken. "linear" is an `nn.Module`.
INPUT_REDUCERS = ("replace_positionals", "replace_first", "drop_scale", "prepend", "last_only", "all_at_once")
PLAIN_OUTPUT_REDUCERS = ("sum", "weigh", "observe", "linear")
REQUIRING_OUTPUT_REDUCERS = ("with_original", "ignore_original")
