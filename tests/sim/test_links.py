"""What transfers take over links is worked out once for all costs that have the links in common."""

from dataclasses import replace
from fractions import Fraction

import numpy as np

from penstock.core.schedule import Schedule
from penstock.cost.model import Link, UnitCost
from penstock.schedules import build
from penstock.sim.links import KEPT_TRAFFIC, delays, links_of, traffic_of, wires

TICK = Fraction(1, 1000)


def _with_bytes() -> Schedule:
    schedule = build("interleaved", devices=3, microbatches=6, chunks=2)
    return schedule.with_boundary_bytes((8,) * (schedule.shape.stages - 1))


def _cost(number: int) -> UnitCost:
    """One whose first link is slower than the others."""
    far = Link(Fraction(number, 10), Fraction(1, 50))
    return UnitCost({}, Fraction(1, 10), per_byte=Fraction(1, 100), links={(0, 1): far})


def test_traffic_is_that_of_the_links_whatever_was_asked_for_before() -> None:
    schedule, numbers = _with_bytes(), [*range(2 * KEPT_TRAFFIC)]
    for number in (*numbers, *reversed(numbers)):
        links = links_of(schedule, _cost(number))
        alone = replace(schedule, derived={})
        found, occupied = traffic_of(schedule, links, TICK), wires(alone, links, TICK)
        assert np.array_equal(found.delay, delays(alone, links, TICK))
        assert found.wires
        assert occupied
        assert all(map(np.array_equal, found.wires, occupied))


def test_links_in_common_are_looked_at_once_until_others_take_their_place() -> None:
    schedule = _with_bytes()
    first = traffic_of(schedule, links_of(schedule, _cost(1)), TICK)
    assert traffic_of(schedule, links_of(schedule, _cost(1)), TICK) is first
    assert traffic_of(schedule, links_of(schedule, _cost(1)), TICK / 2) is not first
    for number in range(2, 2 + KEPT_TRAFFIC):
        traffic_of(schedule, links_of(schedule, _cost(number)), TICK)
    assert traffic_of(schedule, links_of(schedule, _cost(1)), TICK) is not first
