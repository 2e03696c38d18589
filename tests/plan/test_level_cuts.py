"""ChunkFlow, section 10: equal tokens are not equal cost, so long sequences are cut by cost."""

from itertools import combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.plan.balance import TokenCost
from penstock.plan.level_cuts import level_cuts
from penstock.plan.packing import Packing, pack, pack_tails
from plan.test_packing import tokens

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=8)
COSTS = st.builds(TokenCost, st.integers(0, 9), st.integers(0, 9), st.integers(0, 30))


def dearest(packing: Packing, cost: TokenCost) -> list[int]:
    return [max(costs) for costs in cost.of_packing(packing)]


@given(LENGTHS, st.integers(1, 12), COSTS)
def test_section_10_the_dearest_slice_is_never_dearer_and_nothing_else_changes(
    lengths: list[int], size: int, cost: TokenCost
) -> None:
    packing = pack_tails(lengths, size, max(lengths) + 5)
    found = level_cuts(packing, cost)
    assert sorted(tokens(found)) == sorted(tokens(packing))
    assert found.slices == packing.slices
    assert all(0 < count <= size for counts in found.tokens for count in counts)
    pairs = zip(dearest(found, cost), dearest(packing, cost), strict=True)
    assert all(after <= before for after, before in pairs)
    for slices in found.microbatches:
        firsts = [slice[0] for slice in slices]
        assert len(slices) == 1 or all(a.stop == b.start for a, b in pairwise(firsts))


def cheapest(length: int, count: int, size: int, cost: TokenCost) -> int:
    """The least cost of the dearest slice, over all cuts."""
    every = ([0, *cuts, length] for cuts in combinations(range(1, length), count - 1))
    return min(
        2 * cost.slice + max(cost.of(*each) for each in pairwise(ends))
        for ends in every
        if all(stop - start <= size for start, stop in pairwise(ends))
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 14), st.integers(2, 6), COSTS)
def test_section_10_no_other_cut_has_a_cheaper_dearest_slice(
    length: int, size: int, cost: TokenCost
) -> None:
    packing = pack([length], size)
    (found,) = dearest(level_cuts(packing, cost), cost)
    assert found == cheapest(length, packing.slices[0], size, cost)


def test_full_slices_stay_where_they_are() -> None:
    packing = pack([12, 3], 4)
    assert level_cuts(packing, TokenCost(1, 5)) == packing
