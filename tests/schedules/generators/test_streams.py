from penstock.core.shape import Shape
from penstock.schedules.generators.streams import (
    PlainOp,
    alternate,
    alternate_split,
    backward_units,
    forward_units,
    group_sizes,
    looped_tables,
    table_ops,
    virtual_table,
)

RAGGED = Shape(1, 1, (2, 1, 3))


def ops(kind: str, count: int) -> list[PlainOp]:
    return [(kind, 0, mb, 0) for mb in range(count)]


def words(lane: list[PlainOp]) -> str:
    return " ".join(f"{kind}{mb}" for kind, _, mb, _ in lane)


def test_slices_of_one_microbatch_are_reversed_on_the_way_back_and_microbatches_are_not() -> None:
    assert forward_units(RAGGED) == [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (2, 2)]
    assert backward_units(RAGGED) == [(0, 1), (0, 0), (1, 0), (2, 2), (2, 1), (2, 0)]


def test_the_last_group_takes_what_is_left() -> None:
    assert group_sizes(6, 3) == [3, 3]
    assert group_sizes(7, 3) == [3, 3, 1]
    assert group_sizes(2, 3) == [2]


def test_every_group_visits_all_stages_of_a_device_before_the_next_group_starts() -> None:
    units = [(mb, 0) for mb in range(5)]
    table = virtual_table(units, chunks=range(2), groups=[3, 2])
    assert [mb for _, mb, _ in table] == [0, 1, 2, 0, 1, 2, 3, 4, 3, 4]
    assert [c for c, _, _ in table] == [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]


def test_the_backward_table_visits_stages_and_slices_reversed() -> None:
    forwards, backwards = looped_tables(Shape.even(1, 1, chunks=2, slices=2), group=2)
    assert forwards == [(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1)]
    assert backwards == [(1, 0, 1), (1, 0, 0), (0, 0, 1), (0, 0, 0)]


def test_a_table_is_written_with_the_stages_of_a_device() -> None:
    assert table_ops("F", [(0, 7, 1), (1, 7, 1)], (3, 7)) == [("F", 3, 7, 1), ("F", 7, 7, 1)]


def test_forwards_and_backwards_alternate_after_the_warmup() -> None:
    assert words(alternate(ops("F", 4), ops("B", 4), 2)) == "F0 F1 F2 B0 F3 B1 B2 B3"
    assert words(alternate(ops("F", 2), ops("B", 2), 0)) == "F0 B0 F1 B1"
    assert words(alternate(ops("F", 2), ops("B", 2), 9)) == "F0 F1 B0 B1"


def test_weight_gradients_follow_their_input_gradients_at_a_distance() -> None:
    split = alternate_split(ops("F", 3), ops("B", 3), warmup=1, delay=1)
    assert words(split) == "F0 F1 I0 F2 I1 W0 I2 W1 W2"


def test_no_distance_puts_them_side_by_side_and_a_large_one_leaves_all_to_the_end() -> None:
    at_once = alternate_split(ops("F", 2), ops("B", 2), warmup=0, delay=0)
    assert words(at_once) == "F0 I0 W0 F1 I1 W1"
    at_last = alternate_split(ops("F", 2), ops("B", 2), warmup=5, delay=5)
    assert words(at_last) == "F0 F1 I0 I1 W0 W1"
