"""Batches of documents of unequal lengths, each with slices and an order of its own."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.core.kernel import compile_small_work
from penstock.data import Microbatch, SampleStream
from penstock.draw.words import count_of
from penstock.plan.balance import TokenCost, deal_to_replicas
from penstock.plan.ragged_batch import OrderedBatch, RaggedBatches, SliceRule
from penstock.plan.slice_choice import ChosenRule, choose_rule
from penstock.run.comm.collective import tell_all
from penstock.run.policies.memory_room import MemoryRoom, room_of
from penstock.run.policies.one_ahead import MakingTimes, OneAhead
from penstock.run.policies.ragged_step import PlannedBatch, plan_batch, sequences_of
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.engine import Engine

SIMULATED_BATCHES = 4
"""Batches of the data from which a rule is chosen."""
RULE = "slice_rule"
"""Where a checkpoint has the rule of its run."""


class SlicedBatches:
    """The documents of a batch packed and cut into slices, with a plan of their own."""

    def __init__(
        self, engine: Engine, base: RaggedBatches, given: SliceRule, samples: int, memory: int
    ) -> None:
        """`samples` make a global batch; `given` is what the settings say of the rule, 0 where they
        leave it open; ranks may take so many bytes of `memory`, or with 0 what is free."""
        self._engine, self.ragged, self._given = engine, base, given
        self._samples, self._memory = samples, memory
        self._stored: SliceRule | None = None
        self._trained: SampleStream | None = None
        self._ahead = OneAhead(self._planned_next)

    @property
    def times(self) -> MakingTimes:
        return self._ahead.times

    def take(self, samples: SampleStream, start: int) -> tuple[Microbatch, ...]:
        if samples is self._trained:
            planned = self._ahead.take(start, samples.numbers(start, self._samples).stop)
        else:  # an evaluation
            planned = self._planned(samples, start)
        self._engine.use(planned.plan)
        return planned.batch

    def _planned_next(self, start: int) -> PlannedBatch:
        assert self._trained is not None, "batches are taken before they have begun"
        return self._planned(self._trained, start)

    def _planned(self, samples: SampleStream, start: int) -> PlannedBatch:
        """The plan of a batch, proven and lowered; many of them pay for the compiler together."""
        engine, mesh = self._engine, self._engine.mesh
        sequences = sequences_of(self._rows(samples, start))
        share = (mesh.replica, mesh.replicas)
        with compile_small_work():
            planned = plan_batch(self.ragged, engine.layout, sequences, *share)
            engine.programs.of(planned.plan)
        return planned

    def begin(self, samples: SampleStream) -> list[str]:
        self._trained = samples
        rule, origin = self._given, "as set"
        if not all(rule):
            rule, origin = self._chosen(samples)
        self.ragged = replace(self.ragged, rule=rule)
        return [rule_words(rule, origin)]

    def _chosen(self, samples: SampleStream) -> tuple[SliceRule, str]:
        """A rule for what the settings leave open; the first rank chooses, and all hear of it."""
        if self._stored is not None:
            pairs = zip(self._given, self._stored)
            return SliceRule(*(own or stored for own, stored in pairs)), "as the run began"
        room, text = room_of(self._engine, self._memory), ""
        if self._engine.mesh.rank == 0:
            rule, why = self._choice(samples, room)
            text = json.dumps([list(rule), why])
        with self._engine.tracker.gathers("hear how sequences are cut"):
            numbers, why = json.loads(tell_all(text, self._engine.mesh.world))
        return SliceRule(*numbers), why

    def _choice(self, samples: SampleStream, room: MemoryRoom) -> tuple[SliceRule, str]:
        def fits(batch: OrderedBatch) -> bool:
            layout = self._engine.layout
            return room.fits(StepPlan(layout, batch.schedule, batch.packing.tokens))

        replicas, cost = self._engine.mesh.replicas, self.ragged.cost
        batches = [
            busiest_replica(lengths, replicas, cost)
            for lengths in first_lengths(samples, self._samples)
        ]
        with compile_small_work():
            found = choose_rule(self.ragged, batches, fits, **self._given._asdict())
        return found.rule, choice_words(found)

    def _rows(self, samples: SampleStream, start: int) -> Iterator[Microbatch]:
        return map(samples.sample, samples.numbers(start, self._samples))

    def state(self) -> dict[str, Any]:
        return {RULE: list(self.ragged.rule)}

    def resume(self, state: Mapping[str, Any]) -> None:
        if found := state.get(RULE):
            self._stored = SliceRule(*map(int, found))

    def close(self) -> None:
        self._ahead.close()


def first_lengths(samples: SampleStream, places: int) -> list[list[int]]:
    """Lengths of the sequences of the first batches of a run; `places` are those of a batch."""
    found, start = [], 0
    for _ in range(SIMULATED_BATCHES):
        numbers = samples.numbers(start, places)
        found.append([len(each.tokens) for each in sequences_of(map(samples.sample, numbers))])
        start = numbers.stop
    return found


def busiest_replica(lengths: Sequence[int], replicas: int, cost: TokenCost) -> list[int]:
    """Lengths of a batch on the replica that has most to do."""
    dealt = deal_to_replicas(lengths, replicas, cost)
    most = max(dealt, key=lambda own: sum(cost.of(0, lengths[number]) for number in own))
    return [lengths[number] for number in most] or [1]


def choice_words(found: ChosenRule) -> str:
    """Why a rule was chosen.

    >>> from fractions import Fraction
    >>> choice_words(ChosenRule(SliceRule(64), Fraction(90), Fraction(100), 12, 9))
    'the fastest by simulation of 12 ways, 9 of which have room; whole sequences would take 11% \
longer'
    """
    why = f"the fastest by simulation of {found.tried} ways, {found.fitting} of which have room"
    if found.whole is None or found.whole == found.time:
        return why
    more = float(found.whole / found.time - 1)
    return f"{why}; whole sequences would take {more:.0%} longer"


def rule_words(rule: SliceRule, origin: str) -> str:
    """What a person is told.

    >>> rule_words(SliceRule(512, 1, 4), "as set")
    'documents in slices of up to 512 tokens, of a long one the last slice is kept and others run \
forward twice, warm-up for 4 slices: as set'
    """
    kept = "last slice is" if rule.retain == 1 else f"last {rule.retain} slices are"
    return (
        f"documents in slices of up to {rule.size:,} tokens, of a long one the {kept} kept and "
        f"others run forward twice, warm-up for {count_of(rule.warmup, 'slice')}: {origin}"
    )
