"""A batch of sequences of unequal lengths, as microbatches that groups of ranks share.

Which sequences make up a batch is not decided here. A plan (plan/sequence_groups/batch.py) says
which of them a group works on; a microbatch has the sequences of its groups one behind the other,
and the step plan says where each group begins. All devices of a pipeline have the same groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.plan.sequence_groups.batch import GroupedBatch
from penstock.plan.sequence_groups.groups import GroupedMicrobatch, SequenceGroup
from penstock.plan.sequence_groups.order import ScheduleOfSize, accepted_order, run_order
from penstock.run.policies.ragged_step import (
    ONE_IGNORED_TOKEN,
    LabelledSequence,
    PlannedBatch,
    join_sequences,
)
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan
from penstock.run.program.token_groups import MicrobatchGroups, TokenGroup, sliced_groups


@dataclass(frozen=True)
class GroupedSteps:
    """What turns plans of groups into steps of a run."""

    layout: Layout
    schedule: ScheduleOfSize

    def step(
        self, sequences: Sequence[LabelledSequence], grouped: GroupedBatch, least: int = 0
    ) -> PlannedBatch:
        """The step plan, and the microbatches that it takes; with at least so many, as replicas
        meet in one order where they have equally many. Those that are added have no label that
        counts."""
        ordered = run_order(grouped, self.layout.devices)
        schedule = accepted_order(self.schedule, max(len(ordered), least))
        shape = schedule.shape
        empty = GroupedMicrobatch((SequenceGroup(1, (len(sequences),)),), 0.0)
        ordered += [empty] * (shape.microbatches - len(ordered))
        known = [*sequences, ONE_IGNORED_TOKEN]
        batch = tuple(
            join_sequences([known[number] for group in mb.groups for number in group.members])
            for mb in ordered
        )
        groups = tuple(_token_groups(mb, known) for mb in ordered)
        lengths = tuple(map(sliced_groups, groups, shape.slices))
        return PlannedBatch(StepPlan(self.layout, schedule, lengths, 1, groups), batch)


def _token_groups(
    microbatch: GroupedMicrobatch, sequences: Sequence[LabelledSequence]
) -> MicrobatchGroups:
    return tuple(
        TokenGroup(group.degree, sum(len(sequences[number].tokens) for number in group.members))
        for group in microbatch.groups
    )
