import pytest

from penstock.errors import PlanError, ShapeError
from penstock.plan.grouping import Grouping, Room, candidates
from penstock.schedules import build
from penstock.sim import simulate

FOUR = [Room(16, 1)] * 4


def test_section_4_each_group_takes_the_largest_microbatches_that_fit() -> None:
    """Activations dominate, so group x size stays what stage 0 has room for, over p."""
    assert candidates(32, FOUR, most=4) == (
        Grouping(group=1, size=4, microbatches=8),
        Grouping(group=2, size=2, microbatches=16),
        Grouping(group=3, size=1, microbatches=32),
        Grouping(group=4, size=1, microbatches=32),
    )
    assert [way.group for way in candidates(32, FOUR)] == [1, 2, 3, 4]


def test_section_4_no_candidate_exceeds_the_limit_and_a_larger_microbatch_would() -> None:
    rooms, batch = [Room(free, 3) for free in (100, 90, 60, 25)], 24

    def peaks(way: Grouping) -> list[int]:
        options = {"group": way.group}
        schedule = build("kfkb", devices=4, microbatches=way.microbatches, options=options)
        return [int(peak) * way.size * 3 for peak in simulate(schedule).peak]

    def fits(way: Grouping) -> bool:
        return all(peak <= room.free for peak, room in zip(peaks(way), rooms))

    found = candidates(batch, rooms)
    assert found
    for way in found:
        assert fits(way)
        larger = [size for size in range(way.size + 1, batch + 1) if batch % size == 0]
        others = (Grouping(way.group, size, batch // size) for size in larger)
        assert not any(fits(other) for other in others if other.group <= other.microbatches)


def test_section_4_receive_buffers_grow_with_the_group() -> None:
    assert candidates(32, [Room(16, 1, receive=4)] * 4) == (
        Grouping(1, 2, 16),
        Grouping(2, 1, 32),
    )


def test_section_8_the_last_stage_has_logits_and_may_be_the_one_that_is_full() -> None:
    tight = [*FOUR[:3], Room(16, 1, working=7)]
    assert [way.size for way in candidates(32, tight, most=2)] == [2, 1]


def test_a_group_is_never_larger_than_the_batch_has_microbatches() -> None:
    roomy = [Room(10**9, 1)] * 4
    assert candidates(4, roomy) == (
        Grouping(1, 4, 1),
        Grouping(2, 2, 2),
        Grouping(3, 1, 4),
        Grouping(4, 1, 4),
    )


def test_what_does_not_fit_is_refused_with_advice() -> None:
    with pytest.raises(PlanError, match="not even single samples"):
        candidates(8, [Room(3, 1)] * 4)
    with pytest.raises(ShapeError, match="nothing to group"):
        candidates(0, FOUR)
