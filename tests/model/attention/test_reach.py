"""The parts of a slice are together exactly the pairs that may see each other."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.attention.reach import Reach, reach_of
from penstock.model.attention.window_parts import parts

pytestmark = pytest.mark.torch

reaches = st.builds(
    Reach,
    st.integers(0, 20),
    st.lists(st.integers(1, 20), min_size=1, max_size=4).map(tuple),
    st.none(),
)


def wanted(reach: Reach) -> torch.Tensor:
    """How often each query should meet each key in reach."""
    tokens = sum(reach.lengths)
    pairs = torch.zeros(tokens, reach.past + tokens, dtype=torch.long)
    pairs[: reach.lengths[0], : reach.past] = 1
    start = 0
    for length in reach.lengths:
        square = torch.ones(length, length, dtype=torch.long).tril()
        first = reach.past + start
        pairs[start : start + length, first : first + length] = square
        start += length
    return pairs


@settings(deadline=None)
@given(reaches, st.integers(1, 24))
def test_every_pair_is_in_one_part(reach: Reach, square: int) -> None:
    met = torch.zeros_like(wanted(reach))
    for part in parts(reach, square):
        shape = torch.ones(len(part.queries), len(part.keys), dtype=torch.long)
        here = met[part.queries.start : part.queries.stop, part.keys.start : part.keys.stop]
        here += shape.tril() if part.causal else shape
    assert torch.equal(met, wanted(reach))


@settings(deadline=None)
@given(reaches, st.integers(1, 24))
def test_queries_are_fresh_once_and_first(reach: Reach, square: int) -> None:
    done: set[int] = set()
    for part in parts(reach, square):
        queries = set(part.queries)
        assert (queries.isdisjoint(done)) if part.fresh else (queries <= done)
        done |= queries
    assert len(done) == sum(reach.lengths)


@settings(deadline=None)
@given(reaches, st.integers(1, 24))
def test_own_keys_meet_their_triangle_before_any_rectangle(reach: Reach, square: int) -> None:
    done: set[int] = set()
    for part in parts(reach, square):
        keys = set(part.keys)
        if part.causal:
            assert len(keys) <= square
            assert keys.isdisjoint(done)
            done |= keys
        elif part.keys.start >= reach.past:
            assert keys <= done
    assert len(done) == sum(reach.lengths)


def test_a_triangle_is_cut_at_the_largest_doubling_of_its_square() -> None:
    lower = [part for part in parts(Reach(0, (700,)), 128) if not part.causal]
    assert max(lower, key=lambda part: len(part.keys)).keys == range(512)


@pytest.mark.parametrize(
    ("start", "end", "documents", "reach"),
    [
        (0, 8, (0,), Reach(0, (8,))),
        (8, 16, (0,), Reach(8, (8,))),
        (8, 16, (0, 8, 16), Reach(0, (8,))),
        (8, 16, (0, 7, 9, 15), Reach(1, (1, 6, 1))),
        (8, 16, (0, 20), Reach(8, (8,))),
    ],
)
def test_a_slice_reaches_back_to_where_its_first_document_begins(
    start: int, end: int, documents: tuple[int, ...], reach: Reach
) -> None:
    assert reach_of(start, end, documents) == reach
