"""A batch of sequences of unequal lengths, as microbatches that groups of ranks share.

Which sequences make up a batch is not decided here. A plan (plan/sequence_groups/batch.py) says
which of them a group works on; a microbatch has the sequences of its groups one behind the other,
and the step plan says where each group begins. All devices of a pipeline have the same groups.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.core.schedule import Schedule
from penstock.errors import ShapeError
from penstock.plan.sequence_groups.batch import GroupedBatch
from penstock.plan.sequence_groups.groups import GroupedMicrobatch, SequenceGroup
from penstock.plan.sequence_groups.order import rising_and_falling
from penstock.run.policies.ragged_step import (
    ONE_IGNORED_TOKEN,
    LabelledSequence,
    PlannedBatch,
    join_sequences,
)
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan
from penstock.run.program.token_groups import MicrobatchGroups, TokenGroup

MOST_ADDED = 64
"""Microbatches that are added at most where a schedule does not take every number of them."""

ScheduleOfSize = Callable[[int], Schedule]
"""The order for so many microbatches."""


@dataclass(frozen=True)
class GroupedSteps:
    """What turns plans of groups into steps of a run."""

    layout: Layout
    schedule: ScheduleOfSize

    def step(self, sequences: Sequence[LabelledSequence], grouped: GroupedBatch) -> PlannedBatch:
        """The step plan, and the microbatches that it takes."""
        ordered = self._ordered(grouped)
        schedule = self._schedule(len(ordered))
        more = schedule.shape.microbatches - len(ordered)
        empty = GroupedMicrobatch((SequenceGroup(1, (len(sequences),)),), 0.0)
        ordered += [empty] * more
        known = [*sequences, ONE_IGNORED_TOKEN]
        batch = tuple(
            join_sequences([known[number] for group in mb.groups for number in group.members])
            for mb in ordered
        )
        groups = tuple(_token_groups(mb, known) for mb in ordered)
        lengths = tuple((microbatch.length,) for microbatch in batch)
        return PlannedBatch(StepPlan(self.layout, schedule, lengths, 1, groups), batch)

    def _ordered(self, grouped: GroupedBatch) -> list[GroupedMicrobatch]:
        """Microbatches as they are run: in a pipeline the short ones at both ends."""
        if self.layout.devices == 1:
            return list(grouped.microbatches)
        times = [microbatch.seconds for microbatch in grouped.microbatches]
        return [grouped.microbatches[number] for number in rising_and_falling(times)]

    def _schedule(self, microbatches: int) -> Schedule:
        """The order for so many microbatches, or for the next number that it takes."""
        for count in range(microbatches, microbatches + MOST_ADDED):
            try:
                return self.schedule(count)
            except ShapeError:
                continue
        return self.schedule(microbatches)


def _token_groups(
    microbatch: GroupedMicrobatch, sequences: Sequence[LabelledSequence]
) -> MicrobatchGroups:
    return tuple(
        TokenGroup(group.degree, sum(len(sequences[number].tokens) for number in group.members))
        for group in microbatch.groups
    )
