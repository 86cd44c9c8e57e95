"""Whether a run gave what the evaluator says: values, which objects they are, gradients, errors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import weave

from .description import Given, Graph, Materials
from .naive import Due, Outcome
from .stitching import Result
from .vocabulary import RAISED, PlannedError, is_args, tensors


def difference(found: Any, expected: Any, path: str = "") -> str | None:
    """Where the two differ, for a reader; None where they are the same to the last bit."""
    if is_args(expected):
        if type(found) is not weave.InputArgs:
            return f"{path}: {type(found).__name__} instead of InputArgs"
        return difference(found.args, expected.args, f"{path}.args") or difference(
            found.kwargs, expected.kwargs, f"{path}.kwargs"
        )
    if isinstance(expected, Tensor) and isinstance(found, Tensor):
        # A parameter may be held against its twin, which is none: which object it is, `origins` says.
        if found.requires_grad != expected.requires_grad:
            return f"{path}: requires_grad is {found.requires_grad}"
        return None if torch.equal(found, expected) else f"{path}: {found} instead of {expected}"
    if type(found) is not type(expected):
        return f"{path}: {type(found).__name__} {found!r} instead of {type(expected).__name__} {expected!r}"
    if isinstance(expected, dict):
        if found.keys() != expected.keys():
            return f"{path}: the keys {sorted(found)} instead of {sorted(expected)}"
        return _first(difference(found[key], expected[key], f"{path}[{key!r}]") for key in expected)
    if isinstance(expected, (list, tuple)):
        if len(found) != len(expected):
            return f"{path}: {len(found)} items instead of {len(expected)}"
        pairs = enumerate(zip(found, expected, strict=True))
        return _first(difference(one, other, f"{path}[{i}]") for i, (one, other) in pairs)
    return None if found == expected else f"{path}: {found!r} instead of {expected!r}"


def _first(differences: Any) -> str | None:
    return next((one for one in differences if one is not None), None)


def origins(captured: list[Any], given: Given, materials: Materials) -> list[str]:
    """What each captured tensor is: one that was given, a constant, a parameter, or the same as an earlier one."""
    names = {id(tensor): place for tensor, place in given.places}
    names |= {id(parameter): f"constant {i}" for i, parameter in materials.parameters.items()}
    names |= {id(tensor): f"constant {i}" for i, pair in materials.constants.items() for tensor in pair}
    return [names.setdefault(id(tensor), f"new {index}") for index, tensor in enumerate(tensors(captured))]


def gradients(captured: list[Any], materials: Materials) -> list[Tensor | None] | RuntimeError:
    """The gradient of the sum of all that was captured; the error where torch can't compute it."""
    leaves = materials.differentiable()
    for leaf in leaves:
        leaf.grad = None
    total = [tensor.sum() for tensor in tensors(captured) if tensor.requires_grad]
    if total:
        try:
            torch.stack(total).sum().backward()  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            return error
    return [leaf.grad for leaf in leaves]


def gradients_differ(
    found: list[Tensor | None] | RuntimeError, expected: list[Tensor | None] | RuntimeError, outcome: Outcome
) -> str | None:
    if isinstance(found, RuntimeError) or isinstance(expected, RuntimeError):
        # Torch refuses a backward through what was changed in place since. The evaluator's consumers have twins of
        # their own, so that it may get through where a run, whose consumers share one object, can't.
        both = isinstance(found, RuntimeError) and isinstance(expected, RuntimeError)
        excused = outcome.consumer_changed and "modified by an inplace operation" in str(found)
        return None if both or excused else f"backward gave {found!r} instead of {expected!r}"
    for index, (one, other) in enumerate(zip(found, expected, strict=True)):
        if (one is None) != (other is None):
            return f"gradient {index} is {one} instead of {other}"
        # Sums of several gradients are built in the order of the nodes, which is not the evaluator's.
        if one is not None and other is not None and not torch.allclose(one, other, rtol=1e-9, atol=1e-12):
            return f"gradient {index} is {one} instead of {other}"
    return None


def is_due(error: BaseException | None, due: Due, graph: Graph) -> bool:
    message = str(error)
    if due.kind == "raised":
        if isinstance(due.error, PlannedError):
            return str(due.error) == message and any(error is one for one in RAISED)
        return type(error) is type(due.error) and str(due.error) == message.replace("InputArgs", "Args")
    if due.kind == "overrides":
        named = graph.withheld + (() if graph.ignore_extra else graph.extra)
        return isinstance(error, weave.OverridesException) and all(name in message for name in named)
    types: dict[str, type[BaseException]] = {
        "changed": weave.ChangedInPlaceException,
        "unreached": weave.PortNotReachedException,
        "refused": weave.StitchedModuleException,
        "wrong type": weave.StitchedModuleException,
    }
    return isinstance(error, types[due.kind]) and all(word in message for word in due.words)


def independent(error: BaseException) -> list[BaseException]:
    """What a run raised, node by node; nothing where a group is not what a group may be.

    Where several nodes were under way and failed, a run raises all that they raised, in one group: nothing that stands
    alone and no group in a group, each with a note that names another node.
    """
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    nodes = {note for one in error.exceptions for note in one.__notes__ if "raised in node" in note}
    plain = not any(isinstance(one, BaseExceptionGroup) for one in error.exceptions)
    return list(error.exceptions) if plain and len(nodes) == len(error.exceptions) > 1 else []


def disagreement(result: Result, outcome: Outcome, graph: Graph, *, on_a_loop: bool = False) -> str | None:
    """What of the run's values or of its error is not as the evaluator says."""
    if result.error is not None:
        dues = outcome.dues + outcome.dues_on_a_loop * on_a_loop
        errors = independent(result.error) if on_a_loop else [result.error]
        if errors and all(any(is_due(error, due, graph) for due in dues) for error in errors):
            return None
        return f"raised {result.error!r}, due: {dues}"
    if outcome.fails:
        return f"raised nothing, due: {outcome.dues}"
    return difference(result.output.captured_inputs, outcome.captured_inputs, "captured_inputs") or difference(
        result.output.captured_outputs, outcome.captured_outputs, "captured_outputs"
    )
