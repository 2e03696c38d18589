"""Units: the slices of all microbatches, counted along the batch."""

import pytest

from penstock.core.shape import Shape


@pytest.mark.parametrize("slices", [(1,), (1, 1, 1), (4, 4), (1, 3, 2, 1)], ids=str)
def test_every_unit_has_one_microbatch_and_slice_and_the_other_way_round(
    slices: tuple[int, ...],
) -> None:
    shape = Shape(1, 1, slices)
    units = [(mb, slice) for mb, count in enumerate(slices) for slice in range(count)]
    assert [shape.mb_and_slice(unit) for unit in range(shape.units)] == units
    assert [shape.unit_of(mb, slice) for mb, slice in units] == list(range(shape.units))
