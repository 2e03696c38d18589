"""Batches whose documents are worked on by groups of ranks, as `data.policy = "flex"` says.

The samples of a step are those of any other policy. They are dealt to replicas by their cost. The
first rank of each replica has a process that plans the groups of the next step while this one runs
(plan/sequence_groups/planning_process.py), and tells the others of the replica.
"""

import json
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

from penstock.data import Microbatch, SampleStream
from penstock.plan.balance import TokenCost
from penstock.plan.sequence_groups.batch import GroupedBatch
from penstock.plan.sequence_groups.groups import GroupedMicrobatch, SequenceGroup
from penstock.plan.sequence_groups.planner import GroupPlanner
from penstock.plan.sequence_groups.planning_process import PlanningProcess
from penstock.run.comm.collective import largest, tell_all
from penstock.run.policies.grouped_step import GroupedSteps
from penstock.run.policies.one_ahead import MakingTimes
from penstock.run.policies.ragged_step import LabelledSequence, own_share, sequences_of
from penstock.run.step.engine import Engine


class GroupedBatches:
    """The documents of a batch on groups of ranks, other groups in every microbatch."""

    def __init__(
        self, engine: Engine, steps: GroupedSteps, planner: GroupPlanner, samples: int
    ) -> None:
        """`samples` make a global batch."""
        self._engine, self._steps, self.planner, self._samples = engine, steps, planner, samples
        self._replica = engine.mesh.whole_replica
        first = self._replica is None or self._replica.rank() == 0
        self._process = PlanningProcess(planner) if first else None
        self._dealing = TokenCost.of_model(engine.layout.model)
        self._trained: SampleStream | None = None
        self._ahead: tuple[int, list[LabelledSequence]] = -1, []
        """The batch that is being planned, by the number of its first sample."""
        self.times: MakingTimes | None = None

    def begin(self, samples: SampleStream) -> list[str]:
        self._trained = samples
        cost, name = self.planner.cost, self.planner.grouping
        sizes = ", ".join(map(str, sorted(cost.exchange)))
        return [
            f"documents on groups of {sizes} ranks ({name}), up to {cost.capacity:,} tokens of a "
            "microbatch on each rank, planned for every batch"
        ]

    def take(self, samples: SampleStream, start: int) -> tuple[Microbatch, ...]:
        trained, engine, text = samples is self._trained, self._engine, ""
        ahead = self._ahead[1] if trained and self._ahead[0] == start else []
        sequences = ahead or self._sequences(samples, start)
        lengths = [len(each.tokens) for each in sequences]
        if self._process is not None:
            text = self._planned(self._process, lengths) if trained else self._now(lengths)
        with engine.tracker.gathers("hear the groups of the step"):
            grouped = grouped_from(tell_all(text, self._replica))
            most = largest(len(grouped.microbatches), engine.mesh.along("replica"))
        planned = self._steps.step(sequences, grouped, most)
        engine.use(planned.plan)
        if trained and self._process is not None:
            following = samples.numbers(start, self._samples).stop
            self._look_ahead(self._process, samples, following)
        return planned.batch

    def state(self) -> dict[str, Any]:
        return {}

    def resume(self, state: Mapping[str, Any]) -> None:
        return None

    def close(self) -> None:
        if self._process is not None:
            self._process.close()

    def _planned(self, process: PlanningProcess, lengths: Sequence[int]) -> str:
        began = perf_counter()
        found = process.plan(lengths)
        self.times = MakingTimes(found.seconds, perf_counter() - began)
        return grouped_text(found.batch)

    def _now(self, lengths: Sequence[int]) -> str:
        """The plan of an evaluation's batch, which nobody has asked for."""
        return grouped_text(self.planner.plan(lengths).batch)

    def _sequences(self, samples: SampleStream, start: int) -> list[LabelledSequence]:
        """The documents of this replica's part of a batch."""
        rows = map(samples.sample, samples.numbers(start, self._samples))
        mesh = self._engine.mesh
        return own_share(sequences_of(rows), mesh.replica, mesh.replicas, self._dealing)

    def _look_ahead(self, process: PlanningProcess, samples: SampleStream, start: int) -> None:
        """Read the next batch, and begin to plan it."""
        self._ahead = start, self._sequences(samples, start)
        process.ask([len(each.tokens) for each in self._ahead[1]])


def grouped_text(batch: GroupedBatch) -> str:
    """A plan as one rank tells it to the others."""
    return json.dumps(
        [
            [[[group.degree, *group.members] for group in microbatch.groups], microbatch.seconds]
            for microbatch in batch.microbatches
        ]
    )


def grouped_from(text: str) -> GroupedBatch:
    """The plan that was told.

    >>> one = GroupedBatch((GroupedMicrobatch((SequenceGroup(2, (0, 3)),), 1.5),))
    >>> grouped_from(grouped_text(one)) == one
    True
    """
    return GroupedBatch(
        tuple(
            GroupedMicrobatch(
                tuple(SequenceGroup(degree, tuple(members)) for degree, *members in groups), seconds
            )
            for groups, seconds in json.loads(text)
        )
    )
