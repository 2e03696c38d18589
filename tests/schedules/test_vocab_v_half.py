"""Vocabulary passes in V-Half: arXiv:2411.05288, with the block of arXiv:2405.15362."""

from fractions import Fraction

import pytest

from loops import each_case
from penstock.cost.model import UnitCost
from penstock.sim import simulate
from schedules.picture import built, chunk_units, priced


def peaks(p: int, m: int, algorithm: int) -> list[int]:
    return chunk_units(priced(built("vocab-v-half", p=p, m=m, algorithm=algorithm)).peak, 2)


def test_section_5_a_wait_costs_a_microbatch_of_two_stages_on_every_device() -> None:
    """6 stage activations without vocabulary passes, 8 and 10 with them."""
    assert chunk_units(priced(built("v-half", p=4, m=8)).peak, 2) == [6, 6, 6, 6]
    assert peaks(4, 8, algorithm=2) == [8, 8, 8, 8]
    assert peaks(4, 8, algorithm=1) == [10, 10, 10, 10]


@each_case("p", range(1, 17))
@each_case("algorithm", [1, 2])
def test_memory_is_even_from_a_few_more_microbatches_than_devices_on(
    p: int, algorithm: int
) -> None:
    assert peaks(p, p + 4 - algorithm, algorithm) == [2 * ((p + 2) // 2 + 3 - algorithm)] * p


def test_the_first_device_holds_the_first_and_the_last_stage() -> None:
    schedule = built("vocab-v-half", p=4, m=8)
    stages = [sorted({op.stage for op in schedule.lane(r) if op.kind in "FIW"}) for r in range(4)]
    assert stages == [[0, 7], [1, 6], [2, 5], [3, 4]]


@pytest.mark.parametrize("algorithm", [1, 2])
def test_t_of_a_microbatch_stands_in_front_of_s_of_the_next(algorithm: int) -> None:
    schedule = built("vocab-v-half", p=4, m=6, algorithm=algorithm)
    for device in range(4):
        passes = " ".join(f"{op.kind}{op.mb}" for op in schedule.lane(device) if op.kind in "ST")
        assert passes == "S0 T0 S1 T1 S2 T2 S3 T3 S4 T4 S5 T5"


@each_case("p", [2, 3, 4, 8])
def test_input_passes_stand_half_the_devices_ahead_and_behind(p: int) -> None:
    m = 2 * p + 6
    for device in range(p):
        ops = [f"{op.kind}{op.mb}" for op in built("vocab-v-half", p=p, m=m).lane(device)]
        assert ops[: p // 2 + 1] == [f"E{mb}" for mb in range(p // 2 + 1)]
        assert ops.index("S0") + 1 == ops.index(f"E{p // 2 + 1}")
        assert ops.index(f"S{p // 2 + 3}") < ops.index("D0") <= ops.index(f"S{p // 2 + 3}") + 2


@each_case("algorithm", [1, 2])
@each_case("p", [3, 4, 8])
def test_the_idle_time_depends_neither_on_the_batch_nor_grows_with_the_passes(
    p: int, algorithm: int
) -> None:
    def idle(m: int, passes: Fraction) -> Fraction:
        schedule = built("vocab-v-half", p=p, m=m, algorithm=algorithm)
        timeline = simulate(schedule, UnitCost(times={"S": passes, "T": passes}))
        return timeline.makespan - max(timeline.work)

    free = idle(2 * p, Fraction(0))
    assert idle(4 * p, Fraction(0)) == free
    assert idle(4 * p, Fraction(3, 4)) == idle(2 * p, Fraction(3, 4)) <= free


def test_the_bubble_of_a_squeezed_block_grows_with_every_wait() -> None:
    """Without filling holes: 12 passes for the block alone, as its paper says, then 18 and 22."""

    def idle(algorithm: int) -> Fraction:
        timeline = priced(built("vocab-v-half", p=4, m=8, algorithm=algorithm))
        return 2 * (timeline.makespan - timeline.work[0])

    assert (idle(2), idle(1)) == (18, 22)
