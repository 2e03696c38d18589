"""Blocks of arXiv:2405.15362: collisions, lifespans, and the schedules that are blocks."""

from itertools import pairwise

import pytest

from loops import each_case
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.errors import ShapeError
from penstock.schedules.generators.building_blocks import Block, Pass, lanes_of, producers, squeeze
from penstock.schedules.generators.reorder import latest_stage, with_weights
from penstock.schedules.generators.v_shaped import half_block, third_block, v_shaped
from schedules.picture import bubble, built, chunk_units, priced

DEVICES = range(1, 17)


def one_stage_each(p: int, **starts: list[int]) -> Block:
    """A block with one stage per device, by the kinds of its passes."""
    return Block(3, tuple({(kind, r): starts[kind][r] for kind in starts} for r in range(p)))


def steady(p: int) -> Block:
    """1F1B: forwards one unit apart, full backwards two."""
    return one_stage_each(p, F=list(range(p)), B=[p + 2 * (p - 1 - r) for r in range(p)])


def delayed(p: int, depth: int) -> Block:
    """ZB-H1 and ZB-H2: weight gradients `depth` r intervals behind their input gradients."""
    inputs = [r + 3 * depth * (p - 1 - r) + 1 for r in range(p)]
    weights = [start + 1 + 3 * depth * r for r, start in enumerate(inputs)]
    return one_stage_each(p, F=list(range(p)), I=inputs, W=weights)


def half_block_of_the_table(p: int) -> Block:
    """V-Half with the turns of the paper's table instead of its code's (section 3)."""
    turn = 3 * p - 1 + (4 if p % 2 == 0 else 1)
    return v_shaped(
        p,
        lambda r: 2 * r,
        lambda r: 3 * p - 1 - r,
        lambda r: turn + 2 * r,
        lambda r: turn + 2 * (p - 1) + 1 + (p - 1 - r),
    )


@each_case("p", range(1, 9))
@each_case("m", [1, 5, 20])
def test_section_6_known_schedules_are_repeated_blocks(p: int, m: int) -> None:
    """Section 6: 1F1B, ZB-H1 and ZB-H2 are expressible."""
    shape = Shape.even(p, m)
    for name, block in (("1f1b", steady(p)), ("zb-h1", delayed(p, 1)), ("zb-h2", delayed(p, 2))):
        order = lanes_of(squeeze(shape, block.repeat(m)))
        assert Schedule.of(name, shape, order) == built(name, p, m)


@each_case("p", DEVICES)
def test_section_3_the_blocks_of_the_paper_meet_nowhere(p: int) -> None:
    """Sections 2 and 3."""
    for block in (third_block(p), half_block(p), half_block_of_the_table(p), half_block(p, 2)):
        whole = block.with_weights()
        assert list(whole.collisions()) == []
        for starts in whole.starts:
            assert sorted(start % 6 for start in starts.values()) == [0, 1, 2, 3, 4, 5]
    assert list(steady(p).collisions()) == []


def moves(block: Block) -> tuple[list[int], list[int]]:
    """How far a pass moves from device to device: forwards down and up, input gradients back; and
    the turns between them."""
    p = len(block.starts)
    forwards, inputs = ([(kind, stage) for stage in range(2 * p)] for kind in "FI")
    at = {item: start for starts in block.starts for item, start in starts.items()}
    path = [at[item] for item in [*forwards, *reversed(inputs)]]
    gaps = [later - early for early, later in pairwise(path)]
    turns = [gaps.pop(turn) for turn in (3 * p - 1, 2 * p - 1, p - 1)]
    return gaps, turns[::-1]


@each_case("p", DEVICES)
def test_section_3_steps_and_turns_of_the_table(p: int) -> None:
    long_turn = 3 if p % 3 == 0 else 1
    assert moves(third_block(p)) == ([1] * 4 * (p - 1), [1, long_turn, 1])
    steps = [step for step in (2, 1, 2, 1) for _ in range(p - 1)]
    long_turn = 4 if p % 2 == 0 else 1
    assert moves(half_block(p)) == (steps, [1, long_turn, 2])
    assert moves(half_block_of_the_table(p)) == (steps, [2, long_turn, 1])


def test_a_block_that_meets_itself_is_refused_by_device_and_pass() -> None:
    block = one_stage_each(2, F=[0, 1], B=[4, 3])
    assert list(block.collisions()) == [(1, ("F", 1), ("B", 1))]
    with pytest.raises(
        ShapeError, match=r"device 1: F of stage 1 and B of stage 1 collide every 3"
    ):
        block.repeat(4)


def test_an_interval_without_room_for_weight_gradients_is_refused() -> None:
    block = Block(2, ({("F", 0): 0, ("I", 0): 1},))
    with pytest.raises(ShapeError, match=r"device 0: an interval of 2 has no room .* stage 0"):
        block.with_weights()


def test_an_order_that_waits_for_itself_is_refused() -> None:
    shape = Shape.even(2, 1)
    loose = one_stage_each(2, F=[0, 1], B=[7, 5])
    assert squeeze(shape, loose.repeat(1))[0] == {("F", 0): [0], ("B", 0): [4]}
    with pytest.raises(ShapeError, match=r"waits for itself"):
        squeeze(shape, one_stage_each(2, F=[2, 1], B=[0, 2]).repeat(1))


@each_case("p", DEVICES)
def test_section_2_lifespans_decide_memory(p: int) -> None:
    """Section 2: at most ceil(l/T) activations; section 3: about 4p and 6p units at most."""
    assert [steady(p).peak(r) for r in range(p)] == [p - r for r in range(p)]
    half, third = half_block(p).with_weights(), third_block(p).with_weights()
    assert [half.peak(r) for r in range(p)] == [2 * ((p + 2) // 2)] * p
    assert max(third.lifespan(r, r) for r in range(p)) <= 4 * p + 5
    assert max(half.lifespan(r, r) for r in range(p)) <= 6 * p + 6


@pytest.mark.parametrize("barriers", [0, 1, 2])
def test_section_9_a_barrier_costs_one_interval_and_one_microbatch(barriers: int) -> None:
    """Section 9; the passes behind the barrier stand anywhere in the interval."""
    block = half_block(4, barriers).with_weights()
    assert [block.peak(r) for r in range(4)] == [6 + 2 * barriers] * 4
    passes: list[dict[Pass, int]] = [
        {**starts, ("T", r): 15, ("S", r): 15} for r, starts in enumerate(block.starts)
    ]
    lane = lanes_of(Block(6, tuple(passes)).repeat(2))[0]
    assert lane.index(("S", 0, 1, 0)) - lane.index(("T", 0, 1, 0)) == 1


@pytest.mark.parametrize("block", [half_block(4), half_block_of_the_table(4)])
def test_section_8_repeated_and_squeezed_but_not_reordered(block: Block) -> None:
    """Section 8: V-Half on 4 devices has peak 6 and bubble 12 before anything moves."""
    shape = Shape.even(4, 8, 2)
    slots = [with_weights(row, latest_stage) for row in block.repeat(8)]
    timeline = priced(Schedule.of("raw", shape, lanes_of(slots)))
    assert max(chunk_units(timeline.peak, 2)) == 6
    if block == half_block(4):
        assert 2 * bubble(timeline) == 12


def test_a_pass_waits_for_what_its_meaning_says() -> None:
    found = producers(Shape.even(2, 1, 2), half_block(2))
    assert found["F", 2] == [("F", 1)]
    assert set(found["I", 3]) == {("F", 3)}
    assert set(found["I", 2]) == {("F", 2), ("I", 3)}
