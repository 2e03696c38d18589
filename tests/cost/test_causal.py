from dataclasses import replace
from fractions import Fraction

import pytest

from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.cost.causal import CausalCost
from penstock.cost.model import UnitCost
from penstock.errors import ShapeError
from penstock.schedules import build
from penstock.sim import simulate

ALL = CausalCost(attention=Fraction(1))


def forwards(schedule: Schedule, cost: UnitCost) -> list[Fraction]:
    """Times of the forwards of the first microbatch on the first device."""
    ticks, tick = cost.durations(schedule)
    rows = [row for row, op in enumerate(schedule.lane(0)) if op.kind == "F" and op.mb == 0]
    return [int(ticks[row]) * tick for row in rows]


def test_equal_slices_of_attention_cost_the_odd_numbers() -> None:
    schedule = build("seq1f1b", devices=2, microbatches=2, slices=4)
    assert forwards(schedule, ALL) == [Fraction(n, 16) for n in (1, 3, 5, 7)]
    half = CausalCost(attention=Fraction(1, 2))
    assert forwards(schedule, half) == [Fraction(n + 4, 32) for n in (1, 3, 5, 7)]


def test_a_sequence_costs_the_same_however_it_is_cut() -> None:
    even = build("seq1f1b", devices=1, microbatches=1, slices=2)
    shares = ((Fraction(3, 4), Fraction(1, 4)),)
    uneven = replace(even, shape=replace(even.shape, slice_share=shares), derived={})
    assert forwards(uneven, ALL) == [Fraction(9, 16), Fraction(7, 16)]
    assert simulate(uneven, ALL).makespan == simulate(even, ALL).makespan == 3


def test_without_attention_it_is_the_unit_cost() -> None:
    schedule = build("seq1f1b", devices=2, microbatches=3, slices=2)
    assert simulate(schedule, CausalCost()).makespan == simulate(schedule, UnitCost()).makespan


def test_vocabulary_passes_and_copies_do_not_attend() -> None:
    lane = ["F00", "F01", "B01", "B00"]
    ops = [Op(kind, 0, 0, int(text[2])) for text in lane for kind in text[0]]
    copies = [Op("O", 0, 0), Op("L", 0, 0)]
    shape = Shape(1, 1, (2,))
    rows = [(0, "compute", ops), (0, "copy", copies)]
    schedule = Schedule.from_lanes("copies", shape, rows)
    cost = CausalCost(times={"O": Fraction(1), "L": Fraction(1)}, attention=Fraction(1))
    ticks, tick = cost.durations(schedule)
    assert [int(length) * tick for length in ticks[-2:]] == [Fraction(1, 2)] * 2


def test_a_lent_slice_costs_what_a_slice_has_more_than_the_one_before() -> None:
    shape = Shape.even(2, 1, chunks=2, slices=4)
    assert ALL.loan(Op("F", 1, 0, 3), shape) == Fraction(2, 16) / 2
    assert ALL.loan(Op("B", 1, 0, 1), shape) == 2 * Fraction(2, 16) / 2
    assert ALL.loan(Op("F", 1, 0, 0), shape) == 0


def test_a_lent_slice_of_a_backward_costs_as_many_times_more_as_the_backward() -> None:
    cost = UnitCost(times={"F": Fraction(2), "I": Fraction(3)}, lent_slice=Fraction(1))
    shape = Shape.even(2, 1, slices=2)
    assert cost.loan(Op("F", 0, 0, 1), shape) == 1
    assert cost.loan(Op("B", 0, 0, 1), shape) == 2


@pytest.mark.parametrize("part", ["-0.1", "1.1"])
def test_attention_is_a_part(part: str) -> None:
    with pytest.raises(ShapeError, match="attention is"):
        CausalCost(attention=Fraction(part))
