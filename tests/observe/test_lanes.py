from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from weave.observe.lanes import lanes

spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)).map(lambda s: (s[0], s[0] + s[1])), max_size=30)


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether they share more than an end; a span of no length counts where it is strictly inside the other."""
    if one[0] == one[1] == other[0] == other[1]:
        return False
    return one[0] < other[1] and other[0] < one[1]


@given(spans)
def test_no_two_on_one_lane_overlap(given_spans: list[tuple[int, int]]) -> None:
    on = lanes(given_spans)
    assert len(on) == len(given_spans)
    for a, b in combinations(range(len(on)), 2):
        assert on[a] != on[b] or not _overlap(given_spans[a], given_spans[b])


@given(spans)
def test_there_are_no_more_lanes_than_overlap_at_once(given_spans: list[tuple[int, int]]) -> None:
    at_once = max((sum(b <= begin < max(e, b + 1) for b, e in given_spans) for begin, _ in given_spans), default=0)
    assert len(set(lanes(given_spans))) <= at_once
    assert set(lanes(given_spans)) == set(range(len(set(lanes(given_spans)))))


def test_a_span_may_begin_where_another_ends() -> None:
    assert lanes([(0, 5), (5, 9), (9, 9), (9, 12)]) == [0, 0, 0, 0]


def test_the_lowest_free_lane_is_taken() -> None:
    assert lanes([(0, 10), (1, 3), (2, 9), (3, 4)]) == [0, 1, 2, 1]


def test_one_of_no_length_inside_another_has_a_lane_of_its_own() -> None:
    assert lanes([(0, 10), (5, 5)]) == [0, 1]
