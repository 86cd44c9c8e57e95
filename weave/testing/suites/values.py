"""Values of examples: copies of them, whether two are the same, and what their gradients are."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from weave.graph.args import InputArgs
from weave.graph.structure import leaves, map_leaves


def fresh(value: Any) -> Any:
    """A copy that shares nothing: an example is used by many tests, and one of them may be of a plugin that changes it."""

    def copied(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().clone().requires_grad_(leaf.requires_grad)
        return copy.deepcopy(leaf)

    return map_leaves(copied, value)


def same(got: Any, expected: Any) -> bool:
    """Whether two values are the same: containers by type and content, tensors by dtype, shape and (nearly) content."""
    if isinstance(expected, torch.Tensor):
        return isinstance(got, torch.Tensor) and _same_tensors(got, expected)
    if isinstance(expected, InputArgs):
        return isinstance(got, InputArgs) and same(got.args, expected.args) and same(got.kwargs, expected.kwargs)
    if isinstance(expected, Mapping):
        return (
            type(got) is type(expected)
            and got.keys() == expected.keys()
            and all(same(got[k], expected[k]) for k in got)
        )
    if isinstance(expected, list | tuple):
        return type(got) is type(expected) and len(got) == len(expected) and all(map(same, got, expected))
    if isinstance(expected, float) and isinstance(got, float | int):
        return math.isclose(got, expected, rel_tol=1e-6, abs_tol=1e-9) or (math.isnan(got) and math.isnan(expected))
    equal: Any = got == expected
    return bool(equal.all()) if hasattr(equal, "all") else bool(equal)  # an array says it element by element


def _same_tensors(got: torch.Tensor, expected: torch.Tensor) -> bool:
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return False
    got, expected = got.detach().cpu(), expected.detach().cpu()
    if got.is_floating_point() or got.is_complex():
        return torch.allclose(got, expected, rtol=1e-4, atol=1e-6, equal_nan=True)
    return torch.equal(got, expected)


def versions(value: Any) -> list[int]:
    """How often each tensor in it was changed in place so far, as torch counts."""
    return [leaf._version for leaf in leaves(value) if isinstance(leaf, torch.Tensor) and not leaf.is_inference()]


def floats(value: Any) -> list[torch.Tensor]:
    """The tensors in a value that can have a gradient."""
    return [leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]


def with_gradients(value: Any) -> Any:
    """A copy whose floating-point tensors want gradients. Half precision becomes single: differences are taken of it."""

    def wanting(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
            small = leaf.dtype in (torch.float16, torch.bfloat16)
            return leaf.detach().to(torch.float32 if small else leaf.dtype).clone().requires_grad_()
        return leaf

    return map_leaves(wanting, fresh(value))


def weighed(result: Any) -> torch.Tensor | None:
    """A number that depends on every floating-point tensor in a result, each element with a weight of its own."""
    total: torch.Tensor | None = None
    for tensor in floats(result):
        weights = torch.linspace(0.5, 1.5, max(tensor.numel(), 1), dtype=torch.float64)[: tensor.numel()]
        part = (tensor.double() * weights.reshape(tensor.shape)).sum()
        total = part if total is None else total + part
    return total


def gradients(result: Any, values: Any) -> list[torch.Tensor | None] | None:
    """By tensor in `values`, the gradient of the weighed result. `None` where the result has no gradient at all."""
    total = weighed(result)
    if total is None or not total.requires_grad:
        return None
    return list(torch.autograd.grad(total, floats(values), allow_unused=True))


def wrong_gradients(function: Callable[[Any], Any], values: Any, found: list[torch.Tensor | None]) -> Iterator[str]:
    """Where gradients aren't what the function's differences say, tensor by tensor along one direction."""
    step = 1e-2
    for index, gradient in enumerate(found):
        tensor = floats(values)[index]
        direction = torch.cos(torch.arange(tensor.numel(), dtype=torch.float64)).reshape(tensor.shape).to(tensor.dtype)

        def moved(by: float, index: int = index, direction: torch.Tensor = direction) -> float:
            shifted = with_gradients(values)
            with torch.no_grad():
                floats(shifted)[index].add_(direction, alpha=by)
                total = weighed(function(shifted))
            return 0.0 if total is None else total.item()

        slope = (moved(step) - moved(-step)) / (2 * step)
        along = 0.0 if gradient is None else (gradient * direction).sum().item()
        if not math.isclose(along, slope, rel_tol=2e-2, abs_tol=2e-2):
            yield f"tensor {index}: {along:.4g} by autograd, {slope:.4g} by differences"
