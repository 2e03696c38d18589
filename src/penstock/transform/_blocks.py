"""What all transforms do: put a block of ops in the place of each op.

Replacing an op by a chain of ops keeps a legal schedule legal: whatever waited for the op waits for
its block, and no new wait leads back. What needs care is the annotations. Braided ops have blocks
of equal length, which are braided column by column, with gaps where a strand has nothing:

    pair (F0, B1)   split B1 into I1 W1      F0 I1    the pair is now (F0, I1), then W1 alone
                                             -  W1
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from penstock.core.named_rows import are_pairs_braided, pair_rows
from penstock.core.ops import STAGE_KINDS, Op
from penstock.core.schedule import After, Loan, Schedule
from penstock.core.shape import MAX_OPS, Shape
from penstock.core.table import Ints, Table
from penstock.errors import ShapeError

LaneItem = tuple[Op, ...]
"""What takes one turn in a lane: a single op, or the strands of a pair."""
OpBlock = tuple[Op | None, ...]
"""What stands in the place of an op; None is a gap that keeps the strands of a pair aligned."""
BlockOf = Callable[[Op], OpBlock]
ItemLanes = list[tuple[int, str, list[LaneItem]]]


def item_lanes(schedule: Schedule) -> ItemLanes:
    """The lanes of a schedule as items, found once and kept with it."""
    return schedule.derive("item lanes", _item_lanes)


def _item_lanes(schedule: Schedule) -> ItemLanes:
    refuse_strangers(schedule)
    pair_of = {op: frozenset(pair) for pair in schedule.pairs for op in pair}
    lanes = [
        (device, stream, list(_items(ops, pair_of)))
        for device, stream, ops in schedule.table.lanes()
    ]
    found = {frozenset(item) for _, _, items in lanes for item in items if len(item) > 1}
    for pair in schedule.pairs:
        if frozenset(pair) not in found:
            raise ShapeError(
                f"the pair {' '.join(map(str, pair))} is not together in a lane",
                hint="write the ops of a pair one right after the other",
            )
    return lanes


def item_numbers(schedule: Schedule) -> Ints:
    """For each row the number of its item in its lane, found once and kept."""
    return schedule.derive("item numbers", _item_numbers)


def _item_numbers(schedule: Schedule) -> Ints:
    if not schedule.pairs or are_pairs_braided(schedule):
        refuse_strangers(schedule)
        table, first = schedule.table, np.ones(len(schedule.table), np.bool_)
        for rows in pair_rows(schedule):
            first[np.sort(rows, axis=1)[:, 1:]] = False
        number = np.cumsum(first, dtype=np.int32)
        return number - number[table.lane_start[:-1]][table.lane]
    lengths = [[len(item) for item in items] for _, _, items in item_lanes(schedule)]
    each = [np.repeat(np.arange(len(counts), dtype=np.int32), counts) for counts in lengths]
    return np.concatenate(each)


def _items(ops: list[Op], pair_of: dict[Op, frozenset[Op]]) -> Iterator[LaneItem]:
    if not pair_of:
        yield from zip(ops)
        return
    position = 0
    while position < len(ops):
        pair = pair_of.get(ops[position], frozenset())
        near = tuple(ops[position : position + len(pair)])
        item = near if pair and frozenset(near) == pair else (ops[position],)
        yield item
        position += len(item)


def refuse_strangers(schedule: Schedule) -> None:
    """A transform counts on the coordinates of every op being inside the shape."""
    table = schedule.table
    staged = table.of_kinds(STAGE_KINDS)
    strangers = np.flatnonzero((schedule.unit < 0) & ~staged)
    if strangers.size:
        raise ShapeError(
            f"{table.op(int(strangers[0]))} is outside the microbatches and slices of its schedule",
            hint="check the schedule before transforming it",
        )


def refuse_above_limit(ops: int) -> None:
    """Refuse a result that would be too large, before it is built."""
    if ops > MAX_OPS:
        raise ShapeError(
            f"the result would have {ops:,} ops, above the limit of {MAX_OPS:,}",
            hint="take fewer slices or smaller groups",
        )


def replace_ops(
    schedule: Schedule, block: BlockOf, *, name: str, shape: Shape, **annotations: Any
) -> Schedule:
    """The schedule with each op replaced by its block; `annotations` are those it cannot derive.

    Members of a gang's block are gangs, and a share holds for every member. `op` after `earlier`
    becomes: the first of its block after the last of the other's.
    """
    lanes = [
        (device, stream, [column for item in items for column in _columns(item, block)])
        for device, stream, items in item_lanes(schedule)
    ]
    derived: dict[str, Any] = {
        "gangs": tuple(op for gang in schedule.gangs for op in present(block(gang))),
        "shares": tuple((op, s) for owner, s in schedule.shares for op in present(block(owner))),
    }
    if "after" not in annotations:
        derived["after"] = tuple(
            After(present(block(op))[0], present(block(earlier))[-1])
            for op, earlier in schedule.after
        )
    return with_items(schedule.renamed(name), lanes, shape=shape, **derived, **annotations)


def present(block: OpBlock) -> tuple[Op, ...]:
    """The ops of a block, without its gaps."""
    return tuple(op for op in block if op is not None)


def _columns(item: LaneItem, block: BlockOf) -> list[LaneItem]:
    if len(item) == 1:
        return [(op,) for op in block(item[0]) if op is not None]
    return [ops for column in zip(*map(block, item), strict=True) if (ops := present(column))]


def with_items(schedule: Schedule, lanes: ItemLanes, **changes: Any) -> Schedule:
    """The schedule with other lanes; pairs are the items of several ops."""
    pairs = dict.fromkeys(item for _, _, items in lanes for item in items if len(item) > 1)
    rows = [(device, stream, list(chain(*items))) for device, stream, items in lanes]
    return replace(schedule, table=Table.of(rows), pairs=tuple(pairs), derived={}, **changes)


def refuse_loans(loans: Iterable[Loan], reason: str) -> None:
    """Refuse loans of attention work that the transform would falsify."""
    for heavy, light, _ in loans:
        raise ShapeError(
            f"{heavy} lends attention work to {light}, and {reason}",
            hint="transform the schedule without its loans",
        )


def unique(values: Iterable[Any]) -> tuple[Any, ...]:
    """The values without repetitions, in order."""
    return tuple(dict.fromkeys(values))
