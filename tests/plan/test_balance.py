from hypothesis import given
from hypothesis import strategies as st

from penstock.arch.config import ModelConfig
from penstock.plan import pack, pack_tails
from penstock.plan.balance import TokenCost, balance_slices, deal_to_replicas

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=12)
COST = TokenCost(linear=5, attention=3)


def test_section_10_the_cost_of_a_dependent_slice_grows_with_what_is_before_it() -> None:
    """C (b1 + b2 (j + 1/2) C) for slice j of C tokens; here it is doubled."""
    size = 4
    costs = COST.of_packing(pack([4 * size], size))[0]
    assert costs == [2 * (size * 5 + 3 * (2 * j + 1) * size**2 // 2) for j in range(4)]


@given(LENGTHS, st.integers(1, 20))
def test_slices_of_equal_number_and_at_most_as_dear(lengths: list[int], size: int) -> None:
    packing = pack_tails(lengths, size, max(lengths))
    even = balance_slices(packing, COST)
    assert sorted(even.slices) == sorted(packing.slices)
    assert all(count <= size for counts in even.tokens for count in counts)
    members = [piece for slices in even.microbatches for slice in slices for piece in slice]
    assert sorted(members) == sorted(
        piece for slices in packing.microbatches for slice in slices for piece in slice
    )
    dearest = [max(map(max, COST.of_packing(one))) for one in (even, packing)]
    assert dearest[0] <= dearest[1]


def test_a_dear_sequence_is_joined_by_fewer_cheap_ones() -> None:
    packing, cost = pack([6, 2, 2, 2, 2, 2, 2], 10), TokenCost(linear=0, attention=1)
    assert (packing.tokens, cost.of_packing(packing)) == (((10,), (8,)), [[44], [16]])
    even = balance_slices(packing, cost)
    assert (even.tokens, cost.of_packing(even)) == (((8,), (10,)), [[40], [20]])


@given(LENGTHS, st.integers(1, 5))
def test_every_sequence_goes_to_one_replica_and_none_has_much_more_than_another(
    lengths: list[int], replicas: int
) -> None:
    dealt = deal_to_replicas(lengths, replicas, COST)
    assert sorted(number for own in dealt for number in own) == list(range(len(lengths)))
    spent = [sum(COST.of(0, lengths[number]) for number in own) for own in dealt]
    assert max(spent) - min(spent) <= max(COST.of(0, length) for length in lengths)


def test_a_slice_of_a_model_costs_its_tokens_and_pairs() -> None:
    model = ModelConfig(4, 64, 128, 4, 2, 16, 256)
    cost = TokenCost.of_model(model, slice_tokens=2)
    pair = round(10**6 * model.flops_per_pair / model.flops_per_token)
    assert cost == TokenCost(10**6, pair, 2 * 10**6)
