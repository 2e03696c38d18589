"""The common case, on the fast clock: each op waits for at most one thing from another stage.

Where every stage has one home, what an op reads of its own stage is satisfied by lane order, which
is proven before. What remains is the input from the stage before or the gradient from the stage
behind: one look-up per op (core/chain_clock.py). Times and memory levels follow from shares, so no
column besides the table's own is read, and no graph is built.
"""

from fractions import Fraction
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.core.buffers import BUFFERS
from penstock.core.chain_clock import LATE, MINUS, PLUS, READS, TIME, WRITES, Cells, play_chain
from penstock.core.meaning import Rule, rules
from penstock.core.ops import SHARD_KINDS, STAGE_KINDS
from penstock.core.schedule import Schedule
from penstock.core.table import LETTERS, Ticks
from penstock.cost.model import UnitCost
from penstock.cost.shares import Shares, refuse_overflow, shares_of, whole
from penstock.sim.memory import SHARED_SIZES, kind_changes


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
        and all(len(refs) <= 1 for kind in kinds for refs in _crossing(schedule)[kind])
    )


CrossingRules = dict[str, tuple[list[Rule], list[Rule]]]
"""By kind: what it reads and what it writes of buffers that cross."""


def _crossing(schedule: Schedule) -> CrossingRules:
    """References to buffers that are written for another stage than the writer's."""
    return schedule.derive("references to other stages", _find_crossing)


def _find_crossing(schedule: Schedule) -> CrossingRules:
    table = rules(schedule.shape)
    written = [rule for _, writes in table.values() for rule in writes]
    across = {r.buffer for r in written if r.offset and BUFFERS[r.buffer].per != "home"}
    local = {(rule.buffer, rule.first) for rule in written if not rule.offset}

    def crosses(rule: Rule) -> bool:
        other = rule.offset or (rule.buffer, rule.first) not in local
        return rule.buffer in across and bool(other)

    return {
        kind: ([*filter(crosses, reads)], [*filter(crosses, writes)])
        for kind, (reads, writes) in table.items()
    }


def play_plain(schedule: Schedule, cost: UnitCost) -> Played:
    """Times and peaks of a schedule for which `is_plain` holds."""
    shape, table = schedule.shape, schedule.table
    shares = shares_of(shape)
    times, scale = whole([*(cost.time(letter) for letter in LETTERS), Fraction(cost.hop)])
    plus, minus, grain = kind_changes(schedule, cost)
    hop = int(times[-1]) * shares.scale
    bound = _bound(schedule, times, shares, hop)
    refuse_overflow(bound)
    cells, room = _cells(schedule, hop)
    stage_share, share = shares.stage, shares.unit
    if len(set(shares.unit)) == 1:
        stage_share, share = shares.stage * shares.unit[0], _NONE
    for column, of_kind in ((TIME, times[:-1]), (PLUS, plus), (MINUS, minus)):
        cells[:, :, column] = np.outer(of_kind, stage_share)
    end: NDArray[Any] = np.empty(len(table), np.int32 if bound < 2**31 else np.int64)
    ready, lane_peak = np.empty(room, end.dtype), np.empty(len(table.lane_device), np.int64)
    done = play_chain(
        len(table), table.lane_start, table.lane_stage, table.kind, table.stage, schedule.unit,
        cells, share, ready, end, lane_peak,
    )  # fmt: skip
    assert done == len(table), "a proven schedule came to a stop: a read was taken for a local one"
    peak = np.zeros(shape.devices, np.int64)
    peak[table.lane_device] = lane_peak
    return Played(end, peak, Fraction(1, scale * shares.scale), grain / shares.scale)


_NONE = np.zeros(0, np.int64)


def _bound(schedule: Schedule, times: Ticks, shares: Shares, hop: int) -> int:
    """More ticks than the step can take: everything one after the other."""
    most = int(shares.stage.max()) * int(shares.unit.max())
    return len(schedule.table) * (int(times.max()) * most + hop)


def _cells(schedule: Schedule, hop: int) -> tuple[Cells, int]:
    """What a kind at a stage reads and writes across stages, and how many places that takes.

    What crosses to a stage has a place for each unit, and is late by a hop where it comes from
    another device.
    """
    shape, table = schedule.shape, schedule.table
    crossing = _crossing(schedule)
    names = sorted({rule.buffer for kind in LETTERS for rule in chain(*crossing[kind])})
    home = np.zeros(shape.stages, np.int32)
    home[table.stage] = table.device
    late = np.zeros(len(names) * shape.stages, np.int64)
    cells = np.zeros((len(LETTERS), shape.stages, 6), np.int64)
    cells[:, :, [READS, WRITES]] = -1
    for side, column in ((1, WRITES), (0, READS)):
        for code, kind in enumerate(LETTERS):
            for rule in crossing[kind][side]:
                here = np.arange(rule.first, rule.end)
                number = names.index(rule.buffer) * shape.stages + here + rule.offset
                cells[code, here, column] = number * shape.units
                if column == WRITES:
                    late[number] = hop * (home[here] != home[here + rule.offset])
                else:
                    cells[code, here, LATE] = late[number]
    return cells, len(late) * shape.units
