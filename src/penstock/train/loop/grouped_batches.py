"""Batches whose documents are worked on by groups of ranks, as `data.policy = "flex"` says.

The samples of a step are those of any other policy. The first rank has a process that plans the
groups of the next step while this one runs (plan/sequence_groups/planning_process.py), and tells
the others.
"""

import json
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

from penstock.data import Microbatch, SampleStream
from penstock.plan.sequence_groups.batch import GroupedBatch
from penstock.plan.sequence_groups.cost import GroupCost
from penstock.plan.sequence_groups.groups import GroupedMicrobatch, SequenceGroup
from penstock.plan.sequence_groups.planning_process import PlanningProcess, plan_timed
from penstock.run.comm.collective import tell_all
from penstock.run.policies.grouped_step import GroupedSteps
from penstock.run.policies.ragged_step import ONE_IGNORED_TOKEN, LabelledSequence, sequences_of
from penstock.run.step.engine import Engine
from penstock.train.loop.one_ahead import MakingTimes


class GroupedBatches:
    """The documents of a batch on groups of ranks, other groups in every microbatch."""

    def __init__(self, engine: Engine, steps: GroupedSteps, cost: GroupCost, samples: int) -> None:
        """`samples` make a batch."""
        self._engine, self._steps, self.cost, self._samples = engine, steps, cost, samples
        cell = engine.layout.cell.ulysses
        self._planner = PlanningProcess(cell, cost) if engine.mesh.rank == 0 else None
<<<<<<< HEAD
        self._trained: Samples | None = None
        self._ahead: tuple[int, list[LabelledSequence]] = -1, []
        """The batch that is being planned, by the number of its first sample."""
        self.times: MakingTimes | None = None

    def begin(self, samples: Samples) -> list[str]:
        self._trained = samples
=======
        self._ahead: tuple[SampleStream, int, list[LabelledSequence]] | None = None
        self.times: MakingTimes | None = None

    def begin(self, samples: SampleStream) -> list[str]:
>>>>>>> data
        sizes = ", ".join(map(str, sorted(self.cost.exchange)))
        return [
            f"documents on groups of {sizes} ranks, up to {self.cost.capacity} tokens of a "
            "microbatch on each rank, planned for every batch"
        ]

<<<<<<< HEAD
    def take(self, samples: Samples, start: int) -> tuple[Microbatch, ...]:
        trained, engine, text = samples is self._trained, self._engine, ""
        ahead = self._ahead[1] if trained and self._ahead[0] == start else []
        sequences = ahead or self._sequences(samples, start)
        lengths = [len(each.tokens) for each in sequences]
=======
    def take(self, samples: SampleStream, start: int) -> tuple[Microbatch, ...]:
        sequences = self._sequences(samples, start)
        engine, text = self._engine, ""
>>>>>>> data
        if self._planner is not None:
            text = self._planned(self._planner, lengths) if trained else self._now(lengths)
        with engine.tracker.gathers("hear the groups of the step"):
            grouped = grouped_from(tell_all(text, engine.mesh.world))
        planned = self._steps.step(sequences, grouped)
        engine.use(planned.plan)
<<<<<<< HEAD
        if trained and self._planner is not None:
            self._look_ahead(self._planner, samples, start + self._samples)
=======
        self._look_ahead(samples, samples.numbers(start, self._samples).stop)
>>>>>>> data
        return planned.batch

    def state(self) -> dict[str, Any]:
        return {}

    def resume(self, state: Mapping[str, Any]) -> None:
        return None

    def close(self) -> None:
        if self._planner is not None:
            self._planner.close()

    def _planned(self, planner: PlanningProcess, lengths: Sequence[int]) -> str:
        began = perf_counter()
        found = planner.plan(lengths)
        self.times = MakingTimes(found.seconds, perf_counter() - began)
        return grouped_text(found.batch)

<<<<<<< HEAD
    def _now(self, lengths: Sequence[int]) -> str:
        """The plan of an evaluation's batch, which nobody has asked for."""
        return grouped_text(plan_timed(lengths, self._engine.layout.cell.ulysses, self.cost).batch)

    def _sequences(self, samples: Samples, start: int) -> list[LabelledSequence]:
        """The documents of a batch; where none has a label that counts, a token without one."""
        rows = (samples.sample(start + number) for number in range(self._samples))
        return sequences_of(rows) or [ONE_IGNORED_TOKEN]

    def _look_ahead(self, planner: PlanningProcess, samples: Samples, start: int) -> None:
        """Read the next batch, and begin to plan it."""
        self._ahead = start, self._sequences(samples, start)
        planner.ask([len(each.tokens) for each in self._ahead[1]])
=======
    def _sequences(self, samples: SampleStream, start: int) -> list[LabelledSequence]:
        if self._ahead is not None and self._ahead[0] is samples and self._ahead[1] == start:
            return self._ahead[2]
        return sequences_of(map(samples.sample, samples.numbers(start, self._samples)))

    def _look_ahead(self, samples: SampleStream, start: int) -> None:
        """Read the next batch on the rank that plans, and begin to plan it."""
        if self._planner is not None:
            self._ahead = samples, start, self._sequences(samples, start)
            self._planner.ask([len(each.tokens) for each in self._ahead[2]])
>>>>>>> data


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
