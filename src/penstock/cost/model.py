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
from typing import Any, NamedTuple, Protocol

from penstock.core.ops import SHARD_KINDS, Op
from penstock.core.schedule import Loan, Schedule
from penstock.core.shape import Shape
from penstock.core.table import LETTERS
from penstock.cost.exchange import Exchange, exchange_of
from penstock.cost.shares import (
    Scaled,
    override,
    refuse_overflow,
    share_column,
    shares_of,
    spread,
    spread_by_stage,
)
from penstock.errors import ShapeError, nearest

TIMED = "FIWSTEDOLGZUVAC"
"""Kinds whose time a user may set; N and R cost an F, B costs I + W."""
SIZES = ("act", "stash", "ckpt", "kv", "dkv", "logits", "given", "temp")


class Link(NamedTuple):
    """A directed edge between two devices: a pure latency, and the time one byte occupies it."""

    latency: Fraction = Fraction(0)
    per_byte: Fraction = Fraction(0)
    joined: int = 1
    """How many times what a transfer carries each part has that a collective brings together."""

    @property
    def free(self) -> bool:
        return not (self.latency or self.per_byte)


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

    def loan(self, op: Op, shape: Shape) -> Fraction:
        """Time to attend to one key/value slice of `op`, which a loan moves to another device."""

    def exchange(self, loan: Loan, shape: Shape) -> Exchange:
        """Bytes that a loan moves to the other device and back."""


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
        links = [value for link in self.links.values() for value in link[:2]]
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
        if schedule.shape.kind_share:
            scaled = spread_by_stage(schedule, self._stage_times(schedule.shape))
        else:
            scaled = spread(schedule, [self.time(letter) for letter in LETTERS])
        if self.separable and not schedule.shares:
            return scaled
        return override(schedule, scaled, self.op_times)

    def _stage_times(self, shape: Shape) -> list[list[Fraction]]:
        """Time of each kind on each stage, for stages that weigh differently in each kind."""

        def time(letter: str, stage: int) -> Fraction:
            if letter == "B":
                return time("I", stage) + time("W", stage)
            if letter in SHARD_KINDS or stage >= shape.stages:
                return self.time(letter)
            weighed = "F" if letter in "NR" else letter
            return self.time(letter) * shape.share_in(weighed, stage)

        return [[time(letter, stage) for stage in range(shape.homes)] for letter in LETTERS]

    def amounts(self, schedule: Schedule, size: str) -> Scaled:
        if schedule.shape.kind_share:
            weights = [schedule.shape.share_in(size, s) for s in range(schedule.shape.stages)]
            weights += [Fraction(1)] * schedule.shape.shards
            by_stage = [self.size(size) * weight for weight in weights]
            return spread_by_stage(schedule, [by_stage] * len(LETTERS))
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

    def loan(self, op: Op, shape: Shape) -> Fraction:
        """The time for a forward; a backward takes as many times more as its kind does."""
        forward = self.time("F")
        return self.lent_slice * (self.time(op.kind) / forward if forward else 1)

    def exchange(self, loan: Loan, shape: Shape) -> Exchange:
        """As if a stage were one layer, with queries, keys and values as large as its input."""
        heavy = loan.heavy
        held = shape.boundary_bytes[max(heavy.stage - 1, 0)] if shape.boundary_bytes else 0
        queries = held * shape.share_of_slice(heavy.mb, heavy.slice)
        return exchange_of(heavy.kind, queries, 2 * loan.slices * queries, lse=Fraction(0))


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
