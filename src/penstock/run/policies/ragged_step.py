"""A batch of sequences of unequal lengths as this replica's microbatches, with their plan.

Which sequences make up a batch is not decided here: the same ones are trained on, only grouped in
another way (plan/ragged_batch.py). They are dealt to replicas by their cost, so every replica has
its own plan; all ranks of a replica arrive at the same one, because all know all lengths.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.data.batch import IGNORE, Microbatch
from penstock.plan.balance import TokenCost, deal_to_replicas
from penstock.plan.packing import Packing
from penstock.plan.ragged_batch import RaggedBatches
from penstock.run.program.layout import Layout
from penstock.run.program.step_plan import StepPlan


class LabelledSequence(NamedTuple):
    """One document, or the part of it that a sample holds."""

    tokens: Tensor
    labels: Tensor


class PlannedBatch(NamedTuple):
    """A step of one replica."""

    plan: StepPlan
    batch: tuple[Microbatch, ...]


ONE_IGNORED_TOKEN = LabelledSequence(torch.zeros(1, dtype=torch.int64), torch.full((1,), IGNORE))
"""For a replica that no sequence is left for: a token whose label does not count."""


def sequences_of(samples: Iterable[Microbatch]) -> list[LabelledSequence]:
    """The documents of some samples, each on its own, in their order.

    No token attends to a later one, so what stands behind the last label of a document that counts
    changes neither loss nor gradients: padding, for example. It is left out.
    """
    whole = (
        LabelledSequence(sample.tokens[row, start:stop], sample.labels[row, start:stop])
        for sample in samples
        for row, starts in enumerate(sample.documents)
        for start, stop in zip(starts, (*starts[1:], sample.length))
    )
    return [kept for each in whole if len((kept := _up_to_last_label(each)).tokens)]


def _up_to_last_label(sequence: LabelledSequence) -> LabelledSequence:
    counted = torch.nonzero(sequence.labels != IGNORE)
    end = int(counted[-1]) + 1 if len(counted) else 0
    return LabelledSequence(sequence.tokens[:end], sequence.labels[:end])


def own_share(
    sequences: Sequence[LabelledSequence], replica: int, replicas: int, cost: TokenCost
) -> list[LabelledSequence]:
    """What a replica has of a global batch: sequences are dealt out by their cost, and who would
    have none gets a token that does not count."""
    lengths = [len(each.tokens) for each in sequences]
    dealt = deal_to_replicas(lengths, replicas, cost)[replica]
    return [sequences[number] for number in dealt] or [ONE_IGNORED_TOKEN]


def plan_batch(
    ragged: RaggedBatches,
    layout: Layout,
    sequences: Sequence[LabelledSequence],
    replica: int,
    replicas: int,
) -> PlannedBatch:
    """The step of a replica on a global batch of these sequences."""
    own = own_share(sequences, replica, replicas, ragged.cost)
    ordered = ragged.order([len(each.tokens) for each in own])
    plan = StepPlan(layout, ordered.schedule, ordered.packing.tokens)
    return PlannedBatch(plan, packed_microbatches(ordered.packing, own))


def packed_microbatches(
    packing: Packing, sequences: Sequence[LabelledSequence]
) -> tuple[Microbatch, ...]:
    """The microbatches that a packing says, each of one row."""
    found = []
    for slices in packing.microbatches:
        members = list(dict.fromkeys(piece.sequence for slice in slices for piece in slice))
        found.append(join_sequences([sequences[number] for number in members]))
    return tuple(found)


def join_sequences(sequences: Sequence[LabelledSequence]) -> Microbatch:
    """A microbatch of one row, each sequence a document of its own."""
    starts = [0]
    for each in sequences[:-1]:
        starts.append(starts[-1] + len(each.tokens))
    tokens, labels = (torch.cat(words) for words in zip(*sequences))
    return Microbatch(tokens[None], labels[None], (tuple(starts),))
