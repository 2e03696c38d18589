"""Windows as triangles and rectangles: every pair of a query and a key that it sees, once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.attention.reach import AttentionPart, reach_of
from penstock.model.attention.window_parts import parts
from penstock.model.attention.zigzag import ring_window_parts, zigzag_ranges

pytestmark = pytest.mark.torch

Pairs = list[tuple[int, int]]

DOCUMENTS = st.lists(st.integers(1, 39), max_size=3).map(lambda each: (0, *sorted({*each})))


def pairs_in(part: AttentionPart) -> Pairs:
    """By number of query and of key; a triangle has as many of both."""
    assert not (part.causal or part.mirrored) or len(part.queries) == len(part.keys)
    return [
        (query, key)
        for i, query in enumerate(part.queries)
        for j, key in enumerate(part.keys)
        if (not part.causal or j <= i) and (not part.mirrored or j >= i)
    ]


def seen_by(query: int, documents: tuple[int, ...], window: int) -> range:
    """The keys that a query sees, by positions."""
    begin = max(start for start in documents if start <= query)
    return range(max(begin, query - window + 1), query + 1)


@given(
    st.integers(0, 30), st.integers(1, 12), DOCUMENTS, st.integers(1, 20), st.sampled_from((2, 128))
)
def test_every_pair_of_a_slice_is_computed_once_and_every_query_is_fresh_once(
    start: int, length: int, documents: tuple[int, ...], window: int, square: int
) -> None:
    reach = reach_of(start, start + length, documents, window)
    found = parts(reach, square)
    first = start - reach.past
    met = [(start + query, first + key) for part in found for query, key in pairs_in(part)]
    wanted = [
        (query, key)
        for query in range(start, start + length)
        for key in seen_by(query, documents, window)
    ]
    assert sorted(met) == wanted
    _refuse_stale(found, length)


def _refuse_stale(found: tuple[AttentionPart, ...], length: int) -> None:
    """A query is fresh in its first part and in no other."""
    known: set[int] = set()
    for part in found:
        assert part.fresh == known.isdisjoint(part.queries)
        known |= {*part.queries}
    assert known == {*range(length)}


@given(
    st.lists(st.integers(1, 13), min_size=1, max_size=3),
    st.integers(1, 3),
    DOCUMENTS,
    st.integers(1, 20),
    st.sampled_from((2, 128)),
)
def test_ranks_of_a_ring_meet_every_pair_of_a_slice_once(
    lengths: list[int], ranks: int, documents: tuple[int, ...], window: int, square: int
) -> None:
    ends = [sum(lengths[: count + 1]) for count in range(len(lengths))]
    bounds = [(end - length, end) for end, length in zip(ends, lengths)]
    start, end = bounds[-1]
    met: Pairs = []
    for rank in range(ranks):
        queries = zigzag_ranges(start, end, rank, ranks)
        places = [place for span in queries for place in span]
        for step in range(ranks):
            other = (rank - step) % ranks
            keys = tuple(each for bound in bounds for each in zigzag_ranges(*bound, other, ranks))
            kept = [place for span in keys for place in span]
            found = tuple(ring_window_parts(queries, keys, documents, window, square))
            met += [(places[q], kept[k]) for part in found for q, k in pairs_in(part)]
            if step == 0:
                _refuse_stale(found, len(places))
            else:
                assert not any(part.fresh for part in found)
    wanted = [(q, k) for q in range(start, end) for k in seen_by(q, documents, window)]
    assert sorted(met) == wanted


def test_a_window_of_many_slices_costs_what_it_holds() -> None:
    """A block in the middle: two triangles and the rectangle between them."""
    found = parts(reach_of(4096, 4096 + 128, (0,), 1024), 128)
    assert [part[:2] for part in found] == [
        (range(128), range(1023, 1151)),
        (range(128), range(128)),
        (range(128), range(128, 1023)),
    ]
    assert [part[2:] for part in found] == [
        (True, True, False),
        (False, False, True),
        (False, False, False),
    ]
