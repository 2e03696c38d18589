"""Costs taken from a run: how long ops of a kind, on a stage, for a slice, took on average.

A model of a machine says what should be; a profile says what is. Ops that differ only in their
microbatch do the same work, so their mean is the cost, and a simulation with it says how long the
step takes if nothing but the schedule makes devices wait.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Self

import numpy as np

from penstock.core.ops import Op
from penstock.core.schedule import Loan, Schedule
from penstock.core.shape import Shape
from penstock.cost.exchange import Exchange
from penstock.cost.model import Cost, Link
from penstock.cost.shares import Scaled
from penstock.errors import ShapeError

NANOSECOND = Fraction(1, 10**9)
Key = tuple[str, int, int]
"""Kind, stage and slice."""


@dataclass(frozen=True)
class Profile:
    """Mean seconds by kind, stage and slice; sizes of another cost model."""

    seconds: dict[Key, float]
    sizes: Cost
    hop: Fraction = Fraction(0)
    """Seconds that a transfer takes."""
    links: Mapping[tuple[int, int], Fraction] = field(default_factory=dict)
    """Seconds of a transfer from one device to another, where they differ from the others."""

    @classmethod
    def of(
        cls, schedule: Schedule, seconds: Sequence[float], sizes: Cost, hop: Fraction = Fraction(0)
    ) -> Self:
        """The profile of a run: seconds of each row of the schedule's table."""
        found: dict[Key, list[float]] = {}
        for op, time in zip(schedule.table.ops(), seconds, strict=True):
            found.setdefault(_key(op), []).append(time)
        return cls({key: sum(times) / len(times) for key, times in found.items()}, sizes, hop)

    @property
    def communication(self) -> Fraction:
        return Fraction(0)

    @property
    def sized(self) -> tuple[str, ...]:
        return self.sizes.sized

    def durations(self, schedule: Schedule) -> Scaled:
        ops = schedule.table.ops()
        unknown = next((op for op in ops if _key(op) not in self.seconds), None)
        if unknown is not None:
            raise ShapeError(
                f"the profile knows no op like {unknown}",
                hint="profile a run of the same kinds, stages and slices",
            )
        times = np.array([self.seconds[_key(op)] for op in ops])
        return Scaled(np.rint(times / float(NANOSECOND)).astype(np.int64), NANOSECOND)

    def amounts(self, schedule: Schedule, size: str) -> Scaled:
        return self.sizes.amounts(schedule, size)

    def link(self, source: int, target: int) -> Link:
        return Link(self.links.get((source, target), self.hop))

    def loan(self, op: Op, shape: Shape) -> Fraction:
        return Fraction(0)

    def exchange(self, loan: Loan, shape: Shape) -> Exchange:
        return self.sizes.exchange(loan, shape)


def _key(op: Op) -> Key:
    return op.kind, op.stage, op.slice
