"""Units, the slices of all microbatches counted along the batch; and the cut of the layers."""

from fractions import Fraction

import pytest

from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.errors import ShapeError


@pytest.mark.parametrize("slices", [(1,), (1, 1, 1), (4, 4), (1, 3, 2, 1)], ids=str)
def test_every_unit_has_one_microbatch_and_slice_and_the_other_way_round(
    slices: tuple[int, ...],
) -> None:
    shape = Shape(1, 1, slices)
    units = [(mb, slice) for mb, count in enumerate(slices) for slice in range(count)]
    assert [shape.mb_and_slice(unit) for unit in range(shape.units)] == units
    assert [shape.unit_of(mb, slice) for mb, slice in units] == list(range(shape.units))


def test_a_cut_is_taken_as_it_is_or_in_proportion_or_refused() -> None:
    shares = (Fraction(3, 2), Fraction(1, 2))
    shape = Shape(2, 2, (1,), shares, layers=(9, 3))
    assert (shape.cut(12), shape.cut(8)) == ((9, 3), (6, 2))
    with pytest.raises(
        ShapeError, match=r"stages of 9, 3 layers, 12 together, which does not fit a model of 6"
    ):
        shape.cut(6)
    heavy_head = Shape(2, 2, (1,), (Fraction(1), Fraction(2)), layers=(4, 2))
    assert heavy_head.cut(6) == (4, 2)
    with pytest.raises(ShapeError, match="does not fit a model of 12"):
        heavy_head.cut(12)


def test_an_even_cut_is_even_for_any_number_of_layers() -> None:
    shape = Shape(2, 2, (1,), (Fraction(1), Fraction(2)), layers=(4, 4))
    assert (shape.cut(8), shape.cut(7), Shape(2, 2, (1,)).cut(7)) == ((4, 4), (), ())


@pytest.mark.parametrize("layers", [(1,), (1, 2, 3), (1, -1)])
def test_every_stage_has_a_number_of_layers(layers: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError):
        Shape(2, 2, (1,), layers=layers)


def test_schedules_for_different_cuts_are_different() -> None:
    lanes = [[("F", 0, 0, 0), ("B", 0, 0, 0)]]
    cuts = [
        Schedule.of("cut", Shape(1, 1, (1,), layers=layers), lanes) for layers in ((), (1,), (2,))
    ]
    assert len({schedule.digest for schedule in cuts}) == 3
