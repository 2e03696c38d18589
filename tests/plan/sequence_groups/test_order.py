"""Microbatches of unequal times in a pipeline (FlexSP, section 10)."""

from fractions import Fraction
from itertools import permutations
from random import Random

import pytest

from penstock.plan.sequence_groups.order import rising_and_falling
from penstock.schedules import build
from penstock.sim import simulate
from penstock.transform import weigh_slices


def makespan(times: list[int]) -> Fraction:
    """Of 1F1B on 3 devices, where each microbatch has its own share of the work."""
    plain = build("1f1b", devices=3, microbatches=len(times))
    return simulate(weigh_slices(plain, [(Fraction(time),) for time in times])).makespan


@pytest.mark.matrix
def test_section_10_short_microbatches_at_both_ends_smooth_the_bubble() -> None:
    random = Random(10)
    whole = best = Fraction(0)
    for _ in range(6):
        times = [random.randint(1, 30) for _ in range(5)]
        ordered = makespan([times[number] for number in rising_and_falling(times)])
        assert ordered <= makespan(sorted(times, reverse=True))
        whole += ordered
        best += min(makespan(list(each)) for each in permutations(times))
    assert whole <= Fraction(105, 100) * best, float(whole / best)
