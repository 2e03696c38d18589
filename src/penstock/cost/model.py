"""What ops, transfers and buffers cost.

Papers state their results in unit times ("F = 1, B = 2"), and a result that is off by a rounding
error cannot be compared with a closed form. So times are fractions, turned into whole ticks before
anything is simulated: sums of ticks are exact, and a formula is a test with `==`.

A cost model answers three questions for a whole schedule at once: how many ticks each op takes,
how much each op's buffers hold, and what a transfer costs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.core.kernel import kernel
from penstock.core.ops import SHARD_KINDS, STAGE_KINDS, Op
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.core.table import LETTERS
from penstock.errors import ShapeError, nearest

Ticks = NDArray[np.int64]

TIMED = "FIWSTEDOLGZUV"
"""Kinds whose time a user may set; N and R cost an F, B costs I + W."""
SIZES = ("act", "stash", "ckpt", "kv", "dkv", "temp")


class Scaled(NamedTuple):
    """Whole numbers that stand for fractions: value = ticks * tick."""

    ticks: Ticks
    tick: Fraction


class Link(NamedTuple):
    """A directed edge between two devices: a pure latency, and the time one byte occupies it."""

    latency: Fraction = Fraction(0)
    per_byte: Fraction = Fraction(0)


class Cost(Protocol):
    """What the simulator asks of a cost model."""

    @property
    def communication(self) -> Fraction:
        """Time of the tensor-parallel communication of one forward or input gradient."""

    @property
    def sized(self) -> tuple[str, ...]:
        """Names of the sizes that are not zero for all buffers."""

    def durations(self, schedule: Schedule) -> Scaled:
        """Time of each row of the schedule's table, alone, without its communication."""

    def amounts(self, schedule: Schedule, size: str) -> Scaled:
        """What a buffer of that size name, belonging to each row, holds."""

    def link(self, source: int, target: int) -> Link:
        """The link between two devices."""

    def loan(self, op: Op) -> Fraction:
        """Time to attend to one key/value slice of `op`, which a loan moves to another device."""


@dataclass(frozen=True)
class UnitCost:
    """One time per kind, divided by the shares of the shape: the cost model of the papers."""

    times: Mapping[str, Fraction] = field(default_factory=dict)
    hop: Fraction = Fraction(0)
    """Latency of every transfer between devices."""
    sizes: Mapping[str, Fraction] = field(default_factory=dict)
    communication: Fraction = Fraction(0)
    per_byte: Fraction = Fraction(0)
    links: Mapping[tuple[int, int], Link] = field(default_factory=dict)
    """Links that differ from the others."""
    op_times: Mapping[Op, Fraction] = field(default_factory=dict)
    """Ops that differ from the others."""
    lent_slice: Fraction = Fraction(0)
    """Time to attend to one lent key/value slice, for one stage's forward."""

    def __post_init__(self) -> None:
        for name in ("times", "sizes", "op_times"):
            values = {key: exact(value) for key, value in getattr(self, name).items()}
            object.__setattr__(self, name, values)
        for name in ("hop", "communication", "per_byte", "lent_slice"):
            object.__setattr__(self, name, exact(getattr(self, name)))
        _refuse_unknown("time", self.times, tuple(TIMED))
        _refuse_unknown("size", self.sizes, SIZES)
        links = [value for link in self.links.values() for value in link]
        others = (self.hop, self.communication, self.per_byte, self.lent_slice)
        for value in (*others, *links, *self.op_times.values()):
            if value < 0:
                raise ShapeError(f"the cost {value} is negative", hint="give 0 or more")

    def time(self, kind: str) -> Fraction:
        """Time of a kind for one device's share of a whole microbatch."""
        if kind == "B":
            return self.time("I") + self.time("W")
        letter = "F" if kind in "NR" else kind
        return Fraction(self.times.get(letter, 1 if letter in "FIW" else 0))

    def size(self, name: str) -> Fraction:
        return Fraction(self.sizes.get(name, 1 if name in ("act", "stash") else 0))

    @property
    def sized(self) -> tuple[str, ...]:
        return tuple(size for size in SIZES if self.size(size))

    @property
    def prices(self) -> dict[str, Fraction]:
        """What was set, by name: what a generator is told whose order depends on prices."""
        return {**self.times, **self.sizes, "hop": self.hop}

    @property
    def separable(self) -> bool:
        """Whether every op costs time of its kind x share of its stage x share of its slice."""
        return not self.op_times

    def durations(self, schedule: Schedule) -> Scaled:
        scaled = _spread(schedule, [self.time(letter) for letter in LETTERS])
        if self.separable and not schedule.shares:
            return scaled
        return _override(schedule, scaled, self.op_times)

    def amounts(self, schedule: Schedule, size: str) -> Scaled:
        shares, held = shares_of(schedule.shape), self.size(size)
        refuse_overflow(len(schedule.table) * held.numerator * shares.most)
        column = share_column(schedule)
        ticks = column if held.numerator == 1 else column * held.numerator
        return Scaled(ticks, Fraction(1, held.denominator * shares.scale))

    def link(self, source: int, target: int) -> Link:
        return self.links.get((source, target), self._default_link)

    @cached_property
    def _default_link(self) -> Link:
        return Link(Fraction(self.hop), Fraction(self.per_byte))

    def loan(self, op: Op) -> Fraction:
        return Fraction(self.lent_slice)


def exact(value: Fraction | float | str) -> Fraction:
    """A number as its digits say: 0.1 is one tenth, and not the binary number nearest to it."""
    try:
        return Fraction(value) if isinstance(value, int | Fraction) else Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        raise ShapeError(
            f"{value!r} is not a number", hint='give an int, a Fraction, 0.25, "0.25" or "1/3"'
        ) from None


def _refuse_unknown(what: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name, value in given.items():
        if name not in known:
            hint = "B is I + W; N and R cost an F" if name in "BNR" else nearest(name, known)
            raise ShapeError(f"there is no {what} called {name!r}", hint=hint)
        if value < 0:
            raise ShapeError(f"the {what} {name}={value} is negative", hint="give 0 or more")


def whole(values: list[Fraction]) -> tuple[Ticks, int]:
    """Fractions as whole numbers, and the common denominator they were multiplied by."""
    scale = lcm(*(value.denominator for value in values))
    numbers = [int(value * scale) for value in values]
    refuse_overflow(max(numbers, default=0))
    return np.array(numbers, np.int64), scale


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
    """The shares of a shape, exact."""
    stage, stage_scale = whole([shape.share_of_stage(s) for s in range(shape.stages)])
    if shape.slice_share:
        unit, unit_scale = whole([share for shares in shape.slice_share for share in shares])
        return Shares(stage, unit, stage_scale, unit_scale)
    counts = np.array(shape.slices, np.int64)
    unit_scale = lcm(*set(shape.slices))
    return Shares(stage, np.repeat(unit_scale // counts, counts), stage_scale, unit_scale)


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


def _spread(schedule: Schedule, by_kind: list[Fraction]) -> Scaled:
    """Value of a kind x share of the stage x share of the slice, for every row, exactly."""
    shares, column = shares_of(schedule.shape), share_column(schedule)
    kind, kind_scale = whole(by_kind)
    refuse_overflow(len(column) * int(kind.max()) * shares.most)
    return Scaled(kind[schedule.table.kind] * column, Fraction(1, kind_scale * shares.scale))


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


def _override(schedule: Schedule, scaled: Scaled, op_times: Mapping[Op, Fraction]) -> Scaled:
    """Replace the times of single ops, and shorten partial offloads, on a finer tick."""
    table = schedule.table
    row_of = table.rows_by_op
    rows: dict[int, Fraction] = {}
    for op, time in op_times.items():
        if op not in row_of:
            raise ShapeError(
                f"a time is given for {op}, which stands in no lane of {schedule.name}",
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
