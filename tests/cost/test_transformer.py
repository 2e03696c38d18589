from fractions import Fraction

import numpy as np
import pytest

from penstock.arch.presets import model
from penstock.core.ops import Op, parse_op
from penstock.core.shape import Shape
from penstock.cost.hardware import Hardware
from penstock.cost.model import Cost, Link
from penstock.cost.temporary import backward_bytes, loss_bytes
from penstock.cost.transformer import PICOSECOND, TransformerCost
from penstock.cost.workload import Workload
from penstock.errors import ShapeError
from penstock.schedules import build
from penstock.sim import simulate
from penstock.transform import recompute_all, split_backward
from transform.pictures import draw
from transform.samples import lending, offloaded

TERA = 10**12
ONE_FLOP_PER_TICK = Hardware(TERA, TERA, TERA, TERA, TERA, TERA)
"""A device on which every FLOP and every byte takes a picosecond."""
TINY = model("tiny")


def test_it_is_a_cost_model() -> None:
    cost: Cost = TransformerCost(Workload(TINY, ((8,),), (4,)), ONE_FLOP_PER_TICK)
    assert cost.communication == 0


def test_ticks_are_flops_and_bytes_at_one_per_picosecond() -> None:
    schedule = recompute_all(build("seq1f1b", devices=2, microbatches=2, slices=3))
    cost = TransformerCost.of(schedule.shape, TINY, ONE_FLOP_PER_TICK, [9, 5, 3])
    work = cost.workload.work(schedule)
    ticks, tick = cost.durations(schedule)
    assert tick == PICOSECOND
    assert np.array_equal(ticks, work.flops + work.lookup)


def test_each_kind_of_work_has_its_own_rate() -> None:
    schedule = split_backward(build("1f1b", devices=4, microbatches=1))
    rates = Hardware(2 * TERA, 3 * TERA, 5 * TERA, TERA, TERA, TERA)
    cost = TransformerCost.of(schedule.shape, TINY, rates, [30])
    linear = 2 * 30 * TINY.layer_weights
    pairs = 30 * 30 // 2 * 4 * 64
    ticks = cost.durations(schedule).ticks
    found = [int(ticks[schedule.table.row_of(Op(kind, 1, 0))]) for kind in "FIW"]
    assert found == [linear // 2 + pairs // 3, linear // 2 + 2 * pairs // 5, linear // 2]


def test_a_device_alone_takes_as_long_as_its_ops() -> None:
    schedule = build("seq1f1b", devices=1, microbatches=3, slices=2)
    cost = TransformerCost.of(schedule.shape, TINY, ONE_FLOP_PER_TICK, [20, 12])
    timeline = simulate(cost.workload.applied_to(schedule), cost)
    assert timeline.makespan == int(cost.durations(schedule).ticks.sum()) * PICOSECOND


def test_a_very_long_step_is_counted_in_coarser_ticks() -> None:
    schedule = build("seq1f1b", devices=2, microbatches=2, slices=2)
    slow = Hardware(*[10**9] * 6)
    cost = TransformerCost.of(schedule.shape, model("llama3-8b"), slow, [60_000, 40_000])
    ticks, tick = cost.durations(schedule)
    work = cost.workload.work(schedule)
    seconds = [(f + b) / 10**9 for f, b in zip(work.flops.tolist(), work.lookup.tolist())]
    assert tick == 10**4 * PICOSECOND  # about a hundred days
    assert 2**53 / 10 <= ticks.sum() < 2**53
    assert all(abs(t * float(tick) - s) <= float(tick) for t, s in zip(ticks.tolist(), seconds))
    assert simulate(schedule, cost).makespan > sum(seconds) / 2


def test_peaks_are_bytes() -> None:
    schedule = split_backward(build("seq1f1b", devices=1, microbatches=1, slices=2))
    cost = TransformerCost.of(schedule.shape, TINY, ONE_FLOP_PER_TICK, [10, 6])
    end = 64 * 2
    saved = 4 * TINY.saved_bytes + end
    # During the first input gradient: the activations of both slices, keys and values, gradients
    # of those of the first slice, what the op needs by itself, and what its stash is larger than
    # what it replaces.
    temporary = max(6 * backward_bytes(TINY), loss_bytes(TINY, 6))
    temporary += 6 * 4 * (TINY.stash_bytes - TINY.saved_bytes)
    held = 16 * saved + (16 + 10) * 4 * TINY.kv_bytes + temporary
    assert simulate(schedule, cost).peak == (held,)


def test_a_sequence_that_is_not_cut_leaves_no_gradients_of_keys() -> None:
    schedule = build("1f1b", devices=1, microbatches=1)
    cost = TransformerCost.of(schedule.shape, TINY, ONE_FLOP_PER_TICK, [16])
    assert cost.amounts(schedule, "dkv").ticks.tolist() == [0, 0]
    assert cost.amounts(schedule, "kv").ticks.tolist() == [16 * 4 * TINY.kv_bytes] * 2


def test_a_transfer_takes_latency_and_bytes_over_bandwidth() -> None:
    base = build("1f1b", devices=2, microbatches=1)
    hardware = Hardware(TERA, TERA, TERA, TERA, TERA, link=10**9, latency=Fraction(1, 10**6))
    cost = TransformerCost.of(base.shape, TINY, hardware, [30])
    assert cost.link(0, 1) == Link(Fraction(1, 10**6), Fraction(1, 10**9))
    schedule = cost.workload.applied_to(base)
    transfer = Fraction(1, 10**6) + Fraction(30 * 64 * 2, 10**9)
    busy = int(cost.durations(base).ticks.sum()) * PICOSECOND
    assert simulate(schedule, cost).makespan == busy + 2 * transfer


def test_slices_carry_bytes_by_tokens_not_by_flops() -> None:
    base = build("seq1f1b", devices=2, microbatches=1, slices=2)
    hardware = Hardware(TERA, TERA, TERA, TERA, TERA, link=10**9)
    cost = TransformerCost.of(base.shape, TINY, hardware, [24, 8])
    transfers = simulate(cost.workload.applied_to(base), cost).transfers
    ticks = [24 * 64 * 2 * 1000, 8 * 64 * 2 * 1000]
    assert sorted((transfers.end - transfers.start).tolist()) == sorted(ticks * 2)


def test_an_offload_copies_its_share_of_the_activation() -> None:
    schedule = offloaded()
    hardware = Hardware(TERA, TERA, TERA, TERA, host=10**11, link=TERA)
    cost = TransformerCost.of(schedule.shape, TINY, hardware, [30])
    activation = 30 * (4 * (TINY.saved_bytes + TINY.kv_bytes) + 64 * 2)
    ticks = cost.durations(schedule).ticks
    for kind in "OL":
        assert ticks[schedule.table.row_of(Op(kind, 0, 0))] == activation // 2 * 10


def test_a_loan_is_the_attention_to_one_earlier_slice() -> None:
    rates = Hardware(TERA, TERA, 2 * TERA, TERA, TERA, TERA)
    cost = TransformerCost(Workload(TINY, ((10, 20, 30),), (2, 2)), rates)
    pairs = 30 * (10 + 20) // 2  # the slices before it are 15 tokens long on average
    forward = pairs * 2 * 4 * 64 * PICOSECOND
    shape = Shape.even(2, 1, slices=3)
    assert cost.loan(Op("F", 1, 0, 2), shape) == forward
    assert cost.loan(Op("B", 1, 0, 2), shape) == forward  # twice the FLOPs at twice the rate
    assert cost.loan(Op("F", 1, 0, 0), shape) == 0


def test_lent_attention_moves_time_from_one_device_to_another() -> None:
    schedule = lending()
    cost = TransformerCost.of(schedule.shape, TINY, ONE_FLOP_PER_TICK, [20, 12])
    ticks = cost.durations(schedule).ticks

    def time(text: str) -> Fraction:
        return int(ticks[schedule.table.row_of(parse_op(text))]) * PICOSECOND

    ops = (parse_op("0F0.1"), parse_op("0B0.1"))
    forward, backward = (cost.loan(op, schedule.shape) for op in ops)
    assert (forward, backward) == tuple(12 * 20 * 2 * 256 * n * PICOSECOND for n in (1, 2))
    assert simulate(schedule, cost).makespan == (
        time("0F0")
        + max(time("0F0.1") - forward, time("1F0") + forward)
        + time("1F0.1")
        + time("1B0.1")
        + max(time("0B0.1") - backward, time("1B0") + backward)
        + time("0B0")
    )


def test_an_unknown_size_is_refused() -> None:
    schedule = draw("0  0F0 0B0", Shape(1, 1, (1,)))
    cost = TransformerCost.of(schedule.shape, TINY, ONE_FLOP_PER_TICK, [8])
    with pytest.raises(ShapeError, match="did you mean 'stash'"):
        cost.amounts(schedule, "stach")
