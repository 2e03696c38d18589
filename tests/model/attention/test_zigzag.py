"""Ranks of a ring have every token once, and compute once every pair that may see each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.arch.dealing import most_tokens
from penstock.model.attention.zigzag import Ranges, count, ring_parts, zigzag_ranges

pytestmark = pytest.mark.torch

Bounds = list[tuple[int, int]]


@st.composite
def sequences(draw: st.DrawFn) -> tuple[Bounds, tuple[int, ...]]:
    """Where the slices of a short sequence begin and end, and where its documents begin."""
    length = draw(st.integers(1, 40))
    inner = st.sets(st.integers(1, length), max_size=4)
    ends = sorted({*draw(inner), length})
    documents = (0, *sorted(start for start in draw(inner) if start < length))
    return list(zip((0, *ends), ends)), documents


ranks = st.integers(1, 5)


def ranges_of(bounds: Bounds, index: int, of: int) -> Ranges:
    return tuple(span for start, end in bounds for span in zigzag_ranges(start, end, index, of))


@given(st.integers(0, 50), st.integers(0, 50), ranks)
def test_ranks_have_the_chunks_of_a_slice_in_a_zigzag(start: int, tokens: int, of: int) -> None:
    chunks = [
        list(range(start + tokens * number // (2 * of), start + tokens * (number + 1) // (2 * of)))
        for number in range(2 * of)
    ]
    for index in range(of):
        ranges = zigzag_ranges(start, start + tokens, index, of)
        assert [place for span in ranges for place in span] == chunks[index] + chunks[-1 - index]
        assert all(ranges)
    assert [place for chunk in chunks for place in chunk] == [*range(start, start + tokens)]


def test_one_rank_has_a_slice_as_one_range() -> None:
    assert zigzag_ranges(3, 10, 0, 1) == (range(3, 10),)
    assert zigzag_ranges(3, 3, 0, 1) == ()


def test_the_last_rank_has_its_two_chunks_as_one_range() -> None:
    assert zigzag_ranges(0, 16, 3, 4) == (range(6, 10),)


@given(sequences(), ranks)
def test_no_rank_has_more_tokens_than_are_kept_for_it(
    sequence: tuple[Bounds, tuple[int, ...]], of: int
) -> None:
    bounds, _ = sequence
    most = most_tokens(bounds[-1][1], len(bounds), of)
    assert max(count(ranges_of(bounds, index, of)) for index in range(of)) <= most


def test_at_most_two_tokens_more_per_slice_are_kept_than_a_part_has() -> None:
    for of in range(1, 9):
        for slices in range(1, 9):
            assert most_tokens(960, slices, of) - 960 // of <= 2 * slices


@given(sequences(), ranks, st.integers(1, 12))
def test_every_pair_that_may_see_each_other_is_in_one_part(
    sequence: tuple[Bounds, tuple[int, ...]], of: int, square: int
) -> None:
    bounds, documents = sequence
    met: list[tuple[int, int]] = []
    for slices in range(1, len(bounds) + 1):
        for one in range(of):
            queries = zigzag_ranges(*bounds[slices - 1], one, of)
            for other in range(of):
                met += pairs(queries, ranges_of(bounds[:slices], other, of), documents, square)
    length = bounds[-1][1]
    document = [sum(start <= place for start in documents) for place in range(length)]
    assert sorted(met) == [
        (query, key)
        for query in range(length)
        for key in range(query + 1)
        if document[query] == document[key]
    ]


def pairs(
    queries: Ranges, keys: Ranges, documents: tuple[int, ...], square: int
) -> list[tuple[int, int]]:
    """Positions of all queries and keys that meet in a part."""
    at_query = [place for span in queries for place in span]
    at_key = [place for span in keys for place in span]
    return [
        (at_query[query], at_key[key])
        for part in ring_parts(queries, keys, documents, square)
        for row, query in enumerate(part.queries)
        for key in (part.keys[: row + 1] if part.causal else part.keys)
    ]


@given(sequences(), st.integers(2, 5), st.integers(1, 12))
def test_queries_are_fresh_once_against_own_keys_and_never_against_others(
    sequence: tuple[Bounds, tuple[int, ...]], of: int, square: int
) -> None:
    bounds, documents = sequence
    for one in range(of):
        queries = zigzag_ranges(*bounds[-1], one, of)
        done: set[int] = set()
        for part in ring_parts(queries, ranges_of(bounds, one, of), documents, square):
            here = set(part.queries)
            assert here.isdisjoint(done) if part.fresh else here <= done
            done |= here
        assert len(done) == count(queries)
        other = ranges_of(bounds, (one + 1) % of, of)
        assert not any(part.fresh for part in ring_parts(queries, other, documents, square))


@given(sequences(), st.integers(2, 5))
def test_a_range_of_queries_meets_the_keys_of_another_rank_in_one_rectangle(
    sequence: tuple[Bounds, tuple[int, ...]], of: int
) -> None:
    bounds, documents = sequence
    for one in range(of):
        queries = zigzag_ranges(*bounds[-1], one, of)
        other = ranges_of(bounds, (one + 1) % of, of)
        met = list(ring_parts(queries, other, documents, 128))
        assert len(met) <= len(queries)
        assert not any(part.causal for part in met)


@pytest.mark.parametrize(("of", "chunk"), [(1, 5), (2, 3), (3, 4), (4, 1)])
def test_even_chunks_are_the_same_work_for_all_ranks(of: int, chunk: int) -> None:
    tokens = 2 * of * chunk
    bounds = [(0, tokens), (tokens, 2 * tokens)]
    for one in range(of):
        queries = zigzag_ranges(*bounds[1], one, of)
        met = [len(pairs(queries, ranges_of(bounds, other, of), (0,), 128)) for other in range(of)]
        assert sum(met) == (tokens * tokens + tokens * (tokens + 1) // 2) // of
        assert len({*met[:one], *met[one + 1 :]}) <= 1, "blocks of other ranks are equal work too"
