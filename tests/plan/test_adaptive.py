import doctest
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.errors import ShapeError
from penstock.plan.adaptive import AdaptiveJob, best_way, finish_time, reconsider, run_adaptively
from penstock.plan.grouping import Grouping, Room, candidates
from penstock.schedules import build

PAGE = Path(__file__).parents[2] / "docs/concepts/adaptive-groups.md"


def overhead(size: int) -> Mapping[str, Fraction]:
    """A fixed part of every op, so that large microbatches are more efficient."""
    return dict.fromkeys("FIW", Fraction(size + 1))


def proportional(size: int) -> Mapping[str, Fraction]:
    return {"F": Fraction(size), "I": Fraction(size), "W": Fraction(size)}


WAYS = candidates(32, [Room(16, 1)] * 4)
JOB = AdaptiveJob(lambda m: build("1f1b", devices=4, microbatches=m), overhead, WAYS)


def steady(transfer: int) -> Grouping:
    """What is chosen while transfers take that long."""
    return best_way(JOB.predicted(lambda at, size: Fraction(transfer), Fraction(0)))


def square(at: Fraction, size: int) -> Fraction:
    """Transfers of 0 and of 8 in turn, 3000 units of time each."""
    return Fraction(8) if int(at // 3000) % 2 else Fraction(0)


def test_a_candidate_is_the_grouped_schedule() -> None:
    for way in WAYS:
        options = {"group": way.group}
        known = build("kfkb", devices=4, microbatches=way.microbatches, options=options)
        assert JOB.schedules[way] == known


def test_section_7_slow_networks_get_larger_groups_within_the_memory_limit() -> None:
    chosen = [steady(transfer) for transfer in (0, 1, 2, 4, 6, 8, 12, 16, 24, 32)]
    assert chosen[0] == Grouping(group=1, size=4, microbatches=8)
    assert [way.group for way in chosen] == [1, 2, 2, 2, 2, 2, 4, 4, 4, 4]
    assert all(earlier.group <= later.group for earlier, later in pairwise(chosen))


def test_equal_candidates_are_settled_for_the_smallest_group() -> None:
    same = tuple(Grouping(group, 1, 16) for group in (4, 2, 1))
    job = AdaptiveJob(JOB.base, proportional, same)
    assert best_way(job.predicted(lambda at, size: Fraction(0), Fraction(0))).group == 1


def test_section_7_adapting_beats_every_fixed_group_and_nearly_knowing_the_network() -> None:
    adaptive = finish_time(run_adaptively(JOB, square, steps=100))
    fixed = [
        finish_time(run_adaptively(replace(JOB, candidates=(way,)), square, steps=100))
        for way in WAYS
    ]
    assert adaptive == 19839
    assert fixed == [20596, 20088, 24040, 22968]
    assert adaptive < Fraction(101, 100) * clairvoyant(100)


def clairvoyant(steps: int) -> Fraction:
    """The end of a run that knows before every step how fast the network will be."""
    now = Fraction(0)
    for _ in range(steps):
        now += min(JOB.predicted(square, now).values())
    return now


def test_it_changes_one_step_after_the_network_did() -> None:
    run = run_adaptively(JOB, square, steps=40)
    slow = [square(step.start, step.way.size) > 0 for step in run]
    groups = [step.way.group for step in run]
    assert groups[1:] == [2 if before else 1 for before in slow[:-1]]
    assert [later.start for later in run[1:]] == [step.start + step.time for step in run[:-1]]


def test_a_long_interval_lags_behind() -> None:
    often = finish_time(run_adaptively(JOB, square, steps=100))
    seldom = finish_time(run_adaptively(JOB, square, steps=100, interval=10))
    assert often < seldom


def test_a_small_gain_is_not_worth_a_change() -> None:
    one, two = WAYS[:2]
    predicted = {one: Fraction(100), two: Fraction(99)}
    assert reconsider(predicted, one, threshold=Fraction(1, 50)) == one
    assert reconsider(predicted, one, threshold=Fraction(1, 200)) == two


def test_any_schedule_can_be_grouped() -> None:
    job = replace(JOB, base=lambda m: build("zb-h1", devices=4, microbatches=m))
    fast = best_way(job.predicted(lambda at, size: Fraction(0), Fraction(0)))
    slow = best_way(job.predicted(lambda at, size: Fraction(16), Fraction(0)))
    assert fast.group < slow.group


def test_a_run_without_steps_is_refused() -> None:
    with pytest.raises(ShapeError, match="does nothing"):
        run_adaptively(JOB, square, steps=0)


def test_the_page_prints_its_numbers() -> None:
    result = doctest.testfile(str(PAGE), module_relative=False)
    assert result.attempted > 8
    assert result.failed == 0
