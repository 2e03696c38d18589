"""Local search on an order: exchange neighbours on the chain of ops that decides the makespan.

Nothing but the longest chain keeps a step from being shorter, so only an exchange of two ops that
stand next to each other on that chain and on one device can help. Try those that the memory allows,
take the best although it may be worse, forbid for a while to take it back (tabu search), and
remember the best order that was met.
"""

from typing import Any, NamedTuple

import numpy as np

from penstock.core.chain_clock import LATE, READS, WRITES, Cells, advance, play_chain
from penstock.core.kernel import kernel, part
from penstock.search.joint.list_scheduler import NEVER, Listed
from penstock.search.joint.pipeline import Order, Pipeline, Whole

TRIED = 12
"""Exchanges tried in a round: all of a short chain, some of a long one."""
TENURE = 20
"""Rounds in which an op that was put back is not brought forward again."""


class Replay(NamedTuple):
    """What an order takes: the end of each row, and the most that each device holds."""

    end: Whole
    peak: Whole
    makespan: int
    """Tick at which the last op ends; -1 where the order comes to a stop."""


def replay(pipeline: Pipeline, order: Order) -> Replay:
    """Play an order on the fast clock."""
    end, peak = np.empty(len(order.kind), np.int64), np.empty(pipeline.devices, np.int64)
    done = play_chain.compiled(*_columns(pipeline, order), end, peak)
    return Replay(end, peak, int(end.max()) if done == len(end) else -1)


def _columns(pipeline: Pipeline, order: Order) -> tuple[Whole | Cells, ...]:
    """What the clock reads of an order, and room for what it notes."""
    p, unit = pipeline, order.units(pipeline.slices)
    ready = np.empty(p.ops, np.int64)
    return order.start, p.lane_stage, order.kind, order.stage, unit, p.cells, _EQUAL, ready


_EQUAL = np.zeros(0, np.int64)
"""No shares: slices of a search are equal."""


def fits(pipeline: Pipeline, replayed: Replay) -> bool:
    """Whether an order stays within the memory of every device."""
    return bool((replayed.peak <= pipeline.cap).all())


def polish(pipeline: Pipeline, listed: Listed, rounds: int, seed: int) -> Listed:
    """The best order met in `rounds` exchanges, which is never worse than the given one."""
    order = Order(*(column.copy() for column in listed.order))
    columns = _columns(pipeline, order)
    makespan = int(_polish.compiled(*columns, pipeline.cap, rounds, seed))
    turn = order._replace(turn=columns[4]).units(pipeline.slices)
    better = 0 <= makespan < listed.makespan
    return Listed(order._replace(turn=turn), makespan) if better else listed


@kernel
def _polish(
    start: Any, lane_stage: Any, kind: Any, stage: Any, unit: Any, cells: Any, share: Any,
    ready: Any, cap: Any, rounds: Any, seed: Any,
) -> int:  # fmt: skip
    """Tabu search; leaves the best order in `kind`, `stage` and `unit` and returns its makespan."""
    np.random.seed(seed)
    rows, (kinds, stages, _) = len(kind), cells.shape
    end, peak, at = np.empty(rows, np.int64), np.empty(len(cap), np.int64), np.empty_like(ready)
    chain, units = np.empty(rows, np.int64), len(ready) // (kinds * stages)
    barred = np.zeros((kinds, stages, units), np.int64)
    best = _score(start, lane_stage, kind, stage, unit, cells, share, ready, end, peak)
    kept_kind, kept_stage, kept_unit = kind.copy(), stage.copy(), unit.copy()
    for moment in range(rounds):
        _score(start, lane_stage, kind, stage, unit, cells, share, ready, end, peak)
        found = _exchanges(start, kind, stage, unit, cells, end, at, chain)
        pick, least = -1, NEVER
        for number in range(min(found, TRIED)):
            other = np.random.randint(number, found)
            chain[number], chain[other] = chain[other], chain[number]
            row = chain[number]
            lane = np.searchsorted(start, row, "right") - 1
            _swap(row, kind, stage, unit)
            score = _score(start, lane_stage, kind, stage, unit, cells, share, ready, end, peak)
            late = barred[kind[row - 1], stage[row - 1], unit[row - 1]] > moment
            fit = peak[lane] <= cap[lane]
            if fit and 0 <= score < least and (score < best or not late):
                pick, least = row, score
            _swap(row, kind, stage, unit)
        if pick < 0:
            continue
        barred[kind[pick - 1], stage[pick - 1], unit[pick - 1]] = moment + TENURE
        _swap(pick, kind, stage, unit)
        if least < best:
            best = least
            kept_kind[:], kept_stage[:], kept_unit[:] = kind, stage, unit
    kind[:], stage[:], unit[:] = kept_kind, kept_stage, kept_unit
    return int(best)


@part
def _score(
    start: Any, lane_stage: Any, kind: Any, stage: Any, unit: Any, cells: Any, share: Any,
    ready: Any, end: Any, peak: Any,
) -> Any:  # fmt: skip
    """The makespan of an order, -1 where it comes to a stop."""
    done = advance(start, lane_stage, kind, stage, unit, cells, share, ready, end, peak)
    return end.max() if done == len(kind) else -1


@part
def _exchanges(
    start: Any, kind: Any, stage: Any, unit: Any, cells: Any, end: Any, at: Any, chain: Any
) -> Any:
    """Rows of the longest chain that follow their neighbour in the lane for no other reason.

    `at` gets the row of every op that another one waits for.
    """
    for row in range(len(kind)):
        place = cells[kind[row], stage[row], WRITES]
        if place >= 0:
            at[place + unit[row]] = row
    found, row = 0, int(end.argmax())
    while row >= 0:
        cell = cells[kind[row], stage[row]]
        lane = np.searchsorted(start, row, "right") - 1
        before = row - 1 if row > start[lane] else -1
        free = end[before] if before >= 0 else 0
        if cell[READS] >= 0:
            source = at[cell[READS] + unit[row]]
            if end[source] + cell[LATE] > free:
                before = source
        same = kind[row] == kind[before] and stage[row] == stage[before]
        if before == row - 1 and before >= 0 and not same:
            chain[found] = row
            found += 1
        row = before
    return found


@part
def _swap(row: Any, kind: Any, stage: Any, unit: Any) -> None:
    """Exchange a row with the one before it."""
    kind[row], kind[row - 1] = kind[row - 1], kind[row]
    stage[row], stage[row - 1] = stage[row - 1], stage[row]
    unit[row], unit[row - 1] = unit[row - 1], unit[row]
