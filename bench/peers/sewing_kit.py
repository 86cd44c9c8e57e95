"""sewing_kit, out of the nvidia-modelopt wheel: the system whose API weave offers."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from bench.graphs import Graph


def load() -> ModuleType:
    """The package itself. It needs nothing but torch.

    Its parents (`modelopt.torch`) import a training stack of thirty packages to run their other halves, so it is loaded
    from where it lies, without them.
    """
    name = "modelopt.torch.puzzletron.sewing_kit"
    if name in sys.modules:
        return sys.modules[name]
    top = importlib.util.find_spec("modelopt")
    if top is None or not top.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'modelopt' (it comes with nvidia-modelopt)", name="modelopt")
    folder = Path(top.submodule_search_locations[0]).joinpath(*name.split(".")[1:])
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None or not (folder / "__init__.py").exists():
        raise ModuleNotFoundError(f"this modelopt has no {name}", name=name)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def needle(graph: Graph) -> Any:
    """One of our graphs of functions, not yet tied."""
    kit = load()
    caller, sewn = kit.ExternalTarget(), kit.Needle()
    wrap = kit.InputArgs.from_value  # it carries a function's result into a function's arguments only when told how
    targets = [kit.FunctionTarget(f"n{place}", function) for place, function in enumerate(graph.functions)]
    for target, feeders in zip(targets, graph.shape.feeds, strict=True):
        for feeder in feeders:
            sewn.stitch(targets[feeder].output(), target.input(adapter=wrap))
        if not feeders:
            sewn.stitch(caller.input("x"), target.input())
    for end in graph.shape.ends:
        sewn.stitch(targets[end].output(), caller.output(f"n{end}"))
    return sewn


def call(graph: Graph) -> Callable[[], list[Any]]:
    """A call of the knotted graph."""
    stitched, names = needle(graph).knot(), [f"n{end}" for end in graph.shape.ends]

    def run() -> list[Any]:
        out = stitched({"x": 1}, {}).captured_outputs
        return [out[name] for name in names]

    return run


def reading(api: Any, model: Any, ports: list[str]) -> Callable[[Any], list[Any]]:
    """Captures these ports' outputs. `api` is this package or weave: they offer the same names."""
    caller, target, sewn = api.ExternalTarget(), api.ModuleTarget("model", model), api.Needle()
    sewn.stitch(caller.input("x"), target.input(""))
    for port in ports:
        sewn.stitch(target.output(port), caller.output(port))
    stitched = sewn.knot()

    def run(x: Any) -> list[Any]:
        out = stitched({"x": x}, {}).captured_outputs
        return [out[port] for port in ports]

    return run
