from dataclasses import replace
from fractions import Fraction
from itertools import groupby

import pytest

from loops import each_case
from penstock.core.schedule import Schedule
from penstock.core.table import Table
from penstock.errors import ShapeError
from schedules.picture import built, chunk_units, lanes, picture, priced


def test_section_5_every_device_runs_the_whole_batch_stage_by_stage() -> None:
    lane = """F0 F1 F2 F3 F4 F5 F6 F7 f0 f1 f2 f3 f4 f5 f6 f7
              b0 b1 b2 b3 b4 b5 b6 b7 B0 B1 B2 B3 B4 B5 B6 B7"""
    assert lanes(built("breadth-first", p=4, v=2, m=8)) == picture(
        "".join(f"{device} {lane}\n" for device in range(4))
    )


def test_section_2_rounds_take_every_other_microbatch_and_come_back_before_the_next() -> None:
    assert (
        lanes(built("breadth-first", p=2, v=2, m=4, rounds=2))[0]
        == picture("""
        0 F0 F2 f0 f2 b0 b2 B0 B2 F1 F3 f1 f3 b1 b3 B1 B3
    """)[0]
    )


def test_section_2_one_device_with_rounds_of_one_is_plain_accumulation() -> None:
    assert lanes(built("breadth-first", p=1, v=1, m=3, rounds=3)) == picture("0 F0 B0 F1 B1 F2 B2")


@each_case(
    ("p", "v", "m", "makespan"),
    [
        (4, 2, 4, "16.5"),
        (4, 2, 8, "28.5"),
        (4, 2, 16, "52.5"),
        (4, 4, 16, "50.25"),
        (8, 2, 16, "58.5"),
        (8, 4, 32, "101.25"),
    ],
)
def test_section_6_it_is_as_fast_as_depth_first_but_holds_the_whole_batch(
    p: int, v: int, m: int, makespan: str
) -> None:
    timeline = priced(built("breadth-first", p=p, v=v, m=m))
    assert timeline.makespan == Fraction(makespan)
    assert timeline.makespan == priced(built("interleaved", p=p, v=v, m=m)).makespan
    assert chunk_units(timeline.peak, v) == [m * v] * p


@each_case(("p", "v", "m"), [(4, 2, 4), (4, 2, 16), (4, 4, 16), (8, 2, 16)])
def test_section_6_descending_microbatches_in_a_backward_window_change_nothing(
    p: int, v: int, m: int
) -> None:
    ascending = built("breadth-first", p=p, v=v, m=m)
    rows = [
        (device, stream, [op._replace(mb=m - 1 - op.mb) if op.kind == "B" else op for op in ops])
        for device, stream, ops in ascending.table.lanes()
    ]
    descending = priced(replace(ascending, table=Table.of(rows), derived={}))
    assert descending.makespan == priced(ascending).makespan
    assert descending.peak == priced(ascending).peak


def test_section_2_fewer_microbatches_than_devices_are_refused() -> None:
    with pytest.raises(ShapeError, match="a round has at least p microbatches"):
        built("breadth-first", p=4, v=2, m=3)
    with pytest.raises(ShapeError, match="a round has at least p microbatches"):
        built("breadth-first", p=4, v=2, m=12, rounds=4)
    assert priced(built("breadth-first", p=4, v=2, m=5)).makespan == Fraction("19.5")


def gradient_times(schedule: Schedule) -> list[Fraction]:
    """When the gradients of device 0's stages are complete, in the order of their stages."""
    done: dict[int, Fraction] = {}
    for span in priced(schedule).spans():
        if span.device == 0 and span.op.kind == "B":
            done[span.op.stage] = max(span.end, done.get(span.op.stage, Fraction(0)))
    return [done[stage] for stage in sorted(done)]


def test_section_6_gradients_are_complete_one_stage_after_the_other() -> None:
    spread = [Fraction(time, 4) for time in (201, 169, 137, 105)]
    late = [Fraction(time, 4) for time in (201, 193, 185, 177)]
    assert gradient_times(built("breadth-first", p=4, v=4, m=16)) == spread
    assert gradient_times(built("interleaved", p=4, v=4, m=16)) == late


def gathers(schedule: Schedule, buffers: int) -> list[int]:
    """Weight gathers per device, where stage c of a device uses buffer c mod `buffers`."""
    counts = []
    for device in range(schedule.shape.devices):
        places = [op.stage // schedule.shape.devices for op in schedule.lane(device)]
        by_buffer = [[c for c in places if c % buffers == buffer] for buffer in range(buffers)]
        counts.append(sum(len(list(groupby(uses))) for uses in by_buffer))
    return counts


def test_section_6_weights_are_gathered_twice_where_depth_first_returns_all_the_time() -> None:
    assert gathers(built("breadth-first", p=4, v=2, m=16), 1) == [3] * 4
    assert gathers(built("interleaved", p=4, v=2, m=16), 1) == [23, 47, 33, 9]
    assert gathers(built("breadth-first", p=4, v=4, m=16), 1) == [7] * 4
    assert gathers(built("interleaved", p=4, v=4, m=16), 1) == [75, 99, 85, 61]
    assert gathers(built("breadth-first", p=8, v=4, m=64), 1) == [7] * 8
    depth_first = gathers(built("interleaved", p=8, v=4, m=64), 1)
    assert (min(depth_first), max(depth_first)) == (245, 443)


def test_section_6_a_second_weight_buffer_helps_depth_first_only_in_part() -> None:
    assert gathers(built("breadth-first", p=4, v=4, m=16), 2) == [6] * 4
    assert gathers(built("interleaved", p=4, v=4, m=16), 2) == [44, 20, 32, 56]


def test_section_2_rounds_divide_the_memory_and_multiply_the_bubble() -> None:
    whole, halves = (
        priced(built("breadth-first", p=4, v=2, m=16, rounds=rounds)) for rounds in (1, 2)
    )
    assert halves.peak == tuple(peak / 2 for peak in whole.peak)
    assert halves.makespan - 48 == 2 * (whole.makespan - 48)
