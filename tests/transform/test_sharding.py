from fractions import Fraction

import pytest
from hypothesis import given, settings

from penstock.check import check
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.cost.model import UnitCost
from penstock.errors import ShapeError
from penstock.schedules import build
from penstock.sim import simulate
from penstock.transform import shard, split_backward
from penstock.transform.buffer_stays import BY_NUMBER, FARTHEST, LEAST_RECENT, BufferRule
from penstock.transform.sharding import fewest_for_one_reduction
from transform.pictures import draw, lanes, picture
from transform.test_every_schedule import built


def looped(name: str, p: int, v: int, m: int) -> Schedule:
    return build(name, devices=p, microbatches=m, chunks=v)


def counted(schedule: Schedule, kind: str) -> list[int]:
    """Collectives of one kind on each device."""
    devices = range(schedule.shape.devices)
    return [sum(op.kind == kind for op in schedule.lane(r, "collective")) for r in devices]


def gathers(
    name: str, size: tuple[int, int, int], buffers: int, rule: BufferRule = BY_NUMBER
) -> list[int]:
    return counted(shard(looped(name, *size), weights=buffers, gradients=1, rule=rule), "G")


def test_a_stage_is_gathered_once_its_buffer_is_free_and_reduced_once_it_is_complete() -> None:
    sharded = shard(looped("breadth-first", 1, 2, 2), weights=1, gradients=1)
    assert lanes(sharded) == picture("""
        0             0F0 0F1 1F0 1F1 1B0 1B1 0B0 0B1
        0 collective  0G0 1G0 0G1 1Z0 0Z0
    """)
    held = [f"{later} {earlier}" for later, earlier in sharded.after]
    assert held == [
        "0F0 0G0",
        "1G0 0F1",
        "1F0 1G0",
        "0G1 1B1",
        "0B0 0G1",
        "1Z0 1B1",
        "0B0 1Z0",
        "0Z0 0B1",
    ]


def test_with_two_buffers_the_next_stage_is_gathered_while_one_computes() -> None:
    sharded = shard(looped("breadth-first", 1, 3, 2), weights=2, gradients=3)
    spans = simulate(sharded, UnitCost(times={"G": Fraction(3)})).spans()
    start = {str(span.op): span.start for span in spans}
    assert (start["0G0"], start["1G0"], start["2G0"]) == (0, 1, 2)  # the third has waited for 0F1
    assert start["2F0"] == 3


@pytest.mark.parametrize(
    ("size", "breadth_first", "depth_first"),
    [
        ((4, 2, 16), 3, [23, 47, 33, 9]),
        ((4, 4, 16), 7, [75, 99, 85, 61]),
        ((8, 4, 64), 7, [275, 331, 387, 443, 413, 357, 301, 245]),
    ],
)
def test_section_6_gathers_with_one_buffer(
    size: tuple[int, int, int], breadth_first: int, depth_first: list[int]
) -> None:
    assert gathers("breadth-first", size, 1) == [breadth_first] * size[0]
    assert gathers("interleaved", size, 1) == depth_first


def test_section_6_gathers_with_two_buffers() -> None:
    assert gathers("breadth-first", (4, 4, 16), 2) == [6] * 4
    assert gathers("interleaved", (4, 4, 16), 2) == [44, 20, 32, 56]
    assert gathers("interleaved", (4, 4, 16), 2, LEAST_RECENT) == [20] * 4


def test_replacing_what_is_needed_last_gathers_least() -> None:
    for name in ("interleaved", "breadth-first"):
        for buffers in (1, 2, 3):
            fewest, *others = (
                gathers(name, (4, 4, 16), buffers, rule)
                for rule in (FARTHEST, LEAST_RECENT, BY_NUMBER)
            )
            assert all(a <= b for other in others for a, b in zip(fewest, other))
    assert gathers("interleaved", (4, 4, 16), 2, FARTHEST) == [18] * 4


@pytest.mark.parametrize("v", [2, 3, 4])
def test_section_3_breadth_first_gathers_twice_less_what_stays_over_the_turn(v: int) -> None:
    for buffers in range(1, v + 1):
        assert gathers("breadth-first", (4, v, 8), buffers) == [2 * v - buffers] * 4


def exposed(schedule: Schedule, *, gradients: int, **times: int) -> Fraction:
    """What a step takes longer for its collectives; times are those of one stage."""
    stages = schedule.shape.chunks
    sharded = shard(schedule, weights=2, gradients=gradients)
    cost = UnitCost(times={kind: time * stages for kind, time in times.items()})
    return simulate(sharded, cost).makespan - simulate(schedule).makespan


@pytest.mark.parametrize("time", [1, 2, 4, 8])
def test_section_6_breadth_first_exposes_one_reduction(time: int) -> None:
    assert exposed(looped("breadth-first", 4, 4, 16), gradients=4, Z=time) == time


@pytest.mark.parametrize("time", [2, 4, 8])
def test_section_6_depth_first_exposes_all_reductions_but_what_fits_between(time: int) -> None:
    assert exposed(looped("interleaved", 4, 4, 16), gradients=4, Z=time) == 4 * time - 6


def test_section_6_a_reduction_longer_than_a_backward_window_delays_the_next() -> None:
    """A window takes 8; what each of the four reductions takes more adds up."""
    breadth = looped("breadth-first", 4, 4, 16)
    assert exposed(breadth, gradients=4, Z=9) == 9 + 3 * (9 - 8)
    assert exposed(breadth, gradients=4, Z=12) == 12 + 3 * (12 - 8)


def test_section_2_every_round_gathers_and_reduces_again() -> None:
    """Less what stays over both turns: the last stage within a round, the first between two."""
    for rounds in (1, 2, 4):
        base = build(
            "breadth-first", devices=4, microbatches=16, chunks=2, options={"rounds": rounds}
        )
        sharded = shard(base, weights=1, gradients=1)
        assert counted(sharded, "G") == [rounds * 3 - (rounds - 1)] * 4
        assert counted(sharded, "Z") == [rounds * 2] * 4


def test_section_6_small_batches_gain_most() -> None:
    """Collectives of a device's weights take 4, which is a third more than its microbatch."""

    def step(name: str, v: int, m: int) -> Fraction:
        sharded = shard(looped(name, 4, v, m), weights=min(v, 2), gradients=v)
        return simulate(sharded, UnitCost(times=dict.fromkeys("GZ", Fraction(4)))).makespan

    over_1f1b = []
    for m in (4, 8, 16, 64):
        breadth, depth, row = (
            step(name, v, m) for name, v in (("breadth-first", 4), ("interleaved", 4), ("1f1b", 1))
        )
        assert breadth < row
        assert breadth < depth or (m == 4 and breadth == depth)
        over_1f1b.append(row / breadth)
    assert over_1f1b == sorted(over_1f1b, reverse=True)


def test_breadth_first_hides_gathers_that_depth_first_waits_for() -> None:
    """One gather fills the pipeline; the others hide as long as they fit a stage's forwards."""
    assert exposed(looped("breadth-first", 4, 4, 16), gradients=4, G=4) == 4
    assert exposed(looped("interleaved", 4, 4, 16), gradients=4, G=1) == Fraction(95, 2)


def test_a_shared_gradient_buffer_is_reduced_whenever_another_stage_needs_it() -> None:
    depth_first = looped("interleaved", 4, 2, 16)
    alone = counted(shard(depth_first, weights=0, gradients=2), "Z")
    shared = counted(shard(depth_first, weights=0, gradients=1), "Z")
    assert alone == [2] * 4
    assert shared == [8] * 4
    breadth = looped("breadth-first", 4, 2, 16)
    assert counted(shard(breadth, weights=0, gradients=1), "Z") == [2] * 4


def test_weights_that_are_not_sharded_are_not_gathered() -> None:
    assert counted(shard(looped("interleaved", 2, 2, 4), weights=0, gradients=2), "G") == [0, 0]


def test_a_weight_gradient_completes_the_gradient_and_needs_no_weights() -> None:
    split = split_backward(build("1f1b", devices=1, microbatches=1))
    assert lanes(shard(split, weights=1, gradients=1)) == picture("""
        0             F0 I0 W0
        0 collective  G0 Z0
    """)


def test_stages_without_weights_have_nothing_to_gather() -> None:
    shape = Shape(1, 2, (1,), weightless=frozenset({1}))
    sharded = shard(draw("0 0F0 1F0 1B0 0B0", shape), weights=1, gradients=1)
    assert [str(op) for op in sharded.lane(0, "collective")] == ["0G0", "0Z0"]


def test_stages_of_several_devices_are_not_sharded() -> None:
    with pytest.raises(ShapeError, match="sppo-msp has gangs, as 0F0"):
        shard(build("sppo-msp", devices=2, microbatches=1, slices=2), weights=1, gradients=1)


def of_two_stages(schedule: Schedule) -> bool:
    """Whether some pair computes with the weights of two stages at once."""
    return any(a.stage != b.stage and "W" not in a.kind + b.kind for a, b in schedule.pairs)


@pytest.mark.parametrize("rule", [BY_NUMBER, LEAST_RECENT, FARTHEST])
def test_a_pair_of_two_stages_needs_a_buffer_for_each(rule: BufferRule) -> None:
    pairs = build("dualpipev", devices=2, microbatches=6)
    assert of_two_stages(pairs)
    with pytest.raises(ShapeError, match=r"a pair needs stages \d and \d at once"):
        shard(pairs, weights=1, gradients=1, rule=rule)
    sharded = shard(pairs, weights=2, gradients=1, rule=rule)
    assert check(sharded).findings == ()
    assert simulate(sharded).makespan == simulate(pairs).makespan


@given(built().filter(lambda schedule: not schedule.gangs))
@settings(deadline=None, max_examples=60)
def test_any_schedule_can_be_sharded_and_takes_no_longer_where_collectives_are_free(
    base: Schedule,
) -> None:
    sharded = shard(base, weights=2 if of_two_stages(base) else 1, gradients=1)
    assert check(sharded).findings == ()
    assert simulate(sharded).makespan == simulate(base).makespan
    for device in range(base.shape.devices):
        assert sharded.lane(device) == base.lane(device)


@pytest.mark.parametrize(("weights", "gradients"), [(-1, 1), (1, 0)])
def test_numbers_of_buffers_that_make_no_sense_are_refused(weights: int, gradients: int) -> None:
    with pytest.raises(ShapeError, match="buffers"):
        shard(looped("interleaved", 2, 2, 2), weights=weights, gradients=gradients)


def test_a_schedule_is_sharded_only_once() -> None:
    once = shard(looped("interleaved", 2, 2, 2), weights=1, gradients=1)
    with pytest.raises(ShapeError, match="already"):
        shard(once, weights=1, gradients=1)


@pytest.mark.parametrize("name", ["breadth-first", "interleaved", "interleaved-zb"])
def test_gradients_have_as_few_buffers_as_let_every_stage_be_reduced_once(name: str) -> None:
    schedule = looped(name, 4, 3, 8)
    fewest = fewest_for_one_reduction(schedule)
    counts = [
        counted(shard(schedule, weights=2, gradients=count, rule=LEAST_RECENT), "Z")
        for count in range(2, schedule.shape.stages + 1)
    ]
    once = [3] * 4
    assert fewest == 2 + next(at for at, each in enumerate(counts) if each == once)
