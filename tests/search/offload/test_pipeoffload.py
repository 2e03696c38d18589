"""PipeOffload's planning pass and its results (arXiv:2503.01328, sections 3, 4, 6 and 7)."""

from collections.abc import Mapping
from fractions import Fraction

import pytest

from penstock.check import check
from penstock.core.ops import Op, parse_op
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.cost.model import UnitCost
from penstock.errors import ShapeError
from penstock.schedules import build
from penstock.search.offload.offload_plan import ALONE, plan, postpone_warmup, uniform_windows
from penstock.search.offload.pipeoffload import copy_ratio
from penstock.sim import simulate
from penstock.transform.offload import Window, add_copies
from schedules.picture import built, chunk_units, lane, picture, priced
from search.proof import overlapping, proven_peaks

TICKS = 20


def counted(schedule: Schedule, windows: Mapping[Op, Window]) -> list[int]:
    """Peaks as the paper's code counts them: a load from before the op in whose slot it begins, an
    offload until before the first op whose slot begins after it."""
    peaks = []
    for device in range(schedule.shape.devices):
        copies = schedule.lane(device, "copy")
        level = peak = 0
        for op in schedule.lane(device):
            start, end = windows[op]
            for copy in list(copies):
                out = copy.kind == "O" and windows[copy].end <= start
                back = copy.kind == "L" and windows[copy].start < end
                if out or back:
                    copies.remove(copy)
                    level += 1 if back else -1
                    peak = max(peak, level)
            level += {"F": 1, "I": 0, "W": -1}[op.kind]
            peak = max(peak, level)
        peaks.append(peak)
    return peaks


def offloaded(
    p: int, v: int, stages: int, ratio: Fraction | int = 1, m: int = 16
) -> tuple[Schedule, dict[Op, Window]]:
    """Microbatches one by one with the first stages of each device offloaded, and the slots."""
    shape = Shape.even(p, m, v)
    windows = uniform_windows(shape, stages, Fraction(ratio))
    lanes = [
        sorted((op for op in windows if op.kind in "FIW" and op.stage % p == r), key=windows.get)
        for r in range(p)
    ]
    return add_copies(Schedule.of("po", shape, lanes), windows), windows


def test_section_6_the_worked_order() -> None:
    schedule = built("po-h", p=4, m=8, v=2)
    assert [lane(schedule, 0)] == picture("""
        0 F0 F1 f0 F2 f1 F3 i0 w0 f2 F4 i1 w1 f3 I0 W0 F5 i2 w2 f4 I1 W1 F6 i3 w3 f5 I2 W2 F7
          i4 w4 f6 I3 W3 i5 w5 f7 I4 W4 i6 w6 I5 W5 i7 w7 I6 W6 I7 W7
    """)
    bare = Schedule.of("bare", schedule.shape, [schedule.lane(device) for device in range(4)])
    assert chunk_units(priced(bare).peak, 2) == [7, 6, 5, 4]
    assert chunk_units(tuple(proven_peaks(schedule)), 2) == [4, 4, 3, 3]


CHECKED = {
    (4, 2, 1, Fraction(1)): (7, 4, 4),
    (8, 2, 1, Fraction(1)): (13, 6, 6),
    (8, 4, 2, Fraction(1)): (23, 9, 9),
    (8, 8, 4, Fraction(1)): (39, 13, 13),
    (8, 8, 8, Fraction(1)): (39, 6, 5),
    (8, 8, 8, Fraction(1, 2)): (39, 3, 3),
    (8, 4, 4, Fraction(7, 10)): (23, 4, 3),
}
"""Devices, stages per device, stages offloaded, ratio -> peak of the first device in activations of
a stage: before, after as the paper counts it, and after as it is proven here, where a copy lane is
known not to run two copies at once."""


@pytest.mark.long
@pytest.mark.parametrize(("p", "v", "stages", "ratio"), CHECKED)
def test_section_7_checked_results_of_the_planning_pass(
    p: int, v: int, stages: int, ratio: Fraction
) -> None:
    schedule, windows = offloaded(p, v, stages, ratio)
    bare = Schedule.of("bare", schedule.shape, [schedule.lane(device) for device in range(p)])
    assert check(schedule).findings == ()
    before, after, proven = CHECKED[p, v, stages, ratio]
    assert max(priced(bare).peak) * v == before
    assert max(counted(schedule, windows)) == after
    assert max(proven_peaks(schedule)) * v == proven


@pytest.mark.parametrize(("p", "v"), [(4, 2), (8, 2), (16, 2), (8, 4), (16, 4), (8, 8)])
def test_section_3_half_offload_holds_little_more_than_the_share_of_the_table(
    p: int, v: int
) -> None:
    """About (v + 2)/(8v) of the model's activations, of which a device has pv: up to 3 more."""
    schedule, windows = offloaded(p, v, v // 2)
    assert 0 <= max(counted(schedule, windows)) - Fraction(p * (v + 2), 8) <= 3


@pytest.mark.parametrize("name", ["po-h", "po-f"])
@pytest.mark.parametrize(("p", "v", "ratio"), [(2, 2, 1), (4, 2, 1), (8, 4, Fraction(7, 10))])
def test_section_3_the_bubble_is_smaller_than_that_of_1f1b(
    name: str, p: int, v: int, ratio: Fraction | int
) -> None:
    timeline = priced(built(name, p=p, m=2 * p, v=v, ratio=ratio))
    assert timeline.makespan - timeline.work[0] < 3 * (p - 1)


def test_section_2_the_ratio_of_copies_to_work() -> None:
    """At a width and a length of 4096 the paper's A100 takes 1.70 times as long to copy; its H100,
    twice as fast with a little faster copies, more."""
    paper = [(220 * 10**12, 15 * 10**9), (440 * 10**12, 21 * 10**9)]
    found = [copy_ratio(4096, 4096, flops=flops, host=host) for flops, host in paper]
    assert found == [Fraction(10, 3 * 7 * 4096) * Fraction(*rates) for rates in paper]
    assert [int(100 * ratio) for ratio in found] == [170, 243]


def test_section_7_all_stages_at_ratio_1_cannot_be_copied_in_time() -> None:
    with pytest.raises(ShapeError, match="is offloaded before it must be loaded again"):
        built("po-f", p=8, m=16, v=4)
    assert built("po-f", p=8, m=16, v=4, ratio="7/10")


def test_section_7_uniform_repeating_is_what_saves_more_than_its_share() -> None:
    """Section 4: the same two of four stages of GIS-H give 20 -> 12 only."""
    p, v = 8, 4
    schedule = built("gis-h", p=p, m=16, v=v)
    spans = {span.op: span for span in priced(schedule).spans()}
    times = {
        op: Window(int(span.start * v * TICKS), int(span.end * v * TICKS))
        for op, span in spans.items()
    }
    lanes = postpone_warmup(
        [{op: times[op] for op in schedule.lane(r)} for r in range(p)], p * v - 1
    )
    windows = {op: window for lane in lanes for op, window in lane.items()}
    windows |= plan(lanes, range(2 * p), 3 * TICKS // 2)
    after = counted(add_copies(schedule, windows), windows)
    assert (max(priced(schedule).peak) * v, max(after)) == (20, 12)


@pytest.mark.long
@pytest.mark.parametrize("v", [4, 8, 16])
def test_section_7_full_offload_keeps_a_constant_number_however_many_stages(v: int) -> None:
    ratio = Fraction(7, 10)
    peaks = [proven_peaks(offloaded(p, v, v, ratio)[0]) for p in (4, 8)]
    assert {max(peak) * v for peak in peaks} <= {3, 4}


@pytest.mark.long
def test_section_7_half_offload_needs_less_than_a_quarter_of_interleaved_1f1b() -> None:
    for v in (4, 8, 16):
        half = max(proven_peaks(built("po-h", p=8, m=16, v=v)))
        assert half < max(priced(built("interleaved", p=8, m=16, v=v)).peak) / 4


def hidden(name: str, p: int, v: int, ratio: Fraction | int, m: int) -> Fraction:
    """How much longer a step takes with copies than with copies that cost nothing."""
    schedule = built(name, p=p, m=m, v=v, ratio=ratio)
    copy = Fraction(3, 2) * Fraction(ratio)
    quick = {}
    for device in range(p):
        copies = schedule.lane(device, "copy")
        first_load = next(number for number, op in enumerate(copies) if op.kind == "L")
        # Before the first load nothing runs in the other direction.
        quick |= {op: copy / v * Fraction(ALONE, 10) for op in copies[:first_load]}
    cost = UnitCost(times={"O": copy, "L": copy}, op_times=quick)
    return simulate(schedule, cost).makespan / simulate(schedule).makespan - 1


@pytest.mark.long
def test_section_7_copies_hide_behind_the_work() -> None:
    """Section 7: within a few percent for ratios up to 1."""
    assert hidden("po-h", p=8, v=2, ratio=1, m=16) < Fraction(1, 1000)
    assert hidden("po-h", p=8, v=4, ratio=1, m=16) < Fraction(2, 100)
    assert hidden("po-f", p=8, v=8, ratio=1, m=32) < Fraction(4, 100)
    assert hidden("po-f", p=8, v=4, ratio=Fraction(7, 10), m=16) < Fraction(1, 100)


@pytest.mark.parametrize("name", ["po-h", "po-f"])
@pytest.mark.parametrize("p", [4, 5])
def test_a_pair_never_copies_in_one_direction_at_once(name: str, p: int) -> None:
    copy = Fraction(3, 2)
    schedule = build(name, devices=p, microbatches=8, chunks=2)
    timeline = simulate(schedule, UnitCost(times={"O": copy, "L": copy}))
    for first in range(0, p, 2):
        for kind in "OL":
            assert not overlapping(timeline, range(first, first + 2), kind)
    assert any(overlapping(timeline, range(first, first + 2)) for first in range(0, p, 2))


def test_forwards_of_the_warm_up_wait_as_long_as_they_may() -> None:
    starts = [{"0F0": 0, "0F1": 1, "0I0": 6}, {"1F0": 1, "1I0": 2, "1F1": 5}]
    lanes = [{parse_op(op): Window(at, at + 1) for op, at in lane.items()} for lane in starts]
    late = postpone_warmup(lanes, last_stage=1)
    assert late[0][parse_op("0F1")] == Window(4, 5)  # 1F1 follows, and 0I0 after one more op
    assert late[0][parse_op("0F0")] == Window(0, 1)
    assert late[1] == lanes[1]
