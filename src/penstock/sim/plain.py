"""The common case, in one fused loop: each op waits for at most one thing from another stage.

Where every stage has one home, what an op reads of its own stage is satisfied by lane order, which
is proven before. What remains is the input from the stage before or the gradient from the stage
behind: one look-up per op. Times and memory levels follow from shares, so no column besides the
table's own is read, and no graph is built.
"""

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.kernel import kernel
from penstock.core.meaning import Rule, rules
from penstock.core.ops import SHARD_KINDS, STAGE_KINDS
from penstock.core.schedule import Schedule
from penstock.core.table import LETTERS
from penstock.cost.model import UnitCost
from penstock.cost.shares import Shares, refuse_overflow, shares_of, whole
from penstock.sim.memory import SHARED_SIZES, kind_changes

Ticks = NDArray[np.int64]


class Played(NamedTuple):
    """End of each row, peak level of each device, and what a tick and a level are worth."""

    end: NDArray[Any]
    peak: Ticks
    tick: Fraction
    grain: Fraction


def is_plain(schedule: Schedule, cost: object) -> bool:
    """Whether the one-look-up loop applies to this schedule and cost model."""
    shape, kinds = schedule.shape, schedule.table.kinds
    annotated = schedule.pairs or schedule.loans or schedule.gangs or schedule.after
    one_home = shape.copies == 1 and not shape.weightless and not shape.skips
    even = not shape.kind_share
    single = set(schedule.table.lane_stream) == {"compute"}
    crossing = all(len(_crossing(schedule, kind, side)) <= 1 for kind in kinds for side in (0, 1))
    return (
        isinstance(cost, UnitCost)
        and cost.separable
        and not (cost.links or cost.per_byte or cost.communication)
        and not set(cost.sized) & set(SHARED_SIZES)
        and one_home
        and even
        and single
        and not annotated
        and not kinds & (SHARD_KINDS | STAGE_KINDS)
        and crossing
    )


def _crossing(schedule: Schedule, kind: str, side: int) -> list[Rule]:
    """References of a kind to buffers that are written for another stage than the writer's."""
    table = rules(schedule.shape)
    crossing = {rule.buffer for _, written in table.values() for rule in written if rule.offset}
    local = {
        (rule.buffer, rule.first)
        for _, written in table.values()
        for rule in written
        if not rule.offset
    }
    return [
        rule
        for rule in table[kind][side]
        if rule.buffer in crossing and (rule.offset or (rule.buffer, rule.first) not in local)
    ]


def play_plain(schedule: Schedule, cost: UnitCost) -> Played:
    """Times and peaks of a schedule for which `is_plain` holds."""
    shape, table = schedule.shape, schedule.table
    shares = shares_of(shape)
    times, scale = whole([*(cost.time(letter) for letter in LETTERS), Fraction(cost.hop)])
    plus, minus, grain = kind_changes(schedule, cost)
    shared: tuple[Any, Any] = (shares.stage, shares.unit)
    if len(set(shares.stage)) == len(set(shares.unit)) == 1:
        share = shares.stage[0] * shares.unit[0]
        times[:-1], plus, minus = times[:-1] * share, plus * share, minus * share
        shared = (_NONE, _NONE)
    hop = int(times[-1]) * shares.scale
    bound = _bound(schedule, times, shares, hop)
    refuse_overflow(bound)
    narrow = bound < 2**31
    end: NDArray[Any] = np.empty(len(table), np.int32 if narrow else np.int64)
    peak = np.zeros(shape.devices, np.int64)
    reads, writes, room = _ports(schedule)
    late = _late(schedule, hop)
    ready = np.full(room, -1, end.dtype)
    done = _play(
        len(table), table.lane_start, table.lane_device, table.lane_stage,
        table.kind, table.stage, schedule.unit,
        *shared, times, plus, minus, reads, writes, late, ready, end, peak,
    )  # fmt: skip
    assert done == len(table), "a proven schedule came to a stop: a read was taken for a local one"
    return Played(end, peak, Fraction(1, scale * shares.scale), grain / shares.scale)


_NONE = np.zeros(0, np.int64)


def _bound(schedule: Schedule, times: Ticks, shares: Shares, hop: int) -> int:
    """More ticks than the step can take: everything one after the other."""
    most = int(shares.stage.max()) * int(shares.unit.max())
    return len(schedule.table) * (int(times.max()) * most + hop)


def _ports(schedule: Schedule) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Where a kind at a stage reads and writes across stages: first unit's place, or -1."""
    shape = schedule.shape
    names = sorted({r.buffer for k in LETTERS for s in (0, 1) for r in _crossing(schedule, k, s)})
    ports = np.full((2, len(LETTERS), shape.stages), -1, np.int64)
    for side in (0, 1):
        for code, kind in enumerate(LETTERS):
            for rule in _crossing(schedule, kind, side):
                here = np.arange(rule.first, rule.end)
                number = names.index(rule.buffer) * shape.stages + here + rule.offset
                ports[side, code, here] = number * shape.units
    return ports[0], ports[1], len(names) * shape.stages * shape.units


def _late(schedule: Schedule, hop: int) -> Ticks:
    """Latency of what a kind at a stage writes: a hop where the other stage lives elsewhere."""
    table, stages = schedule.table, schedule.shape.stages
    late = np.zeros((len(LETTERS), stages), np.int64)
    if hop:
        home = np.zeros(stages, np.int32)
        home[table.stage] = table.device
        for code, kind in enumerate(LETTERS):
            for rule in _crossing(schedule, kind, 1):
                here = np.arange(rule.first, rule.end)
                late[code, here] = hop * (home[here] != home[here + rule.offset])
    return late


@kernel
def _play(
    lane_start: Any, lane_device: Any, lane_stage: Any, kind: Any, stage: Any, unit: Any,
    stage_share: Any, unit_share: Any, times: Any, plus: Any, minus: Any, reads: Any, writes: Any,
    late: Any, ready: Any, end: Any, peak: Any,
) -> int:  # fmt: skip
    """Visit the lanes in turn; each runs until what its head reads has not been written yet."""
    lanes, shared = len(lane_device), len(stage_share) > 0
    cursor, clock = lane_start[:-1].copy(), np.zeros(lanes, np.int64)
    level, highest = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
    share = 1
    moved = True
    while moved:
        moved = False
        for lane in range(lanes):
            head, row, now = cursor[lane], cursor[lane], clock[lane]
            held, most = level[lane], highest[lane]
            here = lane_stage[lane]
            mixed = here < 0
            while row < lane_start[lane + 1]:
                code, part = kind[row], unit[row]
                if mixed:
                    here = stage[row]
                port = reads[code, here]
                if port >= 0:
                    there = ready[port + part]
                    if there < 0:
                        break
                    now = max(now, there)
                if shared:
                    share = stage_share[here] * unit_share[part]
                now += times[code] * share
                end[row] = now
                held += plus[code] * share
                most = max(most, held)
                held += minus[code] * share
                most = max(most, held)
                port = writes[code, here]
                if port >= 0:
                    ready[port + part] = now + late[code, here]
                row += 1
            if row != head:
                moved = True
                cursor[lane], clock[lane] = row, now
                level[lane], highest[lane] = held, most
    done = 0
    for lane in range(lanes):
        peak[lane_device[lane]] = highest[lane]
        done += cursor[lane] - lane_start[lane]
    return done
