"""Batches of documents of very unequal lengths as steps under each data policy, for the bench.

Ranks and the process that starts them plan alike: a plan follows from lengths and costs alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import Any

from penstock.cost.model import UnitCost
from penstock.estimate.policies.arranged import (
    ArrangedStep,
    grouped_step,
    packed_step,
    sliced_step,
)
from penstock.estimate.policies.op_seconds import OpSeconds
from penstock.estimate.policies.steps import whole_orders
from penstock.plan.balance import TokenCost
from penstock.plan.packing import Slice, pack
from penstock.plan.ragged_batch import RaggedBatches, SliceRule
from penstock.plan.sequence_groups.batch import GroupedBatch
from penstock.plan.sequence_groups.cost import GroupCost
from penstock.plan.sequence_groups.order import ScheduleOfSize, accepted_order, run_order
from penstock.plan.sequence_groups.planner import GroupPlanner
from penstock.schedules import Spec, find
from penstock.sim import simulate

DocumentLengths = Sequence[int]
MICRO = 10**6
"""Times are whole microseconds, so that a simulation is exact."""


@dataclass(frozen=True)
class PolicyCase:
    """What policies plan for."""

    schedule: str
    """One with an order for sequences of any lengths."""
    devices: int
    sequence: int
    """Ranks of a device that share tokens."""
    longest: int
    """Tokens of a sequence."""
    rule: SliceRule
    tokens: TokenCost
    groups: GroupCost

    def __getstate__(self) -> dict[str, Any]:
        """What travels to other processes: they look schedules up themselves."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def _spec(self) -> Spec:
        return find(self.schedule)

    @cached_property
    def ragged(self) -> RaggedBatches:
        return RaggedBatches(self._spec, self.devices, self.rule, self.longest, self.tokens)

    @cached_property
    def whole(self) -> ScheduleOfSize:
        return whole_orders(self._spec, self.devices)

    @cached_property
    def planner(self) -> GroupPlanner:
        return GroupPlanner(self.sequence, self.groups)

    def pack(self, lengths: DocumentLengths) -> ArrangedStep:
        """As few sequences of the longest length as are found, each with padding at its end."""
        packed = [[piece.stop for piece in slices[0]] for slices in self._packed(lengths)]
        left = [self.longest - sum(documents) for documents in packed]
        rows = [[[*each, more] if more else each] for each, more in zip(packed, left)]
        step = packed_step(self.whole(len(rows)), rows, ((self.longest,),) * len(rows))
        return step._replace(padded=tuple(more > 0 for more in left))

    def _packed(self, lengths: DocumentLengths) -> tuple[tuple[Slice, ...], ...]:
        return pack(lengths, self.longest).microbatches

    def chunk(self, lengths: DocumentLengths) -> ArrangedStep:
        return sliced_step(self.ragged.order(lengths))

    def flex(self, lengths: DocumentLengths) -> ArrangedStep:
        return self.grouped(lengths, self.planner.plan(lengths).batch)

    def grouped(self, lengths: DocumentLengths, batch: GroupedBatch) -> ArrangedStep:
        """A step of groups that were planned."""
        ordered = run_order(batch, self.devices)
        return grouped_step(accepted_order(self.whole, len(ordered)), lengths, ordered)

    @property
    def policies(self) -> dict[str, Callable[[DocumentLengths], ArrangedStep]]:
        return {"pack": self.pack, "chunk": self.chunk, "flex": self.flex}


def simulated_seconds(step: ArrangedStep, ranks: Sequence[OpSeconds]) -> float:
    """Of a step in which every op takes as long as on the slowest rank of its device."""
    times = {
        op: Fraction(round(MICRO * max(each[op] for each in ranks)), MICRO)
        for op in step.schedule.table.ops()
    }
    return float(simulate(step.schedule, UnitCost(op_times=times)).makespan)
