"""Eager 1F1B (arXiv:2211.05322): the table of its public code, and what running ahead is for."""

from fractions import Fraction

from loops import each_case
from penstock.core.shape import Shape
from penstock.schedules.generators.greedy import greedy_lanes
from schedules.picture import built, lanes, picture, priced


def test_the_order_is_that_of_the_table_in_the_public_code() -> None:
    found = lanes(built("eager-1f1b", p=3, m=6))
    assert [lane[:7] for lane in found] == picture("""
        0  F0 F1 F2 F3 F4 B0
        1  F0 F1 F2 B0 F3 B1
        2  F0 B0 F1 B1 F2 B2
    """)


@each_case(("p", "m"), [(1, 4), (3, 6), (4, 2), (5, 16)])
def test_it_is_the_greedy_order_that_admits_twice_the_distance_to_the_end(p: int, m: int) -> None:
    found = greedy_lanes(
        Shape.even(p, m),
        range(p),
        urgency=lambda op: (op.kind == "F", op.mb),
        admission=lambda stage: 2 * (p - 1 - stage) + 1,
    )
    schedule = built("eager-1f1b", p=p, m=m)
    assert found == [schedule.lane(device) for device in range(p)]


@each_case("hop", [Fraction(1, 4), Fraction(1), Fraction(3)])
@each_case(("p", "m"), [(2, 8), (4, 16), (8, 32)])
def test_a_latency_costs_less_than_in_1f1b(p: int, m: int, hop: Fraction) -> None:
    eager, usual = (priced(built(name, p=p, m=m), hop=hop) for name in ("eager-1f1b", "1f1b"))
    assert eager.makespan < usual.makespan
    assert eager.work == usual.work


def test_it_holds_nearly_twice_as_much_on_the_first_device() -> None:
    eager, usual = (priced(built(name, p=4, m=16)) for name in ("eager-1f1b", "1f1b"))
    assert eager.peak == (7, 5, 3, 1)
    assert usual.peak == (4, 3, 2, 1)
