"""What steps win that follow each other without waiting for all devices."""

from fractions import Fraction

import numpy as np
import pytest

from penstock.check import check
from penstock.core.begun import first_forwards
from penstock.cost.model import UnitCost
from penstock.plan.two_steps import time_between_steps, two_steps
from penstock.schedules import build
from penstock.sim import simulate


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("1f1b", 33, 33),
        ("zb-h1", 27, 27),
        ("zb-h2", 27, 24),
        ("zb-v", Fraction(51, 2), 24),
    ],
)
def test_only_staggered_devices_begin_earlier(
    name: str, before: int | Fraction, after: int
) -> None:
    found = time_between_steps(build(name, devices=4, microbatches=8), UnitCost())
    assert found == (before, after)


def test_where_all_wait_for_all_a_second_step_takes_as_long_as_the_first() -> None:
    schedule = build("zb-h2", devices=4, microbatches=8)
    nothing = np.zeros(len(schedule.table), np.bool_)
    both = simulate(two_steps(schedule, nothing), UnitCost()).makespan
    assert both == 2 * simulate(schedule, UnitCost()).makespan


def test_two_steps_are_a_schedule_that_can_be_proven() -> None:
    for name in ("dualpipev", "po-h", "slimpipe-exchange"):
        slices = {"slices": 4} if name.startswith("slim") else {}
        schedule = build(name, devices=2, microbatches=4, **slices)
        assert check(two_steps(schedule, first_forwards(schedule))).proven, name
