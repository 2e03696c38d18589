"""Orders that papers tell as a rule, written as one, are the orders that are written as tables."""

import pytest

from loops import each_case
from penstock.check import check
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.errors import ShapeError
from penstock.schedules import build
from penstock.schedules.generators.greedy import SPLIT_TIMES, greedy_lanes
from penstock.schedules.generators.placements import looped_placement, wave_placement
from schedules.picture import lanes, picture


def backward_first(op: Op) -> tuple[bool, int, int]:
    return op.kind == "F", op.mb, op.slice


def forward_first(op: Op) -> tuple[bool, int, int]:
    return op.kind != "F", op.mb, op.slice


def lanes_of(schedule: Schedule) -> list[list[Op]]:
    return [schedule.lane(device) for device in range(schedule.shape.devices)]


@each_case(("p", "m"), [(1, 3), (2, 5), (4, 2), (4, 8), (5, 12)])
def test_one_backward_for_each_forward_that_p_minus_r_admit_is_1f1b(p: int, m: int) -> None:
    shape = Shape.even(p, m)
    found = greedy_lanes(shape, range(p), backward_first, admission=lambda stage: p - stage)
    assert found == lanes_of(build("1f1b", devices=p, microbatches=m))


@pytest.mark.parametrize(("p", "m"), [(1, 3), (3, 4), (4, 8)])
def test_all_forwards_first_is_gpipe(p: int, m: int) -> None:
    found = greedy_lanes(Shape.even(p, m), range(p), forward_first)
    assert found == lanes_of(build("gpipe", devices=p, microbatches=m))


@pytest.mark.parametrize(("p", "m", "k"), [(2, 3, 2), (4, 8, 4), (3, 5, 3)])
def test_slices_wait_for_each_other_as_the_table_of_meaning_says(p: int, m: int, k: int) -> None:
    shape = Shape.even(p, m, slices=k)
    found = greedy_lanes(shape, range(p), backward_first, lambda stage: p - 1 - stage + k)
    assert check(Schedule.of("greedy", shape, found)).findings == ()
    for lane in found:
        backwards = [(op.mb, op.slice) for op in lane if op.kind == "B"]
        assert backwards == [(mb, s) for mb in range(m) for s in reversed(range(k))]


def test_split_backwards_run_their_weight_gradients_where_nothing_else_is_ready() -> None:
    shape = Shape.even(2, 3)
    found = greedy_lanes(
        shape,
        range(2),
        lambda op: ("IFW".index(op.kind), op.mb),
        admission=lambda stage: 2 - stage,
        times=SPLIT_TIMES,
    )
    assert lanes(Schedule.of("greedy", shape, found)) == picture("""
        0  F0 F1 I0 F2 I1 W0 I2 W1 W2
        1  F0 I0 F1 I1 F2 I2 W0 W1 W2
    """)


def test_a_wave_needs_no_other_rule_than_a_loop() -> None:
    for shape in (Shape.even(3, 6, 2), Shape.even(2, 4, 4)):
        for placement in (looped_placement(shape), wave_placement(shape)):
            found = greedy_lanes(
                shape, placement, lambda op: (op.kind == "F", op.mb, op.stage), lambda stage: 3
            )
            assert check(Schedule.of("greedy", shape, found)).findings == ()


def test_admission_bounds_what_a_stage_has_in_flight() -> None:
    shape = Shape.even(3, 9)
    for lane in greedy_lanes(shape, range(3), forward_first, lambda stage: 2):
        alive = [0]
        for op in lane:
            alive.append(alive[-1] + (1 if op.kind == "F" else -1))
        assert max(alive) == 2


def test_given_times_decide_what_is_ready_first() -> None:
    shape = Shape.even(2, 4)
    slow = greedy_lanes(shape, range(2), backward_first, times={"F": 1, "B": 9})
    fast = greedy_lanes(shape, range(2), backward_first, times={"F": 9, "B": 1})
    assert [str(op) for op in slow[0]] == ["0F0", "0F1", "0F2", "0F3", "0B0", "0B1", "0B2", "0B3"]
    assert [str(op) for op in fast[0]] == ["0F0", "0F1", "0F2", "0B0", "0F3", "0B1", "0B2", "0B3"]


def test_an_admission_that_is_too_strict_is_refused_with_the_op_that_waits() -> None:
    shape = Shape.even(2, 1, slices=2)
    with pytest.raises(ShapeError, match=r"0F0.1 waits for room on stage 0") as refusal:
        greedy_lanes(shape, range(2), backward_first, admission=lambda stage: 1)
    assert "at least the slices of a microbatch" in refusal.value.hint
