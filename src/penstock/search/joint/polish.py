"""Local search on an order: exchange neighbours on the chain of ops that decides the makespan.

Nothing but the longest chain keeps a step from being shorter, so only an exchange of two ops that
stand next to each other on that chain and on one device can help. Try those that the memory allows,
take the best although it may be worse, forbid for a while to take it back (tabu search), and
remember the best order that was met.
"""

from typing import Any

import numpy as np

from penstock.core.kernel import kernel, part
from penstock.search.joint.list_scheduler import NEVER, Listed
from penstock.search.joint.pipeline import Order, Pipeline, Whole

TRIED = 12
"""Exchanges tried in a round: all of a short chain, some of a long one."""
TENURE = 20
"""Rounds in which an op that was put back is not brought forward again."""


def replay(pipeline: Pipeline, order: Order) -> int:
    """Tick at which the last op of an order ends; -1 where it comes to a stop."""
    p, rows = pipeline, len(order.kind)
    ended, cause = np.empty((2, rows), np.int64)
    return int(
        _replay.compiled(
            order.start, order.kind, order.stage, order.turn, p.device, p.time, p.hop, p.slices,
            _places(p, order), ended, cause,
        )
    )  # fmt: skip


def peaks(pipeline: Pipeline, order: Order) -> list[int]:
    """Most memory that an order takes on each device."""
    columns = (order.start, order.kind, order.stage, pipeline.act, pipeline.stash)
    return [int(_highest.compiled(device, *columns)) for device in range(pipeline.devices)]


def fits(pipeline: Pipeline, order: Order) -> bool:
    """Whether an order stays within the memory of every device."""
    return all(most <= cap for most, cap in zip(peaks(pipeline, order), pipeline.cap))


def polish(pipeline: Pipeline, listed: Listed, rounds: int, seed: int) -> Listed:
    """The best order met in `rounds` exchanges, which is never worse than the given one."""
    p, order = pipeline, Order(*(column.copy() for column in listed.order))
    makespan = _polish.compiled(
        order.start, order.kind, order.stage, order.turn, p.device, p.time, p.hop, p.slices,
        _places(p, order), p.act, p.stash, p.cap, rounds, seed,
    )  # fmt: skip
    return Listed(order, int(makespan)) if 0 <= makespan < listed.makespan else listed


def _places(pipeline: Pipeline, order: Order) -> Whole:
    """Row of each op, by kind, stage and turn."""
    places = np.empty((*pipeline.time.shape, pipeline.units), np.int64)
    places[order.kind, order.stage, order.turn] = np.arange(len(order.kind))
    return places


@kernel
def _polish(
    start: Any, kind: Any, stage: Any, turn: Any, device: Any, time: Any, hop: Any, slices: Any,
    places: Any, act: Any, stash: Any, cap: Any, rounds: Any, seed: Any,
) -> int:  # fmt: skip
    """Tabu search; leaves the best order in `kind`, `stage` and `turn` and returns its makespan."""
    np.random.seed(seed)
    rows = len(kind)
    ended, cause = np.empty(rows, np.int64), np.empty(rows, np.int64)
    chain, barred = np.empty(rows, np.int64), np.zeros((*time.shape, places.shape[2]), np.int64)
    best = _replay(
        start, kind, stage, turn, device, time, hop, slices, places, ended, cause,
    )  # fmt: skip
    kept_kind, kept_stage, kept_turn = kind.copy(), stage.copy(), turn.copy()
    for moment in range(rounds):
        _replay(
            start, kind, stage, turn, device, time, hop, slices, places, ended, cause,
        )  # fmt: skip
        found = _exchanges(kind, stage, ended, cause, chain)
        pick, least = -1, NEVER
        for number in range(min(found, TRIED)):
            other = np.random.randint(number, found)
            chain[number], chain[other] = chain[other], chain[number]
            row = chain[number]
            lane = np.searchsorted(start, row, "right") - 1
            _swap(row, kind, stage, turn, places)
            if _highest(lane, start, kind, stage, act, stash) <= cap[lane]:
                score = _replay(
                    start, kind, stage, turn, device, time, hop, slices, places, ended, cause,
                )  # fmt: skip
                late = barred[kind[row - 1], stage[row - 1], turn[row - 1]] > moment
                if 0 <= score < least and (score < best or not late):
                    pick, least = row, score
            _swap(row, kind, stage, turn, places)
        if pick < 0:
            continue
        barred[kind[pick - 1], stage[pick - 1], turn[pick - 1]] = moment + TENURE
        _swap(pick, kind, stage, turn, places)
        if least < best:
            best = least
            kept_kind[:], kept_stage[:], kept_turn[:] = kind, stage, turn
    kind[:], stage[:], turn[:] = kept_kind, kept_stage, kept_turn
    return int(best)


@part
def _exchanges(kind: Any, stage: Any, ended: Any, cause: Any, chain: Any) -> Any:
    """Rows of the longest chain that follow their neighbour in the lane for no other reason."""
    found, row = 0, int(ended.argmax())
    while row >= 0:
        before = cause[row]
        same = kind[row] == kind[before] and stage[row] == stage[before]
        if before == row - 1 and before >= 0 and not same:
            chain[found] = row
            found += 1
        row = before
    return found


@part
def _swap(row: Any, kind: Any, stage: Any, turn: Any, places: Any) -> None:
    """Exchange a row with the one before it."""
    kind[row], kind[row - 1] = kind[row - 1], kind[row]
    stage[row], stage[row - 1] = stage[row - 1], stage[row]
    turn[row], turn[row - 1] = turn[row - 1], turn[row]
    places[kind[row], stage[row], turn[row]] = row
    places[kind[row - 1], stage[row - 1], turn[row - 1]] = row - 1


@part
def _highest(lane: Any, start: Any, kind: Any, stage: Any, act: Any, stash: Any) -> Any:
    """The most that a lane holds at any time."""
    level, highest = 0, 0
    for row in range(start[lane], start[lane + 1]):
        code, own = kind[row], stage[row]
        if code == 0:
            level += act[own]
        elif code == 1:
            level += stash[own] - act[own]
        else:
            level -= stash[own]
        highest = max(highest, level)
    return highest


@part
def _replay(
    start: Any, kind: Any, stage: Any, turn: Any, device: Any, time: Any, hop: Any, slices: Any,
    places: Any, ended: Any, cause: Any,
) -> Any:  # fmt: skip
    """End of each row and the row that it waited for; lanes run in turn until they wait."""
    last = time.shape[1] - 1
    cursor, ended[:] = start[:-1].copy(), -1
    count, seen, makespan = 0, -1, 0
    while count != seen:
        seen = count
        for lane in range(len(cursor)):
            row = cursor[lane]
            while row < start[lane + 1]:
                code, own, unit = kind[row], stage[row], turn[row]
                source = -1
                if code == 0 and own > 0:
                    source = places[0, own - 1, unit]
                elif code == 1:
                    behind = unit // slices * slices + slices - 1  # the last slice's forward
                    source = places[1, own + 1, unit] if own < last else places[0, own, behind]
                elif code == 2:
                    source = places[1, own, unit]
                first = row == start[lane]
                began, cause[row] = 0 if first else ended[row - 1], -1 if first else row - 1
                if source >= 0:
                    if ended[source] < 0:
                        break
                    arrived = ended[source] + hop * (device[stage[source]] != lane)
                    if arrived > began:
                        began, cause[row] = arrived, source
                ended[row] = began + time[code, own]
                makespan = max(makespan, ended[row])
                row += 1
                count += 1
            cursor[lane] = row
    return makespan if count == len(kind) else -1
