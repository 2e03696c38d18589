"""Costs from a run: means over microbatches of the same kind, stage and slice."""

from fractions import Fraction

import pytest

from penstock.core.ops import Op
from penstock.cost.model import UnitCost
from penstock.cost.profile import Profile
from penstock.errors import ShapeError
from penstock.schedules import build
from penstock.sim import simulate

SCHEDULE = build("1f1b", devices=2, microbatches=3)


def _seconds(op: Op) -> float:
    """Forwards take 1 ms, backwards 2 ms, those of the second stage half as long again."""
    return {"F": 1e-3, "B": 2e-3}[op.kind] * (1 + op.stage / 2)


def test_ops_that_differ_in_their_microbatch_cost_the_same() -> None:
    ops = SCHEDULE.table.ops()
    seconds = [_seconds(op) + 1e-4 * (op.mb - 1) for op in ops]
    profile = Profile.of(SCHEDULE, seconds, UnitCost())
    assert profile.seconds == {
        (op.kind, op.stage, 0): pytest.approx(_seconds(op), rel=1e-12) for op in ops
    }


def test_a_simulation_with_a_profile_is_the_step_without_disturbances() -> None:
    seconds = [{"F": 1.0, "B": 2.0}[op.kind] for op in SCHEDULE.table.ops()]
    even = Profile.of(SCHEDULE, seconds, UnitCost())
    found = simulate(SCHEDULE, even)
    assert found.makespan == simulate(SCHEDULE).makespan
    assert found.work == simulate(SCHEDULE).work
    assert found.peak == simulate(SCHEDULE).peak


def test_times_are_rounded_to_nanoseconds() -> None:
    profile = Profile({("F", 0, 0): 1.25e-9, ("B", 0, 0): 3e-9}, UnitCost())
    schedule = build("1f1b", devices=1, microbatches=1)
    assert profile.durations(schedule).ticks.tolist() == [1, 3]
    assert profile.durations(schedule).tick == Fraction(1, 10**9)


def test_a_transfer_takes_the_hop_that_is_given() -> None:
    once = build("1f1b", devices=2, microbatches=1)
    near, far = (
        simulate(once, Profile.of(once, [1.0] * 4, UnitCost(), hop)).makespan
        for hop in (Fraction(0), Fraction(1, 4))
    )
    assert far - near == 2 * Fraction(1, 4)  # there and back


def test_one_profile_serves_more_microbatches_of_the_same_schedule() -> None:
    profile = Profile.of(SCHEDULE, list(map(_seconds, SCHEDULE.table.ops())), UnitCost())
    longer = build("1f1b", devices=2, microbatches=6)
    growth = simulate(longer, profile).makespan - simulate(SCHEDULE, profile).makespan
    assert growth == 3 * Fraction(45, 10000)  # a microbatch more is 4.5 ms of the slower stage


def test_an_op_that_was_not_profiled_is_refused_by_name() -> None:
    profile = Profile.of(SCHEDULE, list(map(_seconds, SCHEDULE.table.ops())), UnitCost())
    with pytest.raises(ShapeError, match="no op like 2F0"):
        simulate(build("1f1b", devices=3, microbatches=3), profile)


def test_a_time_for_every_row_is_needed() -> None:
    with pytest.raises(ValueError, match="argument"):
        Profile.of(SCHEDULE, [1.0], UnitCost())
