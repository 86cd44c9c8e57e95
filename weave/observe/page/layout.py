"""Where the boxes of a graph stand: `(column, row)` in halves of a box, rows downwards in the direction of the values.

By igraph's Sugiyama layout where igraph is installed. The page doesn't depend on it: without it, and where a layer is
so wide that no order in it helps the eye, boxes stand by depth, each below the middle of what it takes its values from.
"""

from __future__ import annotations

from math import isqrt

from weave.graph.layout import MOST, columns
from weave.observe.trace import Graph

Place = tuple[int, int]


def places(graph: Graph) -> list[Place]:
    """By unit, its column and row, from 0."""
    if not graph.units:
        return []
    sources = _sources(graph)
    depth = _depths(sources)
    across = [0] * (max(depth) + 1)
    for layer in depth:
        across[layer] += 1
    # A layer of hundreds would make a picture of a line: it is folded, so that the whole stays about three times as
    # wide as high.
    widest = max(12, 3 * isqrt(len(graph.units)))
    passing = sum(depth[unit] - depth[source] - 1 for unit, some in enumerate(sources) for source in some)
    if max(across) <= widest and len(sources) + passing <= MOST:
        try:
            return _by_igraph(sources, depth)
        except ModuleNotFoundError:  # an optional extra, and the page needs no other
            pass
    return _by_depth(sources, depth, widest)


def _sources(graph: Graph) -> list[list[int]]:
    """By unit, the units that it takes values from, each once. Units stand in topological order."""
    sources: list[dict[int, None]] = [{} for _ in graph.units]
    for stitch in graph.stitches:
        if 0 <= stitch.producer < stitch.consumer:
            sources[stitch.consumer][stitch.producer] = None
    return [list(some) for some in sources]


def _depths(sources: list[list[int]]) -> list[int]:
    depth: list[int] = []
    for some in sources:
        depth.append(1 + max((depth[source] for source in some), default=-1))
    return depth


def _by_igraph(sources: list[list[int]], depth: list[int]) -> list[Place]:
    layers, ways = list(depth), []
    for unit, some in enumerate(sources):
        for source in some:  # a stitch has a place of its own in each layer that it passes
            passes = range(depth[source] + 1, depth[unit])
            ways.append([source, *range(len(layers), len(layers) + len(passes)), unit])
            layers += passes
    return _squeezed(columns(layers, ways)[: len(depth)], depth)


def _squeezed(across: list[float], depth: list[int]) -> list[Place]:
    """Boxes moved together, in the order that they have.

    igraph keeps a column free for each stitch that passes a layer by, which spreads the boxes so far that none can be
    read. Columns are taken out where no layer needs them; where a drawing drifts sideways all the same, as that of a
    deep graph does, each layer is centred by itself.
    """
    column: list[int] = [0] * len(across)
    free = [0] * (max(depth) + 1)  # by layer, the first column on which its next box can stand
    now, before = 0, None
    for unit in sorted(range(len(across)), key=across.__getitem__):
        if before is not None and across[unit] > before:
            now += 1
        now, before = max(now, free[depth[unit]]), across[unit]
        column[unit] = now
        free[depth[unit]] = now + 2
    layers: list[list[int]] = [[] for _ in free]
    for unit in sorted(range(len(across)), key=column.__getitem__):
        layers[depth[unit]].append(unit)
    widest = max(len(layer) for layer in layers)
    if max(column) > 5 * widest:
        for layer in layers:
            for place, unit in enumerate(layer):
                column[unit] = 2 * place + widest - len(layer)
    return list(zip(column, depth, strict=True))


def _by_depth(sources: list[list[int]], depth: list[int], widest: int) -> list[Place]:
    layers: list[list[int]] = [[] for _ in range(max(depth) + 1)]
    for unit, layer in enumerate(depth):
        layers[layer].append(unit)
    middle: list[float] = [0.0] * len(sources)
    placed: list[Place] = [(0, 0)] * len(sources)
    row = 0
    for units in layers:
        wished = {unit: sum(middle[s] for s in sources[unit]) / max(1, len(sources[unit])) for unit in units}
        order = sorted(units, key=lambda unit: (wished[unit], unit))
        for first in range(0, len(order), widest):
            fold = order[first : first + widest]
            for place, unit in enumerate(fold):
                middle[unit] = 2 * place - (len(fold) - 1)
                placed[unit] = (2 * place - (len(fold) - 1), row)
            row += 1
    left = min(column for column, _ in placed)
    return [(column - left, row) for column, row in placed]
