"""PyTorch builds some of our schedules too: the orders must be the same, op for op."""

from typing import Any

import pytest

from loops import each_case
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from schedules.picture import built

pytestmark = pytest.mark.torch

KINDS = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W"}


class Stage:
    """As much of a pipeline stage as a schedule asks for while it orders its actions."""

    has_backward = True
    group = device = submod = None

    def __init__(self, devices: int, stages: int) -> None:
        self.group_size, self.group_rank = devices, 0
        self.num_stages, self.stage_index = stages, 0
        self.is_first = self.is_last = False
        self.stage_index_to_group_rank = {stage: stage % devices for stage in range(stages)}


def torch_lanes(kind: str, p: int, m: int, v: int) -> list[list[Any]]:
    """The lanes of PyTorch's schedule of that class name; an overlapped pair is a tuple."""
    pipelining = pytest.importorskip("torch.distributed.pipelining.schedules")
    stages = [Stage(p, p * v) for _ in range(v)]
    order = getattr(pipelining, kind)(stages, m, loss_fn=lambda *_: 0).pipeline_order
    return [[_op(action) for action in order[r] if action is not None] for r in range(p)]


def _op(action: Any) -> Any:
    if action.sub_actions:
        return tuple(_op(part) for part in action.sub_actions)
    return Op(KINDS[action.computation_type.name], action.stage_index, action.microbatch_index)


def our_lanes(schedule: Schedule) -> list[list[Any]]:
    pairs = {pair[0]: pair for pair in schedule.pairs}
    second = {pair[1] for pair in schedule.pairs}
    return [
        [pairs.get(op, op) for op in schedule.lane(device) if op not in second]
        for device in range(schedule.shape.devices)
    ]


SIZES = [(2, 3), (2, 4), (2, 7), (4, 7), (4, 8), (4, 13), (8, 15), (8, 16), (8, 20)]


@pytest.mark.long
@each_case(("p", "m"), [*SIZES, (4, 2), (8, 3)])
def test_zb_v(p: int, m: int) -> None:
    assert our_lanes(built("zb-v", p, m)) == torch_lanes("ScheduleZBVZeroBubble", p, m, 2)


@each_case(("p", "m"), [(p, m) for p, m in SIZES if m >= 2 * p])
def test_dualpipev(p: int, m: int) -> None:
    assert our_lanes(built("dualpipev", p, m)) == torch_lanes("ScheduleDualPipeV", p, m, 2)


@each_case("v", [1, 2, 3])
@each_case(("p", "m"), [(2, 4), (4, 8), (4, 10), (4, 3), (8, 16)])
def test_interleaved_zb(p: int, m: int, v: int) -> None:
    theirs = torch_lanes("ScheduleInterleavedZeroBubble", p, m, v)
    assert our_lanes(built("interleaved-zb", p, m, v)) == theirs


@each_case("v", [2, 3])
@each_case(("p", "m"), [(2, 4), (4, 8), (4, 10), (8, 16), (8, 22)])
def test_interleaved(p: int, m: int, v: int) -> None:
    group = m // (m // p)
    theirs = torch_lanes("ScheduleInterleaved1F1B", p, m, v)
    assert our_lanes(built("interleaved", p, m, v, group=group)) == theirs


@pytest.mark.parametrize(("p", "m", "v"), [(2, 4, 2), (4, 8, 3)])
def test_breadth_first_but_for_the_order_inside_a_backward_window(p: int, m: int, v: int) -> None:
    theirs = [
        [op._replace(mb=m - 1 - op.mb) if op.kind == "B" else op for op in lane]
        for lane in torch_lanes("ScheduleLoopedBFS", p, m, v)
    ]
    assert our_lanes(built("breadth-first", p, m, v)) == theirs
