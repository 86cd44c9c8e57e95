"""What a forward did not pass: captures without a value, overrides that were not used, and why that may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from weave.errors import PortNotReachedException
from weave.graph.descriptors import IODescriptor, port_text
from weave.passage.table import Station

if TYPE_CHECKING:
    from weave.passage.passage import Passage


def missed(passage: Passage) -> None:
    """Raise `PortNotReachedException` where a forward that ran to its end did not do all that the graph wants of it."""
    node = passage.table.node
    found: list[tuple[Station, IODescriptor, str]] = []
    for station in passage.table.stations.values():
        for capture in (*station.entering, *station.leaving):
            if not passage.captured[capture.place]:
                found.append((station, capture.port.exits[0].port, "captured"))
        for over in (station.into, station.out_of):
            for edge in over.port.edges if over is not None else ():
                if edge.slot not in passage.applied:
                    found.append((station, edge.port, "overridden, in vain"))
    if not found:
        return
    lines = [f"the forward of {node!r} ended without passing:"]
    for station, port, wish in found:
        lines.append(f"  {port_text(port, node)} ({wish}): {_cause(passage, station, port)}")
    raise PortNotReachedException(
        "\n".join(dict.fromkeys(lines)), node=node, ports=tuple(port_text(p, node) for _, p, _ in found)
    )


def _cause(passage: Passage, station: Station, port: IODescriptor) -> str:
    calls = passage.calls[station.place]
    if calls:
        return f"{port.name!r} was called {calls} time(s), and call={port.call} counts from 0"
    path, now = "", passage.table.root
    for part in port.name.split(".") if port.name else ():
        path = f"{path}.{part}" if path else part
        child = now._modules.get(part)
        if child is None:
            return f"{path!r} is no longer there: it was removed or wrapped after the knot. Knot again"
        now = child
    if now is not station.module:
        return f"{port.name!r} was replaced after the knot (by a {type(now).__name__}). Knot again"
    return "it was not called for this input. Likely: " + "; ".join(_guesses(passage, port))


def _guesses(passage: Passage, port: IODescriptor) -> list[str]:
    parts = port.name.split(".") if port.name else []
    above = [passage.table.root]
    for part in parts[:-1]:
        above.append(above[-1]._modules[part])  # type: ignore[arg-type]
    guesses = []
    if any(hasattr(vars(m).get("forward", type(m).forward), "_torchdynamo_orig_callable") for m in above):
        guesses.append("a forward on the way is wrapped by torch.compile; compile the module instead: module.compile()")
    if any(isinstance(m, nn.TransformerEncoderLayer | nn.TransformerEncoder) for m in above):
        guesses.append(
            "nn.TransformerEncoderLayer's fused fast path, which calls no submodule "
            "(torch.backends.mha.set_fastpath_enabled(False) turns it off)"
        )
    if any(isinstance(m, nn.MultiheadAttention) for m in above):
        guesses.append("nn.MultiheadAttention uses the weights of its projections without calling them")
    guesses += [
        "the forward takes another branch",
        "its .forward() is called directly, past module(...)",
        "it lies inside a submodule whose output is overridden",
        "it is called in a thread or a compiled function that the forward makes itself",
    ]
    return guesses
