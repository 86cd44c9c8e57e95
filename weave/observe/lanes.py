"""Spans of time on lanes, as pictures of a run need them: no two on one lane overlap."""

from __future__ import annotations

import heapq
from collections.abc import Iterable


def lanes(spans: Iterable[tuple[int, int]]) -> list[int]:
    """The lane of each span, from 0: no two on one lane overlap, and there are no more lanes than overlap at once.

    Spans are `(begin, end)`; one may begin where another ends. A span of no length inside another takes a lane of its
    own: drawn, it is never hidden. Among free lanes the lowest is taken, so that the first lanes are the fullest.
    """
    given = list(spans)
    lane = [0] * len(given)
    taken: list[tuple[int, int]] = []  # (end, lane), the first to end on top
    free: list[int] = []
    count = 0
    for place in sorted(range(len(given)), key=given.__getitem__):
        begin, end = given[place]
        while taken and taken[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(taken)[1])
        if free:
            lane[place] = heapq.heappop(free)
        else:
            lane[place] = count
            count += 1
        heapq.heappush(taken, (end, lane[place]))
    return lane
