"""Random graphs over random ranks give what they give in one place, whatever order things happen in."""

from __future__ import annotations

import pytest

from tests.remote.random_graphs import check, draw


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_random_graphs(first: int) -> None:
    for seed in range(first, first + 10):
        check(draw(seed))


def test_what_is_drawn_has_variety() -> None:
    drawn = [draw(seed) for seed in range(60)]
    assert {graph.world_size for graph in drawn} == {2, 3, 4}
    assert all(any(graph.awaited) or not all(graph.awaited) for graph in drawn)
    cut = [
        sum(f >= 0 and graph.ranks[f] != graph.ranks[node] for node, some in enumerate(graph.feeders) for f in some)
        for graph in drawn
    ]
    assert sum(map(bool, cut)) > 50
    assert max(cut) > 8


def test_a_wrong_value_is_found() -> None:
    drawn = draw(3)
    drawn.value = lambda x: [0] * len(drawn.results)  # type: ignore[method-assign]
    with pytest.raises(AssertionError):
        check(drawn)
