"""When activations travel to the host and back: a grid of slots on which neighbours take turns.

Two devices share a switch to the host. Copies run steadily where the two never copy in the same
direction at once, so each has a grid of slots, out and in by turns, and the grid of the second is
shifted by one slot. Walking forward, every chosen forward takes the first free slot out; walking
back, every chosen backward takes the last free slot in. Source: arXiv:2503.01328, section 3.4 and
its public code.
"""

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction

from penstock.core.ops import Op
from penstock.core.shape import Shape
from penstock.schedules.generators.group_block import block_slots
from penstock.transform.offload import Window

LaneWindows = Mapping[Op, Window]
"""Ops of one compute lane, in order."""
ALONE = 7
"""Time of a copy while nothing runs in the other direction, in tenths of a slot."""
SHORT_TRIPS = 3
"""Round trips within which an activation hardly adds to the peak, and stays."""
SLOTS = 3
"""Slots of a microbatch on a stage: F, I and W."""


class Infeasible(Exception):  # noqa: N818 - an outcome that the caller expects
    """An activation would have to be back before it is gone."""


def uniform_windows(shape: Shape, of_device: int, ratio: Fraction) -> dict[Op, Window]:
    """Slots of all ops, where microbatches go one by one, and of the copies of the first stages."""
    ticks = 20 * ratio.denominator  # of one slot: a tenth of a copy is a whole number of them
    lanes = postpone_warmup(
        [
            {Op(*op): Window(at * ticks, (at + 1) * ticks) for at, op in lane}
            for lane in block_slots(shape, group=1)
        ],
        shape.stages - 1,
    )
    copy = int(ratio * SLOTS * ticks / 2)
    copies = plan(lanes, range(of_device * shape.devices), copy)
    return {op: window for lane in lanes for op, window in lane.items()} | copies


def postpone_warmup(lanes: Sequence[LaneWindows], last_stage: int) -> list[dict[Op, Window]]:
    """The windows with forwards of the warm-up as late as the next device and the first input
    gradient allow, with the time of one input gradient to spare."""
    late = [dict(lane) for lane in lanes]
    stages = {op.stage: lane for lane in late for op in lane}
    for lane in reversed(late):
        ops = list(lane)
        first = next(number for number, op in enumerate(ops) if op.kind == "I")
        start, end = lane[ops[first]]
        limit = start - (end - start)
        home_last = max(op.stage for op in ops)
        for op in reversed(ops[:first]):
            if op.stage == home_last and op.mb == 0:
                break
            start, end = lane[op]
            if op.stage < last_stage:
                consumer = op._replace(stage=op.stage + 1)
                limit = min(limit, stages[consumer.stage][consumer].start)
            moved = max(start, limit - (end - start))
            lane[op] = Window(moved, moved + end - start)
            limit = moved
    return late


def plan(lanes: Sequence[LaneWindows], stages: Collection[int], slot: int) -> dict[Op, Window]:
    """Windows for copies of all activations of some stages that live long enough.

    Times are in ticks, of which a slot has a multiple of ten.
    """
    found: dict[Op, Window] = {}
    for first in range(0, len(lanes), 2):
        pair = lanes[first : first + 2]
        origin = next(iter(pair[0].values())).end
        copies = [
            _copies(lane, stages, slot, origin + number * slot) for number, lane in enumerate(pair)
        ]
        found |= _compacted(pair, copies, slot)
    return found


def _copies(lane: LaneWindows, stages: Collection[int], slot: int, origin: int) -> dict[Op, Window]:
    """The copies of one device on its grid, whose slots out begin at `origin`, 2 slots apart."""
    chosen = [op for op in lane if op.kind == "I" and op.stage in stages]
    kept = {op[1:] for op in chosen if _long_lived(lane, op, slot)}
    found: dict[Op, Window] = {}
    free = origin
    for op in lane:
        if op.kind == "F" and op[1:] in kept:
            free = _grid_at_or_after(lane[op].end, max(free, origin), slot)
            found[op._replace(kind="O")] = Window(free, free + slot)
            free += 2 * slot
    free = _grid_at_or_after(list(lane.values())[-1].end, free, slot)
    for op in reversed(list(lane)):
        if op.kind == "I" and op[1:] in kept:
            start, end = lane[op]
            while free > start - (end - start):
                free -= 2 * slot
            if free - slot <= found[op._replace(kind="O")].end:
                raise Infeasible
            found[op._replace(kind="L")] = Window(free - slot, free)
            free -= 2 * slot
    return found


def _long_lived(lane: LaneWindows, backward: Op, slot: int) -> bool:
    start, end = lane[backward]
    alive = start - (end - start) - lane[backward._replace(kind="F")].end
    return bool(alive > SHORT_TRIPS * 2 * slot)


def _grid_at_or_after(time: int, free: int, slot: int) -> int:
    """The first slot out of the grid of `free` that begins at `time` or later."""
    return free + max(0, -((free - time) // (2 * slot))) * 2 * slot


def _compacted(
    pair: Sequence[LaneWindows], copies: Sequence[Mapping[Op, Window]], slot: int
) -> dict[Op, Window]:
    """The copies of two devices; those before the first load run alone, faster, one after the
    other."""
    found = {op: window for own in copies for op, window in own.items()}
    ended = {op: window.end for lane in pair for op, window in lane.items()}
    first_load = min((w.start for op, w in found.items() if op.kind == "L"), default=None)
    clock = None
    for op in sorted(found, key=found.__getitem__):
        start = found[op].start
        if first_load is None or start >= first_load or op.kind == "L":
            break
        clock = max(clock if clock is not None else start, ended[op._replace(kind="F")])
        found[op] = Window(clock, clock + ALONE * slot // 10)
        clock += ALONE * slot // 10
    return found
