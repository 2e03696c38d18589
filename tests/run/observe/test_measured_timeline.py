"""A real step is a timeline like a simulated one, on one clock whatever machines' clocks say."""

import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from penstock.arch.cell_shape import CellShape
from penstock.draw import trace
from penstock.draw.page import page
from penstock.draw.svg import picture
from penstock.run.launch.worker_pool import Crew
from penstock.run.observe.inspected_step import StepLook
from penstock.run.observe.measured_timeline import DevicePart, gather, of_cells, timeline_of
from penstock.run.observe.memory_meter import Sample
from penstock.schedules import build
from penstock.sim.timeline import Timeline
from run.jobs import looked, looked_in_cells, looked_with_wrong_clocks, offsets_found
from run.plans import plan_of

pytestmark = pytest.mark.torch

HALF = plan_of(build("seq1f1b", devices=2, microbatches=2, slices=2))
PLAN = plan_of(build("seq1f1b", devices=4, microbatches=2, slices=2))
CELLS = replace(HALF, layout=replace(HALF.layout, cell=CellShape(tensor=2)))
SECONDS = 10**9


@pytest.fixture(scope="module")
def look(ranks: Crew) -> StepLook:
    first, *others = ranks.run(looked, PLAN, 1)
    assert others == [None] * 3
    assert first is not None
    return first


def _in_order(timeline: Timeline) -> bool:
    """Whether ops of a lane follow each other, and no op starts before what it reads is written."""
    table, moved = timeline.schedule.table, timeline.transfers
    lanes = zip(table.lane_start[:-1].tolist(), table.lane_start[1:].tolist())
    follow = all(
        timeline.end[before] <= timeline.start[after]
        for first, end in lanes
        for before, after in pairwise(range(first, end))
    )
    causal = bool((timeline.end[moved.writer] <= timeline.start[moved.reader]).all())
    return follow and causal


def test_ops_of_a_lane_do_not_overlap_and_transfers_are_causal(look: StepLook) -> None:
    timeline = look.timeline
    assert _in_order(timeline)
    assert (timeline.start <= timeline.end).all()
    assert timeline.start.min() == 0
    assert len(timeline.spans()) == len(PLAN.schedule.table)
    assert (timeline.transfers.start <= timeline.transfers.end).all()
    assert 0 < timeline.makespan < 60
    assert 0 <= timeline.bubble_makespan < 1


def test_a_device_is_as_slow_and_as_full_as_the_slowest_and_fullest_of_its_ranks() -> None:
    ranks = [
        DevicePart([0, 2], [5, 20], [15, 30], [9, 8], {0: Sample(0, 7, 1)}, "here"),
        DevicePart([0, 2], [6, 18], [14, 31], [8, 9], {0: Sample(0, 6, 2)}, "here"),
    ]
    other = DevicePart([1], [16], [17], [1], {}, "here")
    assert of_cells([*ranks, other]) == [
        DevicePart([0, 2], [6, 20], [15, 31], [9, 9], {0: Sample(0, 7, 1)}, "here"),
        other,
    ]


def test_a_step_of_cells_has_the_ops_of_the_schedule_in_order(ranks: Crew) -> None:
    first, *others = ranks.run(looked_in_cells, CELLS)
    assert others == [None] * 3
    assert first is not None
    assert _in_order(first.timeline)
    assert min(first.seconds) > 0
    assert min(first.timeline.peak) > 0


def test_every_op_took_some_time_of_its_thread(look: StepLook) -> None:
    assert min(look.seconds) > 0
    assert sum(look.seconds) <= 4 * float(look.timeline.makespan)


def test_memory_rises_and_returns_to_nothing(look: StepLook) -> None:
    timeline = look.timeline
    assert len(timeline.curves) == 4
    for device, curve in enumerate(timeline.curves):
        assert int(curve.level.max()) == int(timeline.peak[device]) > 0
        assert curve.level[-1] < curve.level.max()
        assert (np.diff(curve.time) >= 0).all()


def test_every_picture_can_be_drawn_of_it(look: StepLook) -> None:
    ET.fromstring(picture.render([look.timeline]))
    assert "seq1f1b" in page.render([look.timeline])
    assert '"traceEvents"' in trace.render([look.timeline])


def test_wrong_clocks_are_found_by_messages_to_and_fro(ranks: Crew) -> None:
    skews = [0, 10 * SECONDS, -10 * SECONDS, 123 * 10**6]
    for found in ranks.run(offsets_found, skews):
        assert found[0] == 0
        for offset, skew in zip(found, skews):
            assert abs(offset - skew) < 0.1 * SECONDS


def test_a_step_over_machines_with_wrong_clocks_is_in_order(ranks: Crew) -> None:
    skews = [3 * SECONDS, -10 * SECONDS, 10 * SECONDS, 0]
    first, *_ = ranks.run(looked_with_wrong_clocks, PLAN, skews)
    assert first is not None
    timeline = first.timeline
    moved = timeline.transfers
    early = timeline.end[moved.writer] - timeline.start[moved.reader]
    assert early.max() < 0.1 * SECONDS  # as well as messages can tell on a busy machine
    assert float(timeline.makespan) < 10


def _part(rows: list[int], start: list[int], **samples: Sample) -> DevicePart:
    memory = {int(row[1:]): sample for row, sample in samples.items()}
    return DevicePart(rows, start, [mark + 5 for mark in start], [], memory, "here")


def test_parts_are_laid_beside_each_other_from_zero() -> None:
    schedule = build("gpipe", devices=2, microbatches=1)
    first = _part([0, 1], [1000, 1030], r0=Sample(0, 40, 30), r1=Sample(30, 70, 0))
    second = _part([2, 3], [1010, 1020], r2=Sample(0, 8, 8))
    timeline = timeline_of(schedule, [first, second])
    assert timeline.start.tolist() == [0, 30, 10, 20]
    assert timeline.end.tolist() == [5, 35, 15, 25]
    assert [int(peak) for peak in timeline.peak] == [70, 8]
    assert timeline.curves[0].level.tolist() == [40, 30, 70, 0]
    assert timeline.curves[1].time.tolist() == [10, 15]
    assert timeline.transfers.start.tolist() == [5, 25]
    assert timeline.transfers.end.tolist() == [10, 30]


def test_a_device_by_itself_gathers_its_own_part() -> None:
    part = _part([0], [7])
    assert gather(part, None) == [part]
