"""Where boxes, labels and lines go. python-igraph orders layers and lays out columns; here these get widths and heights.

A label is a vertex of its own, in a layer between those of the boxes, so its place is nobody else's; where a line passes
through a layer it has a place there, too. igraph knows one gap for all, and boxes have widths of their own: its columns
are spread until everything in a layer has room. What it put into one column stays in one, so straight lines stay straight.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

MOST = 100_000  # places in layers, those that a line only passes through among them: some seconds of work
BESIDE, PASSING = 22.0, 10.0  # between two in a layer; the width of a line that passes through
MARGIN, BETWEEN = 16.0, 24.0

Size = tuple[float, float]


class Place(NamedTuple):
    """A rectangle: its middle (across), its top, its size."""

    x: float
    top: float
    width: float
    height: float


class Pass(NamedTuple):
    """Where a line crosses a layer: straight down at `x`, from `top` to `bottom`."""

    x: float
    top: float
    bottom: float


class Layout(NamedTuple):
    """Places by box and by link's label (`None` where it has none); by link, where its line passes from end to end."""

    boxes: list[Place]
    labels: list[Place | None]
    lines: list[list[Pass]]
    width: float
    height: float


class _Row(NamedTuple):
    """Everything that stands in layers, by number: boxes first, then labels, then the places where lines pass through."""

    layers: list[int]
    widths: list[float]
    heights: list[float]

    def add(self, layer: int, size: Size) -> int:
        self.layers.append(layer)
        self.widths.append(size[0])
        self.heights.append(size[1])
        return len(self.layers) - 1


def ranks_of(count: int, links: Sequence[tuple[int, int]], first: int = -1, last: int = -1) -> list[int]:
    """A rank for each box: below all that feeds it; what nothing feeds, right above what it feeds first.

    Boxes stand in topological order, but for `first` and `last` (the caller's two), which are above and below all others.
    """
    feeders: list[list[int]] = [[] for _ in range(count)]
    fed: list[list[int]] = [[] for _ in range(count)]
    for source, destination in links:
        feeders[destination].append(source)
        fed[source].append(destination)
    ranks = [0 if box == first or first < 0 else 1 for box in range(count)]
    inner = [box for box in range(count) if box not in (first, last)]
    for box in inner:
        ranks[box] = max([ranks[box], *(ranks[feeder] + 1 for feeder in feeders[box])])
    for box in inner:
        below = [ranks[consumer] for consumer in fed[box] if consumer != last]
        if not feeders[box] and below:
            ranks[box] = min(below) - 1
    if last >= 0:
        ranks[last] = 1 + max((rank for box, rank in enumerate(ranks) if box != last), default=0)
    return ranks


def laid_out(
    sizes: Sequence[Size], links: Sequence[tuple[int, int]], labels: Sequence[Size | None], ranks: Sequence[int]
) -> Layout:
    """Places for boxes of these sizes.

    Raises:
        ModuleNotFoundError: python-igraph isn't installed.
        ValueError: the graph is too large to be laid out.
    """
    if not sizes:
        return Layout([], [], [], 2 * MARGIN, 2 * MARGIN)
    row = _Row([2 * rank for rank in ranks], [size[0] for size in sizes], [size[1] for size in sizes])
    marks = [
        None if size is None else row.add(row.layers[destination] - 1, size)
        for (_, destination), size in zip(links, labels, strict=True)
    ]
    used = {layer: index for index, layer in enumerate(sorted(set(row.layers)))}  # a layer without labels is none
    row.layers[:] = [used[layer] for layer in row.layers]
    passing = sum(row.layers[destination] - row.layers[source] - 1 for source, destination in links)
    if len(sizes) + passing > MOST:
        raise ValueError(
            f"{len(sizes)} boxes and {len(links)} lines between them, in {max(ranks) + 1} rows, take "
            f"{len(sizes) + passing} places, and up to {MOST} are laid out; DOT and Mermaid have no such limit"
        )
    ways: list[list[int]] = []  # by link: everything that its line passes through, its ends left out
    for (source, destination), mark in zip(links, marks, strict=True):
        last = destination if mark is None else mark
        between = range(row.layers[source] + 1, row.layers[last])
        ways.append([row.add(layer, (PASSING, 0.0)) for layer in between] + ([] if mark is None else [mark]))
    whole = [[source, *way, destination] for (source, destination), way in zip(links, ways, strict=True)]
    xs, width = _spread(columns(row.layers, whole), row)

    heights = [0.0] * (max(row.layers) + 1)
    for layer, height in zip(row.layers, row.heights, strict=True):
        heights[layer] = max(heights[layer], height)
    tops = _tops(heights, xs, row, whole)

    def place(index: int) -> Place:
        size = row.widths[index], row.heights[index]
        layer = row.layers[index]
        return Place(xs[index], tops[layer] + (heights[layer] - size[1]) / 2, *size)

    def through(index: int, x: float) -> Pass:
        layer = row.layers[index]
        return Pass(x, tops[layer], tops[layer] + heights[layer])

    boxes = [place(index) for index in range(len(sizes))]
    lines = []
    for (source, destination), way, (start, end) in zip(links, ways, _ends(boxes, links, ways, xs), strict=True):
        leave, arrive = through(source, start), through(destination, end)
        leave = leave._replace(top=boxes[source].top + boxes[source].height)
        lines.append([leave, *(through(i, xs[i]) for i in way), arrive._replace(bottom=boxes[destination].top)])
    return Layout(
        boxes, [None if m is None else place(m) for m in marks], lines, width, tops[-1] + heights[-1] + MARGIN
    )


def columns(layers: Sequence[int], ways: Iterable[Sequence[int]]) -> list[float]:
    """igraph's columns.

    It is given lines that go from one layer to the next only. It can take longer ones, too, but where the graph is in
    several parts, igraph 1.0 mixes up whose places it then answers with, and may crash.
    """
    try:
        import igraph
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "a graph is laid out by python-igraph, which is not installed: pip install 'weave-dataflow[pictures]'",
            name=error.name,
        ) from error
    edges = [pair for way in ways for pair in itertools.pairwise(way)]
    graph: Any = igraph.Graph(n=len(layers), edges=edges, directed=True)
    return [x for x, _ in graph.layout_sugiyama(layers=layers, maxiter=24).coords]


def _spread(columns: list[float], row: _Row) -> tuple[list[float], float]:
    """Columns in pixels, such that all in a layer have room, and the width that takes.

    The columns are once pushed as far left, once as far right as the widths let them, and put in the middle of the two:
    that is room enough again, and what igraph centred stays centred.
    """
    layers: list[list[int]] = [[] for _ in range(max(row.layers) + 1)]
    for index, layer in enumerate(row.layers):
        layers[layer].append(index)
    columns = [round(x, 4) for x in columns]
    for members in layers:
        members.sort(key=lambda index: (columns[index], index))
        for one, other in itertools.pairwise(members):  # never two in one column of a layer, whatever igraph says
            columns[other] = max(columns[other], round(columns[one] + 1e-4, 4))
    ordered = sorted(set(columns))
    number = {x: i for i, x in enumerate(ordered)}
    apart: list[dict[int, float]] = [{} for _ in ordered]  # by column: from which others it is how far, at least
    first, last = [0.0] * len(ordered), [0.0] * len(ordered)
    for members in layers:
        for one, other in itertools.pairwise(members):
            widths = row.widths[one], row.widths[other]
            room = sum(widths) / 2 + (BESIDE if max(widths) > PASSING else PASSING)
            near, at = apart[number[columns[other]]], number[columns[one]]
            near[at] = max(near.get(at, 0.0), room)
        if members:
            i, j = number[columns[members[0]]], number[columns[members[-1]]]
            first[i], last[j] = max(first[i], row.widths[members[0]] / 2), max(last[j], row.widths[members[-1]] / 2)
    left: list[float] = []
    for i, near in enumerate(apart):
        left.append(max([first[i], *left[-1:], *(left[j] + room for j, room in near.items())]))
    total = max(at + half for at, half in zip(left, last, strict=True))
    right = [total - half for half in last]
    for i in reversed(range(len(ordered))):
        if i + 1 < len(ordered):
            right[i] = min(right[i], right[i + 1])
        for j, room in apart[i].items():
            right[j] = min(right[j], right[i] - room)
    return [MARGIN + (left[number[x]] + right[number[x]]) / 2 for x in columns], total + 2 * MARGIN


def _tops(heights: list[float], xs: list[float], row: _Row, ways: list[list[int]]) -> list[float]:
    """The top of each layer. The further lines go sideways between two layers, the further these are apart."""
    aside = [0.0] * len(heights)
    for way in ways:
        for one, other in itertools.pairwise(way):
            layer = row.layers[other]
            aside[layer] = max(aside[layer], abs(xs[other] - xs[one]))
    tops, y = [], MARGIN
    for layer, height in enumerate(heights):
        y += min(BETWEEN + aside[layer] / 12, 4 * BETWEEN) if layer else 0.0
        tops.append(y)
        y += height
    return tops


def _ends(
    boxes: list[Place], links: Sequence[tuple[int, int]], ways: list[list[int]], xs: list[float]
) -> list[tuple[float, float]]:
    """Where each line leaves its one box and meets the other: side by side, in the order in which they come."""
    ends: list[tuple[list[tuple[float, int]], list[tuple[float, int]]]] = [([], []) for _ in boxes]
    for link, ((source, destination), way) in enumerate(zip(links, ways, strict=True)):
        ends[source][0].append((xs[way[0] if way else destination], link))
        ends[destination][1].append((xs[way[-1] if way else source], link))
    starts, stops = [0.0] * len(links), [0.0] * len(links)
    for box, (leaving, arriving) in zip(boxes, ends, strict=True):
        for some, found in ((leaving, starts), (arriving, stops)):
            gap = min(18.0, (box.width - 28) / max(1, len(some) - 1))
            for place, (_, link) in enumerate(sorted(some)):
                found[link] = box.x + gap * (place - (len(some) - 1) / 2)
    return list(zip(starts, stops, strict=True))
