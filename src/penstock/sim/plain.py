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

from penstock.core.graph import kinds_of
from penstock.core.kernel import kernel
from penstock.core.lifetimes import size_factors
from penstock.core.meaning import BUFFERS, Rule, rules
from penstock.core.ops import SHARD_KINDS, STAGE_KINDS
from penstock.core.schedule import Schedule
from penstock.core.table import LETTERS
from penstock.cost.model import SIZES, UnitCost, shares_of, whole
from penstock.sim.memory import common_tick

Ticks = NDArray[np.int64]


class Played(NamedTuple):
    """Start and end of each row, peak level of each device, and what a tick and a level are."""

    start: Ticks
    end: Ticks
    peak: Ticks
    tick: Fraction
    grain: Fraction


def is_plain(schedule: Schedule, cost: object) -> bool:
    """Whether the one-look-up loop applies to this schedule and cost model."""
    shape, kinds = schedule.shape, kinds_of(schedule.table)
    annotated = schedule.pairs or schedule.loans or schedule.gangs or schedule.after
    one_home = shape.copies == 1 and not shape.weightless and not shape.skips
    single = set(schedule.table.lane_stream) == {"compute"}
    crossing = all(len(_crossing(schedule, kind, side)) <= 1 for kind in kinds for side in (0, 1))
    return (
        isinstance(cost, UnitCost)
        and cost.separable
        and not (cost.links or cost.per_byte or cost.communication)
        and not any(cost.size(size) for size in _shared_sizes())
        and one_home
        and single
        and not annotated
        and not kinds & (SHARD_KINDS | STAGE_KINDS)
        and crossing
    )


def _shared_sizes() -> list[str]:
    """Sizes of buffers that all slices of a microbatch share."""
    return [buffer.size for buffer in BUFFERS.values() if buffer.per == "microbatch"]


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
        if rule.buffer in crossing and (rule.buffer, rule.first) not in local
    ]


def play_plain(schedule: Schedule, cost: UnitCost) -> Played:
    """Times and peaks of a schedule for which `is_plain` holds."""
    shape, table = schedule.shape, schedule.table
    shares = shares_of(shape)
    times, scale = whole([*(cost.time(letter) for letter in LETTERS), Fraction(cost.hop)])
    grain = common_tick([cost.size(size) for size in SIZES if cost.size(size)])
    levels = [size_factors(size) for size in SIZES]
    units = [int(cost.size(size) / grain) for size in SIZES]
    plus, minus = (
        sum(np.int64(unit) * factors[side] for unit, factors in zip(units, levels))
        for side in (0, 1)
    )
    start, end = np.empty(len(table), np.int64), np.empty(len(table), np.int64)
    peak = np.zeros(shape.devices, np.int64)
    hop = int(times[-1]) * shares.scale
    home = np.zeros(shape.stages, np.int32)
    if hop:
        home[table.stage] = table.lane
    buffers = sorted({r.buffer for k in LETTERS for s in (0, 1) for r in _crossing(schedule, k, s)})
    ports = [_ports(schedule, buffers, side) for side in (0, 1)]
    ready = np.full(len(buffers) * shape.stages * shape.units, -1, np.int64)
    _play(
        len(table), table.lane_start, table.lane_device, table.kind, table.stage, schedule.unit,
        shape.units, shares.stage, shares.unit, times, plus, minus, ports[0], ports[1],
        hop, home, ready, start, end, peak,
    )  # fmt: skip
    return Played(start, end, peak, Fraction(1, scale * shares.scale), grain / shares.scale)


def _ports(schedule: Schedule, buffers: list[str], side: int) -> NDArray[np.int64]:
    """For each kind: base of the buffer it reads or writes across stages, offset, stage range."""
    shape = schedule.shape
    ports = np.zeros((len(LETTERS), 4), np.int64)
    for code, kind in enumerate(LETTERS):
        for rule in _crossing(schedule, kind, side):
            base = buffers.index(rule.buffer) * shape.stages * shape.units
            ports[code] = (base, rule.offset, rule.first, rule.end)
    return ports


@kernel
def _play(
    lane_start: Any, lane_device: Any, kind: Any, stage: Any, unit: Any, units: Any,
    stage_share: Any, unit_share: Any, times: Any, plus: Any, minus: Any, reads: Any, writes: Any,
    hop: Any, home: Any, ready: Any, start: Any, end: Any, peak: Any,
) -> None:  # fmt: skip
    """Visit the lanes in turn; each runs until what its head reads has not been written yet."""
    lanes = len(lane_device)
    cursor, clock = lane_start[:-1].copy(), np.zeros(lanes, np.int64)
    level, highest = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
    moved = True
    while moved:
        moved = False
        for lane in range(lanes):
            row, now = cursor[lane], clock[lane]
            held, most = level[lane], highest[lane]
            while row < lane_start[lane + 1]:
                code, here, part = kind[row], stage[row], unit[row]
                if reads[code, 2] <= here < reads[code, 3]:
                    there = ready[reads[code, 0] + here * units + part]
                    if there < 0:
                        break
                    now = max(now, there)
                share = stage_share[here] * unit_share[part]
                start[row] = now
                now += times[code] * share
                end[row] = now
                held += plus[code] * share
                most = max(most, held)
                held += minus[code] * share
                most = max(most, held)
                if writes[code, 2] <= here < writes[code, 3]:
                    target = here + writes[code, 1]
                    wait = hop if hop and home[target] != lane else 0
                    ready[writes[code, 0] + target * units + part] = now + wait
                row += 1
            if row != cursor[lane]:
                moved = True
                cursor[lane], clock[lane] = row, now
                level[lane], highest[lane] = held, most
    for lane in range(lanes):
        peak[lane_device[lane]] = highest[lane]
