"""A step on fewer cores than devices lies between its work over the cores and its makespan."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.cost.model import UnitCost
from penstock.errors import PenstockError
from penstock.schedules import build
from penstock.sim import simulate
from penstock.sim.cores import makespan_on

SCHEDULES = {
    "whole": build("1f1b", devices=4, microbatches=6),
    "sliced": build("seq1f1b", devices=3, microbatches=3, slices=3),
    "split": build("zb-h1", devices=4, microbatches=6),
    "chunks": build("interleaved", devices=2, microbatches=4, chunks=2),
}
every = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())
THIRDS = UnitCost(times={"F": Fraction(1), "I": Fraction(4, 3), "W": Fraction(2, 3)})


def work(schedule: Schedule, cost: UnitCost) -> Fraction:
    return sum(simulate(schedule, cost).work, Fraction(0))


@every
@pytest.mark.parametrize("cost", [UnitCost(), THIRDS], ids=["even", "uneven"])
def test_a_core_for_every_device_is_what_is_simulated(schedule: Schedule, cost: UnitCost) -> None:
    devices = schedule.shape.devices
    expected = simulate(schedule, cost).makespan
    assert makespan_on(schedule, cost, devices) == expected
    assert makespan_on(schedule, cost, devices + 3) == expected


@every
def test_one_core_does_all_the_work_without_a_break(schedule: Schedule) -> None:
    assert makespan_on(schedule, THIRDS, 1) == work(schedule, THIRDS)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(list(SCHEDULES.values())), st.integers(1, 5), st.data())
def test_cores_lie_between_and_more_of_them_are_never_slower(
    schedule: Schedule, cores: int, data: st.DataObject
) -> None:
    whole = st.integers(1, 9).map(Fraction)
    cost = UnitCost(times={kind: data.draw(whole) for kind in "FIW"})
    found = makespan_on(schedule, cost, cores)
    assert found >= work(schedule, cost) / cores
    assert found >= simulate(schedule, cost).makespan
    assert found <= work(schedule, cost)


def test_two_devices_on_one_core_take_turns_at_half_pace() -> None:
    """Two stages, two microbatches, 3 units each: 12 in all, whoever has the core."""
    lanes = [
        [("F", 0, 0, 0), ("F", 0, 1, 0), ("B", 0, 0, 0), ("B", 0, 1, 0)],
        [("F", 1, 0, 0), ("B", 1, 0, 0), ("F", 1, 1, 0), ("B", 1, 1, 0)],
    ]
    schedule = Schedule.of("turns", Shape(2, 2, (1, 1)), lanes)
    cost = UnitCost(times={"F": Fraction(1), "I": Fraction(1), "W": Fraction(1)})
    assert makespan_on(schedule, cost, 1) == 12
    assert makespan_on(schedule, cost, 2) == simulate(schedule, cost).makespan


def test_ops_that_take_no_time_do_not_stop_the_clock() -> None:
    schedule = SCHEDULES["split"]
    cost = UnitCost(times={"F": Fraction(1), "I": Fraction(1), "W": Fraction(0)})
    assert makespan_on(schedule, cost, 4) == simulate(schedule, cost).makespan
    assert makespan_on(schedule, cost, 1) == work(schedule, cost)


def test_a_schedule_that_is_not_proven_is_refused() -> None:
    lane = [("B", 0, 0, 0), ("F", 0, 0, 0)]
    with pytest.raises(PenstockError):
        makespan_on(Schedule.of("backwards", Shape(1, 1, (1,)), [lane]), UnitCost(), 1)


def test_strands_of_a_pair_run_one_after_the_other_and_do_not_wait_for_each_other() -> None:
    braided = build("dualpipev", devices=2, microbatches=4)
    alone = Schedule(braided.name, braided.shape, braided.table)
    assert braided.pairs
    assert makespan_on(braided, UnitCost(), 2) == simulate(alone).makespan
    assert makespan_on(braided, UnitCost(), 2) < simulate(braided).makespan
