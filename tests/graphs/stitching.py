"""A described graph through weave's public API, and what came of a run of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

import weave

from .description import Destination, Given, Graph, Materials, Source
from .vocabulary import RAISED, REQUIRING_OUTPUT_REDUCERS, TRACE
from .ways import INLINE, given_in


def targets_of(graph: Graph, materials: Materials) -> list[Any]:
    made: list[Any] = []
    for place, target in enumerate(graph.targets):
        match target.kind:
            case "external":
                made.append(weave.ExternalTarget())
            case "constant":
                made.append(weave.ConstantTarget(target.name, materials.constant(place, weave.InputArgs)))
            case "function":
                function = given_in(target.way, materials.function(place, weave.InputArgs))
                made.append(weave.FunctionTarget(target.name, function, inline=target.way in INLINE))
            case "module":
                made.append(weave.ModuleTarget(target.name, materials.models[target.what]))
    return made


def reducer_of(end: Destination, reduction: Any) -> Any:
    if end.kind == "input":
        return weave.InputReducer(reduction)
    return weave.OutputReducer(reduction, requires_original_output=end.reducer in REQUIRING_OUTPUT_REDUCERS)


def needle_of(graph: Graph, materials: Materials) -> Any:
    targets = targets_of(graph, materials)

    def descriptor(end: Source | Destination, adapter: Any, reduction: Any = None) -> Any:
        words: dict[str, Any] = {}
        if adapter is not None:
            words["adapter"] = "clone" if end.adapter == "clone" else adapter
        if isinstance(end, Destination) and reduction is not None:
            words["reducer"] = reducer_of(end, reduction)
        if end.call is not None:
            words["call"] = end.call
        named = graph.targets[end.target].kind in ("external", "module")
        port = getattr(targets[end.target], end.kind)
        return port(end.port, **words) if named else port(**words)

    sources = [
        descriptor(end, materials.source_adapter(place, weave.InputArgs)) for place, end in enumerate(graph.sources)
    ]
    destinations = [
        descriptor(
            end,
            materials.destination_adapter(place, weave.InputArgs),
            materials.reduction(place, weave.InputArgs),
        )
        for place, end in enumerate(graph.destinations)
    ]
    needle = weave.Needle()
    for source, destination in graph.stitches:
        needle.stitch(sources[source], destinations[destination])
    return needle


def stitched_of(graph: Graph, materials: Materials) -> Any:
    return needle_of(graph, materials).knot(early_exit=graph.early_exit, ignore_extra_overrides=graph.ignore_extra)


@dataclass
class Result:
    """What a run gave: its output or its error, what it was called with, and what ran."""

    given: Given
    output: Any
    error: BaseException | None
    trace: list[str]


def result_of(stitched: Any, materials: Materials) -> Result:
    given = materials.given(weave.InputArgs)
    TRACE.clear()
    RAISED.clear()
    # The error stays out of this frame's variables: its traceback holds the frame, and they would hold each other.
    return Result(given, *called(stitched, given))


def called(stitched: Any, given: Given) -> tuple[Any, BaseException | None, list[str]]:
    try:
        output = stitched(given.input_overrides, given.output_overrides, *given.args, **given.kwargs)
    except Exception as error:
        return None, error, list(TRACE)
    return output, None, list(TRACE)


async def awaited_result_of(stitched: Any, materials: Materials, factor: float = 1.0, *, alone: bool = True) -> Result:
    """`result_of`, by `await stitched.run(...)`. Not `alone`: other runs go on, whose trace and errors are kept."""
    given = materials.given(weave.InputArgs, factor)
    if alone:
        TRACE.clear()
        RAISED.clear()
    return Result(given, *await awaited(stitched, given))


async def awaited(stitched: Any, given: Given) -> tuple[Any, BaseException | None, list[str]]:
    try:
        output = await stitched.run(given.input_overrides, given.output_overrides, *given.args, **given.kwargs)
    except Exception as error:
        return None, error, list(TRACE)
    return output, None, list(TRACE)


def state_of(modules: list[nn.Module]) -> dict[int, Any]:
    """Everything that a run must leave as it was: the type, what the instance and its class hold, the hooks."""

    def state(module: nn.Module) -> Any:
        held = {key: id(value) for key, value in vars(module).items() if not isinstance(value, bool)}
        hooks = {key: list(value) for key, value in vars(module).items() if key.endswith("_hooks")}
        return type(module), held, hooks, list(vars(type(module)))

    return {id(part): state(part) for module in modules for part in module.modules()}
