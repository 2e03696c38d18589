"""Seconds and bytes of every op of a transformer on some hardware.

What an op does is counted exactly (cost/workload.py); dividing it by the rates of a device gives
its time. Times are rounded once, to whole picoseconds, so that everything after it is exact again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from penstock.arch.config import ModelConfig
from penstock.core.homes import stage_column
from penstock.core.ops import Op
from penstock.core.schedule import Loan, Schedule
from penstock.core.shape import Shape
from penstock.cost.exchange import Exchange
from penstock.cost.hardware import Hardware
from penstock.cost.layer_exchange import layer_exchange
from penstock.cost.model import SIZES, Link
from penstock.cost.shares import Scaled
from penstock.cost.stage_workload import workload_for
from penstock.cost.workload import Workload
from penstock.errors import ShapeError, nearest

PICOSECOND = Fraction(1, 10**12)
MOST_TICKS = 2**53
"""Bound on the time of all ops together; ten bits stay free for finer links."""


@dataclass(frozen=True)
class TransformerCost:
    """The cost model of a workload: times in seconds, sizes in bytes."""

    workload: Workload
    hardware: Hardware
    communication: Fraction = Fraction(0)

    @classmethod
    def of(
        cls, shape: Shape, model: ModelConfig, hardware: Hardware, lengths: Sequence[int]
    ) -> "TransformerCost":
        """Every microbatch with the same slices, the layers spread evenly over the stages."""
        return cls(workload_for(shape, model, (lengths,) * shape.microbatches), hardware)

    @property
    def sized(self) -> tuple[str, ...]:
        return SIZES

    def durations(self, schedule: Schedule) -> Scaled:
        """Work over rate, in picoseconds, or coarser where the step is very long."""
        seconds = self._seconds(schedule)
        _shorten_copies(schedule, seconds)
        tick, total = PICOSECOND, float(seconds.sum())
        while total / float(tick) >= MOST_TICKS:
            tick *= 10
        return Scaled(np.rint(seconds / float(tick)).astype(np.int64), tick)

    def _seconds(self, schedule: Schedule) -> NDArray[np.float64]:
        """Time of each row: one look-up per token, one per pair."""
        self.workload.refuse_other(schedule.shape)
        work, rate = self.workload.rates(schedule.shape), self.hardware
        kind, stage = schedule.table.kind, stage_column(schedule)
        per_token = work.linear / rate.linear + work.lookup / rate.memory + work.copy / rate.host
        per_half_pair = (
            work.attention / rate.attention + work.attention_backward / rate.attention_backward
        )
        seconds = per_token[kind, stage] * self.workload.tokens[schedule.unit]
        seconds += per_half_pair[kind, stage] * self.workload.attended_half_pairs(schedule)
        return np.asarray(seconds, np.float64)

    def amounts(self, schedule: Schedule, size: str) -> Scaled:
        """Bytes of a buffer of each row."""
        if size not in SIZES:
            raise ShapeError(f"there is no size called {size!r}", hint=nearest(size, SIZES))
        return Scaled(self.workload.bytes(schedule, size), Fraction(1))

    def link(self, source: int, target: int) -> Link:
        """The same link everywhere: latency, and the inverse of the bandwidth."""
        return Link(self.hardware.latency, Fraction(1, self.hardware.link))

    def loan(self, op: Op, shape: Shape) -> Fraction:
        """Time of the pairs of `op` with one earlier slice of average length."""
        lengths, model = self.workload.lengths[op.mb], self.workload.attended
        pairs = Fraction(lengths[op.slice] * sum(lengths[: op.slice]), max(op.slice, 1))
        # layers with a window lend nothing
        full = int(self.workload.unbounded[op.stage])
        flops = pairs * full * model.attending_kind.pair_flops
        if op.kind in "FNR":
            seconds = flops / self.hardware.attention
        else:
            seconds = 2 * flops / self.hardware.attention_backward
        return round(seconds / PICOSECOND) * PICOSECOND

    def exchange(self, loan: Loan, shape: Shape) -> Exchange:
        """Bytes of all layers of the stage, for earlier slices of average length."""
        heavy, model = loan.heavy, self.workload.attended
        lengths = self.workload.lengths[heavy.mb]
        lent = Fraction(loan.slices * sum(lengths[: heavy.slice]), max(heavy.slice, 1))
        each = layer_exchange(model, heavy.kind, lengths[heavy.slice], lent)
        layers = int(self.workload.unbounded[heavy.stage])
        return Exchange(layers * each.there, layers * each.back)


def _shorten_copies(schedule: Schedule, seconds: NDArray[np.float64]) -> None:
    """Charge an offload or a load for the share of the activation that it moves."""
    if schedule.shares:
        rows = schedule.table.rows_by_op
        for op, share in schedule.shares:
            seconds[rows.get(op, [])] *= float(share)
