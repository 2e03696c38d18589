from fractions import Fraction

import pytest

from penstock.check import check
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.cost.model import UnitCost
from penstock.errors import ShapeError
from penstock.schedules import build
from penstock.sim import simulate
from penstock.transform import update_on_host

TIMES = {"F": Fraction(2), "I": Fraction(4), "W": Fraction(0)}
"""A stage's forward takes 1, its backward 2."""


def step(p: int) -> Schedule:
    return build("chronos", devices=p, microbatches=4 * p, chunks=2, prices=TIMES)


def makespan(schedule: Schedule, update: int) -> Fraction:
    """What the step takes where the update of one stage takes so long."""
    return simulate(schedule, UnitCost(times={**TIMES, "U": Fraction(2 * update)})).makespan


def test_updates_stand_in_the_copy_lane_of_their_device() -> None:
    schedule = update_on_host(step(4), range(4, 8))
    assert check(schedule).findings == ()
    assert [schedule.lane(device, "copy") for device in range(4)] == [
        [Op("U", 4 + device, 0)] for device in range(4)
    ]
    assert [schedule.lane(device) for device in range(4)] == [
        step(4).lane(device) for device in range(4)
    ]


def test_stages_of_a_device_are_updated_in_the_order_of_their_last_gradients() -> None:
    schedule = update_on_host(step(4), [0, 4])
    assert schedule.lane(0, "copy") == [Op("U", 4, 0), Op("U", 0, 0)]


@pytest.mark.parametrize(("p", "room"), [(4, 8), (8, 16)])
def test_last_stages_are_updated_while_the_others_finish(p: int, room: int) -> None:
    """arXiv:2503.03182, section 5: of the windows of 12 and 24 of stage p, 4 and 8 are in the next
    step, before its first forward."""
    schedule = update_on_host(step(p), range(p, 2 * p))
    plain = simulate(step(p), UnitCost(times=TIMES)).makespan
    assert makespan(schedule, room) == plain
    assert makespan(schedule, room + 1) == plain + 1


def test_a_first_stage_has_no_such_time() -> None:
    plain = simulate(step(4), UnitCost(times=TIMES)).makespan
    assert makespan(update_on_host(step(4), [0]), 5) == plain + 5


def test_a_stage_without_weights_is_refused() -> None:
    attention = build("helixpipe", devices=2, microbatches=4)
    with pytest.raises(ShapeError, match="stage 1 has no weights"):
        update_on_host(attention, [1])
