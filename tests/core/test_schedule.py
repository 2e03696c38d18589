"""Schedules as values: lanes, annotations, equality."""

import pytest

from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.errors import ShapeError
from penstock.schedules import build

SHAPE = Shape.even(2, 1)
LANES = [[("F", 0, 0, 0), ("B", 0, 0, 0)], [("F", 1, 0, 0), ("B", 1, 0, 0)]]


def test_schedules_are_equal_when_their_work_and_order_are() -> None:
    one, other = Schedule.of("one", SHAPE, LANES), Schedule.of("other", SHAPE, LANES)
    assert one == other
    assert hash(one) == hash(other)
    assert one != build("1f1b", devices=2, microbatches=2)


def test_a_nested_tuple_is_a_pair() -> None:
    schedule = Schedule.of("pair", SHAPE, [[(("F", 0, 0, 0), ("B", 0, 0, 0))], LANES[1]])
    assert schedule.lane(0) == [Op("F", 0, 0), Op("B", 0, 0)]
    assert schedule.pairs == ((Op("F", 0, 0), Op("B", 0, 0)),)


@pytest.mark.parametrize(
    ("lanes", "word"),
    [
        ([(2, "compute", LANES[0])], "lane 2 compute does not exist"),
        ([(0, "thinking", LANES[0])], "lane 0 thinking does not exist"),
        ([(0, "compute", LANES[0]), (0, "compute", LANES[1])], "lane 0 compute is given twice"),
        ([(0, "compute", [])], "at least one op"),
    ],
)
def test_lanes_that_cannot_be_are_refused(lanes: list, word: str) -> None:
    with pytest.raises(ShapeError, match=word) as caught:
        Schedule.from_lanes("bad", SHAPE, lanes)
    assert caught.value.hint
