from dataclasses import replace
from fractions import Fraction

import pytest

from penstock.check import check
from penstock.core.homes import weight_homes
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.core.table import Table
from penstock.cost.model import UnitCost
from penstock.errors import ShapeError
from penstock.schedules import build
from penstock.sim import simulate
from penstock.transform import offload_stages, update_on_host

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


def ended(schedule: Schedule, kinds: str) -> Schedule:
    """The schedule with these ops of every stage at the end of its compute lane."""
    homes = weight_homes(schedule)
    lanes = [
        (device, stream, [*ops, *tail] if stream == "compute" else ops)
        for device, stream, ops in schedule.table.lanes()
        for tail in [[Op(k, s, 0) for k in kinds for s in homes if device in homes[s]]]
    ]
    return replace(schedule, table=Table.of(lanes), derived={})


def test_norms_go_along_and_updates_wait_behind_all_copies() -> None:
    moved = update_on_host(ended(step(4), "VU"), [0, *range(4, 8)])
    assert check(moved).findings == ()
    assert moved.lane(0, "copy") == [Op(kind, stage, 0) for kind in "VU" for stage in (4, 0)]
    assert moved.lane(0) == step(4).lane(0)
    assert moved.lane(1)[-2:] == [Op("V", 1, 0), Op("U", 1, 0)]


def test_an_update_by_its_own_norm_follows_that() -> None:
    moved = update_on_host(ended(step(4), "VA"), [0, 4])
    assert check(moved).findings == ()
    assert moved.lane(0, "copy") == [Op(kind, stage, 0) for stage in (4, 0) for kind in "VA"]


def test_a_norm_is_taken_between_copies_when_its_gradient_is_complete() -> None:
    """Some loads of stages 2 and 0 come later than the last gradients of stages 6 and 4."""
    plain = build("interleaved", devices=2, microbatches=4, chunks=4)
    offloaded = offload_stages(plain, range(8))
    moved = update_on_host(ended(offloaded, "VU"), range(4, 8))
    assert check(moved).findings == ()
    copies = moved.lane(0, "copy")
    assert " ".join(map(str, copies)).endswith("6V0 2L2 2L3 4V0 0L2 0L3 6U0 4U0")
    assert [op for op in copies if op.kind in "OL"] == offloaded.lane(0, "copy")
