"""What ops of a model take on this machine, from a few steps: numbers that plans and predictions
need.

An op takes a part for itself, one for its tokens and one for its query-key pairs:

    seconds = start + (token x tokens + pair x pairs) / ranks of its group

Steps with sequences of several lengths, on groups of each size, tell the three apart by least
squares of relative errors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.core.ops import Op
from penstock.estimate.policies.arranged import (
    ArrangedStep,
    GroupDocuments,
    SliceDocuments,
    doubled_pairs,
    tokens_of,
)
from penstock.estimate.policies.op_seconds import OpSeconds
from penstock.plan.balance import TokenCost
from penstock.plan.sequence_groups.cost import ExchangeCost, GroupCost, powers_of_two
from penstock.plan.sequence_groups.order import ScheduleOfSize

SAME_AS = {"N": "F", "R": "F"}
"""Kinds that take as long as another one."""
NANO = 10**9
PARTS_OF_LONGEST = (1, 2, 4, 8, 16, 32, 64)
"""Lengths of the sequences that are measured: the longest over these."""


class OpCost(NamedTuple):
    """Seconds of an op of a kind on a device, in a group of some size."""

    start: float
    token: float
    pair: float

    def seconds(self, documents: SliceDocuments, degree: int) -> float:
        tokens, pairs = tokens_of(documents), doubled_pairs(documents) / 2
        return self.start + (self.token * tokens + self.pair * pairs) / degree


OpCosts = Mapping[tuple[str, int, int], OpCost]
"""By kind, stage and ranks of the group."""


def measured_steps(order: ScheduleOfSize, longest: int, sequence: int) -> list[ArrangedStep]:
    """A step for each size of groups, all ranks of a device at work: whole sequences of several
    lengths, and many short ones together."""
    found = []
    for degree in powers_of_two(sequence):
        room = longest * degree // sequence
        lengths = [max(room // part, 1) for part in PARTS_OF_LONGEST]
        shapes: list[SliceDocuments] = [((0, length),) for length in lengths]
        shapes += [((0, lengths[-1]),) * 16, ((0, lengths[-2]),) * 16]
        groups = tuple((GroupDocuments(degree, each),) * (sequence // degree) for each in shapes)
        slices = tuple((each * (sequence // degree),) for each in shapes)
        found.append(ArrangedStep(order(len(shapes)), slices, groups))
    return found


def fitted_costs(steps: Sequence[ArrangedStep], seconds: Sequence[Sequence[OpSeconds]]) -> OpCosts:
    """OpCosts from what the ranks of all devices measured in each step; `seconds` has steps of each
    rank."""
    found = {}
    for number, step in enumerate(steps):
        samples: dict[tuple[str, int], list[tuple[tuple[float, ...], float]]] = {}
        for measured in seconds:
            for op, took in measured[number].items():
                if op.kind in "FBIW" and took > 0:
                    group = step.groups[op.mb][0]
                    row = (1.0, *(each / group.degree for each in _size(group.documents)))
                    samples.setdefault((op.kind, op.stage), []).append((row, took))
        degree = step.groups[0][0].degree
        for (kind, stage), rows in samples.items():
            found[kind, stage, degree] = OpCost(*_fit(*zip(*rows)))
    return found


def _size(documents: SliceDocuments) -> tuple[float, float]:
    return float(tokens_of(documents)), doubled_pairs(documents) / 2


def _fit(columns: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    """Least squares of relative errors, without negative parts."""
    table, wanted = np.array(columns), np.array(seconds)
    kept = [*range(table.shape[1])]
    while True:
        found = np.linalg.lstsq(table[:, kept] / wanted[:, None], np.ones(len(wanted)), rcond=None)
        parts = dict(zip(kept, found[0].tolist()))
        if len(kept) == 1 or min(parts.values()) >= 0:
            return [parts.get(at, 0.0) for at in range(table.shape[1])]
        kept.remove(min(parts, key=parts.__getitem__))


@dataclass(frozen=True)
class FittedTimes:
    """Times of steps by such costs."""

    costs: OpCosts
    sequence: int

    def of(self, step: ArrangedStep) -> OpSeconds:
        """Seconds of each op on the slowest rank of its device."""
        return {op: self._seconds(step, op) for op in step.schedule.table.ops()}

    def _seconds(self, step: ArrangedStep, op: Op) -> float:
        whole = (GroupDocuments(self.sequence, step.slices[op.mb][op.slice]),)
        groups = step.groups[op.mb] if step.groups else whole
        kind = SAME_AS.get(op.kind, op.kind)
        return max(
            self.costs[kind, op.stage, group.degree].seconds(group.documents, group.degree)
            for group in groups
        )

    def tokens(self) -> TokenCost:
        """What tokens of a slice cost, in billionths of a second of the slowest device."""
        start, token, pair = self._device(self.sequence)
        each = self.sequence
        return TokenCost(
            max(round(NANO * token / each), 1),
            round(NANO * pair / each),
            round(NANO * start),
        )

    def groups(self, capacity: int) -> GroupCost:
        """What groups cost on the slowest device."""
        start, token, pair = self._device(1)
        exchange = {}
        for degree in powers_of_two(self.sequence):
            own = self._device(degree)
            exchange[degree] = ExchangeCost(max(own.token - token, 0), max(own.start - start, 0))
        return GroupCost(pair / 2, token, start, exchange, capacity)

    def _device(self, degree: int) -> OpCost:
        """Forward and backward together, of the stage that takes most of a long sequence."""
        stages: dict[int, list[OpCost]] = {}
        for (_, stage, size), cost in self.costs.items():
            if size == degree:
                stages.setdefault(stage, []).append(cost)
        sums = [OpCost(*map(sum, zip(*each))) for each in stages.values()]
        return max(sums, key=lambda cost: (cost.token, cost.pair))
