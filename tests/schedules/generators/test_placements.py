import pytest

from penstock.core.shape import Shape
from penstock.errors import ShapeError
from penstock.schedules.generators.placements import (
    looped_placement,
    stages_of,
    stages_per_device,
    v_placement,
    wave_placement,
)


def test_stages_of_a_loop_lie_p_apart() -> None:
    shape = Shape.even(4, 1, chunks=3)
    assert stages_of(looped_placement(shape)) == [(r, r + 4, r + 8) for r in range(4)]


def test_a_wave_turns_at_both_ends_where_a_device_follows_itself() -> None:
    placement = wave_placement(Shape.even(3, 1, chunks=4))
    assert placement == (0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0)
    assert stages_of(placement) == [(0, 5, 6, 11), (1, 4, 7, 10), (2, 3, 8, 9)]


def test_a_v_is_a_wave_that_turns_once() -> None:
    shape = Shape.even(5, 1, chunks=2)
    assert v_placement(shape) == wave_placement(shape)
    assert stages_of(v_placement(shape)) == [(r, 9 - r) for r in range(5)]


@pytest.mark.parametrize("chunks", [1, 3, 4])
def test_a_v_has_two_stages_per_device(chunks: int) -> None:
    with pytest.raises(ShapeError, match=f"{3 * chunks} stages on 3 devices cannot form a V"):
        v_placement(Shape.even(3, 1, chunks))


def test_stages_per_device_follow_from_the_shape() -> None:
    assert stages_per_device(Shape.even(4, 1, chunks=3)) == 3
    with pytest.raises(ShapeError, match="5 stages do not divide evenly over 2 devices"):
        stages_per_device(Shape(2, 5, (1,)))


def test_every_device_has_as_many_stages_in_every_placement() -> None:
    for devices in range(1, 6):
        for chunks in range(1, 5):
            shape = Shape.even(devices, 1, chunks)
            for placement in (looped_placement(shape), wave_placement(shape)):
                assert sorted(stage for stages in stages_of(placement) for stage in stages) == list(
                    range(shape.stages)
                )
                assert {len(stages) for stages in stages_of(placement)} == {chunks}
