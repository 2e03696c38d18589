"""Times of ops and links from a timeline: a simulated one says what they must be."""

from fractions import Fraction

import pytest

from penstock.cost.model import Link, UnitCost
from penstock.run.observe.step_times import measured_times
from penstock.schedules import build
from penstock.sim import simulate

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "kfkb", "zb-h1"])
@pytest.mark.parametrize("hop", [0, 1, 5])
def test_ops_and_links_of_a_simulated_step_are_found_again(name: str, hop: int) -> None:
    schedule = build(name, devices=4, microbatches=8)
    slow = {(1, 2): Link(Fraction(hop + 3)), (2, 1): Link(Fraction(hop + 3))}
    cost = UnitCost(times={"F": 2, "I": 3, "W": 1}, hop=Fraction(hop), links=slow)
    timeline = simulate(schedule, cost)
    times = measured_times(timeline)
    expected = {"F": 2.0, "B": 4.0, "I": 3.0, "W": 1.0}
    assert all(time == expected[kind] for (kind, _, _), time in times.ops.items())
    edges = [(a, b) for r in range(3) for a, b in ((r, r + 1), (r + 1, r))]
    assert times.links == {edge: hop + 3 * (set(edge) == {1, 2}) for edge in edges}
    assert times.whole == timeline.makespan


def test_the_profile_of_the_times_predicts_the_same_step() -> None:
    schedule = build("1f1b", devices=3, microbatches=5)
    cost = UnitCost(times={"F": 2, "I": 3, "W": 1}, hop=Fraction(2))
    timeline = simulate(schedule, cost)
    assert (
        simulate(schedule, measured_times(timeline).profile(UnitCost())).makespan
        == timeline.makespan
    )
