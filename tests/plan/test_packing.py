from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ShapeError
from penstock.plan import Packing, pack, pack_tails

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=12)


def tokens(packing: Packing) -> list[tuple[int, int]]:
    """Every token of every slice, as its sequence and its place in it."""
    return [
        (piece.sequence, at)
        for slices in packing.microbatches
        for slice in slices
        for piece in slice
        for at in range(piece.start, piece.stop)
    ]


def test_the_worked_example_of_section_6() -> None:
    assert pack([4, 2, 1, 1], 2).microbatches == (
        (((1, 0, 2),),),
        (((2, 0, 1), (3, 0, 1)),),
        (((0, 0, 2),), ((0, 2, 4),)),
    )
    assert pack([4, 2, 1, 1], 4).lengths == (1, 1)


@given(LENGTHS, st.integers(1, 20))
def test_section_9_every_token_appears_once_and_no_slice_is_too_long(
    lengths: list[int], size: int
) -> None:
    packing = pack(lengths, size)
    found = tokens(packing)
    assert sorted(found) == [(s, at) for s, length in enumerate(lengths) for at in range(length)]
    for slices in packing.microbatches:
        assert all(sum(p.stop - p.start for p in slice) <= size for slice in slices)


@given(LENGTHS, st.integers(1, 20), st.integers(0, 9))
def test_section_10_a_short_sequence_may_stand_behind_the_end_of_a_long_one(
    lengths: list[int], size: int, more: int
) -> None:
    longest = max(max(lengths), size) + more
    shared, apart = pack_tails(lengths, size, longest), pack(lengths, size)
    assert sorted(tokens(shared)) == sorted(tokens(apart))
    assert all(count <= size for counts in shared.tokens for count in counts)
    assert all(sum(counts) <= longest for counts in shared.tokens)
    assert sum(shared.slices) <= sum(apart.slices)
    for slices in shared.microbatches:
        assert all(len(slice) == 1 for slice in slices[:-1])
        (sequence,) = {slice[0].sequence for slice in slices} or {None}
        behind = [piece for piece in slices[-1] if piece.sequence != sequence]
        assert all(piece.start == 0 and piece.stop == lengths[piece.sequence] for piece in behind)


def test_section_10_tails_take_what_would_be_a_slice_of_its_own() -> None:
    lengths = [9, 7, 3, 1]
    assert pack(lengths, 4).tokens == ((4,), (4, 4, 1), (4, 3))
    assert pack_tails(lengths, 4, 12).tokens == ((4, 4, 4), (4, 4))
    assert pack_tails(lengths, 4, 9).tokens == ((3,), (4, 4, 1), (4, 4))


@given(LENGTHS, st.integers(1, 20))
def test_long_sequences_are_put_first_and_nothing_else_changes(
    lengths: list[int], size: int
) -> None:
    packing = pack(lengths, size)
    first = packing.long_first()
    assert first.slices == tuple(sorted(packing.slices, reverse=True))
    assert sorted(first.microbatches) == sorted(packing.microbatches)


@given(LENGTHS, st.integers(1, 20))
def test_section_9_a_long_sequence_is_one_microbatch_and_a_short_one_is_never_cut(
    lengths: list[int], size: int
) -> None:
    for slices in pack(lengths, size).microbatches:
        members = {piece.sequence for slice in slices for piece in slice}
        if len(slices) > 1:
            (only,) = members
            assert [p.start for (p,) in slices] == list(range(0, lengths[only], size))
        else:
            assert all(p.stop - p.start == lengths[p.sequence] <= size for p in slices[0])


def fewest_by_enumeration(lengths: list[int], size: int) -> int:
    """Bins that the short sequences need, by trying every assignment."""
    for count in range(1, len(lengths) + 1):
        for places in product(range(count), repeat=len(lengths)):
            full = [0] * count
            for place, length in zip(places, lengths):
                full[place] += length
            if max(full) <= size:
                return count
    return 0


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(9, 14))
def test_section_9_short_sequences_take_the_fewest_slices(lengths: list[int], size: int) -> None:
    count = len(pack(lengths, size).microbatches)
    assert count == fewest_by_enumeration(lengths, size)
    assert count >= -(-sum(lengths) // size)


def test_the_search_finds_what_no_greedy_order_does() -> None:
    assert pack([44, 6, 24, 6, 34, 29, 18, 8, 31], 100).lengths == (1, 1)


def test_slices_are_filled_evenly_where_the_number_allows() -> None:
    assert pack([5, 5, 1, 1, 1, 1, 1, 1], 10).lengths == (Fraction(4, 5), Fraction(4, 5))


@pytest.mark.long
def test_a_batch_of_thousands_is_packed_at_once() -> None:
    lengths = [1 + (37 * number) % 101 for number in range(3000)]
    count = len(pack(lengths, 256).microbatches)
    assert count == -(-sum(lengths) // 256)


@pytest.mark.parametrize(("lengths", "size"), [([], 4), ([0], 4), ([3], 0)])
def test_nothing_to_pack_is_refused(lengths: list[int], size: int) -> None:
    with pytest.raises(ShapeError, match="cannot be packed"):
        pack(lengths, size)
