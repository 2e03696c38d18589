"""Fractions as whole numbers: shares of stages and slices, and times of rows on a common tick.

Sums of whole numbers are exact and fast, and a tick that would be too fine for them is refused.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import lcm
from typing import Any, NamedTuple

import numpy as np

from penstock.core.kernel import kernel
from penstock.core.ops import SHARD_KINDS, STAGE_KINDS, Op
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.core.table import LETTERS, Ticks
from penstock.errors import ShapeError


class Scaled(NamedTuple):
    """Whole numbers that stand for fractions: value = ticks * tick."""

    ticks: Ticks
    tick: Fraction


def whole(values: Sequence[Fraction]) -> tuple[Ticks, int]:
    """Fractions as whole numbers, and the common denominator they were multiplied by. Many are one
    and the same, which is known by its place in memory: fractions are slow to compare."""
    different = {id(value): value for value in values}
    scale = lcm(*(value.denominator for value in different.values()))
    numbers = {at: int(value * scale) for at, value in different.items()}
    refuse_overflow(max(numbers.values(), default=0))
    return np.array([numbers[id(value)] for value in values], np.int64), scale


class Shares(NamedTuple):
    """Shares of stages and units as whole numbers; `scale` is what a full share became."""

    stage: Ticks
    unit: Ticks
    stage_scale: int
    unit_scale: int

    @property
    def scale(self) -> int:
        return self.stage_scale * self.unit_scale

    @property
    def most(self) -> int:
        """At least the largest product of two shares."""
        return max(int(self.stage.max()), self.stage_scale) * max(
            int(self.unit.max()), self.unit_scale
        )


def shares_of(shape: Shape) -> Shares:
    """The shares of a shape, exact; a vocabulary shard has a full one."""
    even = (Fraction(shape.devices, shape.stages),) * shape.stages
    of_shards = (Fraction(1),) * shape.shards
    stage, stage_scale = whole((shape.stage_share or even) + of_shards)
    unit, unit_scale = unit_shares(shape)
    return Shares(stage, unit, stage_scale, unit_scale)


def unit_shares(shape: Shape) -> tuple[Ticks, int]:
    """Those of slices alone."""
    if shape.slice_share:
        return _of_slices(shape.slice_share)
    counts = np.array(shape.slices, np.int64)
    scale = lcm(*set(shape.slices))
    return np.repeat(scale // counts, counts), scale


def _of_slices(microbatches: tuple[tuple[Fraction, ...], ...]) -> tuple[Ticks, int]:
    """Shares of all slices as whole numbers. Most microbatches are cut alike and have one tuple of
    shares."""
    each = {id(shares): shares for shares in microbatches}
    numbers, scale = whole([share for shares in each.values() for share in shares])
    ends = np.cumsum([*map(len, each.values())])[:-1]
    of_shares = dict(zip(each, np.split(numbers, ends)))
    return np.concatenate([of_shares[id(shares)] for shares in microbatches]), scale


def share_column(schedule: Schedule) -> Ticks:
    """Share of the stage x share of the slice of every row, in whole numbers; kept with it.

    Shards are not divided by the stage share, ops of a whole stage not by a slice share.
    """
    return schedule.derive("share", _shares_of_rows)


def _shares_of_rows(schedule: Schedule) -> Ticks:
    table, shares = schedule.table, shares_of(schedule.shape)
    sharded = np.array([letter in SHARD_KINDS for letter in LETTERS], np.uint8)
    staged = np.array([letter in STAGE_KINDS for letter in LETTERS], np.uint8)
    ticks = np.empty(len(table), np.int64)
    columns = (table.kind, table.stage, schedule.unit, sharded, staged)
    _multiply(len(table), *columns, *shares, ticks)
    return ticks


def spread(schedule: Schedule, by_kind: list[Fraction]) -> Scaled:
    """Value of a kind x share of the stage x share of the slice, for every row, exactly."""
    shares, column = shares_of(schedule.shape), share_column(schedule)
    kind, kind_scale = whole(by_kind)
    refuse_overflow(len(column) * int(kind.max()) * shares.most)
    return Scaled(kind[schedule.table.kind] * column, Fraction(1, kind_scale * shares.scale))


def spread_by_stage(schedule: Schedule, values: list[list[Fraction]]) -> Scaled:
    """Value of a kind at a stage x share of the slice, for every row, exactly.

    Shards take their own time whole, ops of a whole stage that of a whole microbatch.
    """
    table, shares = schedule.table, shares_of(schedule.shape)
    flat, scale = whole([value for by_stage in values for value in by_stage])
    by_kind = flat.reshape(len(LETTERS), -1)
    refuse_overflow(len(table) * int(flat.max()) * int(shares.unit.max(initial=1)))
    unit = np.where(schedule.unit >= 0, shares.unit[schedule.unit], shares.unit_scale)
    return Scaled(by_kind[table.kind, table.stage] * unit, Fraction(1, scale * shares.unit_scale))


def finer(scaled: Scaled, tick: Fraction) -> tuple[Ticks, Fraction]:
    """The same amounts in smaller ticks."""
    factor = int(scaled.tick / tick)
    refuse_overflow(factor * int(scaled.ticks.max(initial=0)) * len(scaled.ticks))
    return (scaled.ticks if factor == 1 else scaled.ticks * factor), scaled.tick / factor


def refuse_overflow(total: int) -> None:
    """Sums of ticks must stay exact: refuse times whose common tick is too fine for that."""
    if total >= 2**62:
        raise ShapeError(
            "the times, sizes and shares have no common unit coarse enough to be summed exactly: "
            f"the step would have up to {total:.2e} ticks",
            hint="give times and sizes with fewer digits",
        )


@kernel
def _multiply(
    kind: Any, stage: Any, unit: Any, sharded: Any, staged: Any,
    by_stage: Any, by_unit: Any, stage_scale: Any, unit_scale: Any, ticks: Any,
) -> None:  # fmt: skip
    """Product of the two shares of each row."""
    for row in range(len(kind)):
        code = kind[row]
        share = stage_scale if sharded[code] else by_stage[stage[row]]
        ticks[row] = share * (unit_scale if staged[code] else by_unit[unit[row]])


def override(schedule: Schedule, scaled: Scaled, op_times: Mapping[Op, Fraction]) -> Scaled:
    """Replace the times of single ops, and shorten partial offloads, on a finer tick."""
    table = schedule.table
    row_of = table.rows_by_op
    rows: dict[int, Fraction] = {}
    for op, time in op_times.items():
        if op not in row_of:
            raise ShapeError(
                f"a time is given for {op}, which is in no lane of {schedule.name}",
                hint="give times for ops of the schedule only",
            )
        rows |= dict.fromkeys(row_of[op], Fraction(time))
    for op, share in schedule.shares:
        row = row_of[op][0]
        rows.setdefault(row, int(scaled.ticks[row]) * scaled.tick * share)
    tick = Fraction(1, lcm(scaled.tick.denominator, *(t.denominator for t in rows.values())))
    longest = max(int(scaled.ticks.max()) * scaled.tick, *rows.values(), Fraction(0))
    refuse_overflow(len(table) * int(longest / tick))
    ticks = scaled.ticks * int(scaled.tick / tick)
    for row, time in rows.items():
        ticks[row] = int(time / tick)
    return Scaled(ticks, tick)
