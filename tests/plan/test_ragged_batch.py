import random
from fractions import Fraction
from time import perf_counter

import pytest

from penstock.check import check
from penstock.cost.model import UnitCost
from penstock.errors import PlanError, ShapeError
from penstock.lower import lower_for_running
from penstock.plan.balance import TokenCost
from penstock.plan.ragged_batch import OrderedBatch, RaggedBatches, SliceRule
from penstock.plan.slice_choice import choose_rule, slice_sizes
from penstock.schedules import find, registry
from penstock.sim import simulate

RAGGED = [spec.name for spec in registry().values() if spec.ragged]
TOKENS = TokenCost(linear=1, attention=0)


def batches_of(name: str, p: int, rule: SliceRule, longest: int = 100) -> RaggedBatches:
    return RaggedBatches(find(name), p, rule, longest, TOKENS)


@pytest.mark.long
@pytest.mark.parametrize("name", RAGGED)
def test_section_9_what_is_not_kept_is_recomputed_in_every_batch(name: str) -> None:
    numbers = random.Random(name)
    for _ in range(40):
        lengths = [numbers.choice((1, 2, 5, 40, 99)) for _ in range(numbers.randint(1, 9))]
        rule = SliceRule(*(numbers.randint(1, most) for most in (20, 5, 5)))
        batch = batches_of(name, 3, rule).order(lengths)
        slices = batch.packing.slices
        assert batch.schedule.shape.slices == slices == tuple(sorted(slices, reverse=True))
        assert check(batch.schedule).proven
        kinds = [op.kind for op in batch.schedule.lane(0)]
        assert kinds.count("R") == sum(max(0, count - rule.retain) for count in slices)
        assert sum(map(sum, batch.packing.tokens)) == sum(lengths)


def test_section_6_the_worked_example_with_the_work_of_its_slices() -> None:
    """Long sequences come first here, with a warm-up for them: 42 in the units of a token."""
    ragged = batches_of(RAGGED[0], 4, SliceRule(2, retain=2, warmup=2))
    batch = ragged.order([4, 2, 1, 1])
    assert batch.packing.tokens == ((2, 2), (2,), (2,))
    assert simulate(ragged.weighed(batch), UnitCost()).makespan == 2 * 42  # costs are doubled


def test_batches_whose_microbatches_have_as_many_slices_share_one_order() -> None:
    ragged = batches_of(RAGGED[0], 2, SliceRule(8))
    first, second = ragged.order([20, 3, 4]), ragged.order([2, 17, 6])
    assert first.packing.tokens != second.packing.tokens
    assert first.schedule is second.schedule


def test_an_order_is_made_proven_and_lowered_while_a_step_would_hardly_begin() -> None:
    numbers = random.Random(0)
    ragged = batches_of(RAGGED[0], 4, SliceRule(64), longest=1000)
    lengths = [numbers.randint(1, 300) for _ in range(20)] + [1000]
    ragged.order([1000])  # what is compiled once is compiled now
    began = perf_counter()
    batch = ragged.order(lengths)
    lower_for_running(batch.schedule)
    assert sum(batch.packing.slices) > 50
    assert perf_counter() - began < 5  # milliseconds on a machine that does nothing else


def test_a_sequence_longer_than_the_run_was_planned_for_is_named() -> None:
    with pytest.raises(ShapeError, match="sequence 1 of the batch has 101 tokens"):
        batches_of(RAGGED[0], 2, SliceRule(8)).order([3, 101])


def test_a_schedule_of_equal_sequences_has_no_order_for_unequal_ones() -> None:
    name = next(spec.name for spec in registry().values() if not spec.ragged)
    with pytest.raises(ShapeError, match="no order for sequences of unequal lengths"):
        batches_of(name, 2, SliceRule(8))


def live_tokens(batch: OrderedBatch) -> Fraction:
    return max(simulate(batch.schedule, UnitCost()).peak) * batch.packing.size


@pytest.mark.parametrize("room", [40, 100, 1000])
def test_section_7_the_fastest_rule_that_has_room_is_chosen(room: int) -> None:
    batches = [[64, 1, 2, 3, 9], [30, 30, 5, 1]]
    base = RaggedBatches(find(RAGGED[-1]), 2, SliceRule(1), 64, TokenCost(1, 0, slice=4))
    chosen = choose_rule(base, batches, lambda batch: live_tokens(batch) <= room)
    found = RaggedBatches(base.spec, 2, chosen.rule, 64, base.cost)
    assert all(live_tokens(found.order(lengths)) <= room for lengths in batches)
    times = [simulate(found.weighed(found.order(each)), UnitCost()).makespan for each in batches]
    assert sum(times) == chosen.time
    assert 0 < chosen.fitting <= chosen.tried


def test_section_7_too_large_slices_leave_bubbles_and_too_small_ones_cost_by_themselves() -> None:
    batches = [[64, 1, 2, 3, 9, 8, 8, 8, 40]]
    base = RaggedBatches(find(RAGGED[0]), 4, SliceRule(1), 64, TOKENS)
    dear = RaggedBatches(base.spec, 4, base.rule, 64, TokenCost(1, 0, slice=30))
    sizes = [choose_rule(each, batches, lambda _: True).rule.size for each in (base, dear)]
    assert sizes == [16, 32]
    assert choose_rule(base, batches, lambda _: True).whole is not None


@pytest.mark.parametrize("room", [16, 20, 32, 50, 64, 100, 128])
def test_section_7_without_a_pipeline_the_largest_slices_that_fit_and_one_of_them_kept(
    room: int,
) -> None:
    """Rules that hold as many tokens run as many again, and more slices cost more by themselves."""
    largest = max(size for size in slice_sizes(128) if size <= room)
    numbers = random.Random(room)
    for cost in (TokenCost(1, 0, slice=4), TokenCost(100, 1, slice=400)):
        lengths = [numbers.choice((1, 5, 20, 40, 64, 127)) for _ in range(numbers.randint(0, 5))]
        for name, batch in (("chunkflow-paced", [128, *lengths]), ("chunkflow", [128])):
            base = RaggedBatches(find(name), 1, SliceRule(1), 128, cost)
            chosen = choose_rule(base, [batch], lambda batch: live_tokens(batch) <= room)
            assert chosen.rule == SliceRule(largest, retain=1, warmup=1), (name, batch)


def test_what_is_given_is_kept_and_only_the_rest_is_chosen() -> None:
    base = RaggedBatches(find(RAGGED[0]), 2, SliceRule(1), 64, TOKENS)
    rule = choose_rule(base, [[64, 3]], lambda _: True, size=10, warmup=2).rule
    assert (rule.size, rule.warmup) == (10, 2)


def test_no_room_at_all_is_said() -> None:
    base = RaggedBatches(find(RAGGED[0]), 2, SliceRule(1), 64, TOKENS)
    with pytest.raises(PlanError, match="has room"):
        choose_rule(base, [[64, 3]], lambda _: False)


def test_sizes_are_the_longest_sequence_halved() -> None:
    assert slice_sizes(65536)[0] == 1024
    assert slice_sizes(1) == [1]
    assert slice_sizes(10) == [10]
