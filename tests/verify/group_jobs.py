"""Random batches on groups of ranks of unequal sizes, and what a rank does with them."""

import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import torch

from penstock.arch.cell_shape import CellShape
from penstock.core.schedule import Schedule
from penstock.plan.sequence_groups.batch import GroupedBatch, flexible_groups
from penstock.plan.sequence_groups.cost import ExchangeCost, GroupCost, powers_of_two
from penstock.plan.sequence_groups.groups import GroupedMicrobatch, SequenceGroup
from penstock.run.comm.group_pool import GROUP_POOL
from penstock.run.comm.mesh import make_mesh
from penstock.run.policies.grouped_step import GroupedSteps
from penstock.run.policies.ragged_step import LabelledSequence, PlannedBatch
from penstock.run.process.rendezvous import Connection
from penstock.run.program.layout import Layout
from penstock.run.step.build import engine_on
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import NoUpdate
from penstock.run.step.state import entries, publish
from penstock.schedules import build
from penstock.verify.compare import HeldGradient
from penstock.verify.material import parameters_of
from penstock.verify.trial import TrialPart
from verify.unequal_jobs import MODEL, UnequalBatch, random_batch

LONGEST = 400
"""Tokens of all sequences of a microbatch."""


@dataclass(frozen=True)
class GroupCase:
    """Several batches with their groups on one mesh."""

    batches: tuple[tuple[UnequalBatch, GroupedBatch], ...]
    schedule: str
    devices: int
    cell: CellShape
    shard: str = "none"
    replicas: int = 1


def random_groups(numbers: random.Random, exchanging: int) -> tuple[UnequalBatch, GroupedBatch]:
    """A batch, planned with a cost model of random numbers; or any groups at all."""
    batch = random_batch(numbers)
    if numbers.random() < 0.5:
        return batch, GroupedBatch(tuple(_any_groups(numbers, batch.lengths, exchanging)))
    exchange = {d: ExchangeCost(numbers.uniform(0, d)) for d in powers_of_two(exchanging)}
    capacity = -(-max(batch.lengths) // exchanging) + numbers.randint(0, 8)
    cost = GroupCost(numbers.random(), numbers.random(), numbers.random(), exchange, capacity)
    return batch, flexible_groups(batch.lengths, exchanging, cost)


def _any_groups(
    numbers: random.Random, lengths: Sequence[int], exchanging: int
) -> list[GroupedMicrobatch]:
    """Groups without a reason, some ranks without a group."""
    left = [*range(len(lengths))]
    numbers.shuffle(left)
    found = []
    while left:
        groups, free = [], exchanging
        while left and free and (not groups or numbers.random() < 0.8):
            degree = numbers.choice(powers_of_two(free))
            members = [left.pop() for _ in range(min(len(left), numbers.randint(1, 3)))]
            groups.append(SequenceGroup(degree, tuple(members)))
            free -= degree
        groups.sort(key=lambda group: -group.degree)
        found.append(GroupedMicrobatch(tuple(groups), numbers.random()))
    return found


def order_of(name: str, devices: int, microbatches: int) -> Schedule:
    return build(name, devices=devices, microbatches=microbatches)


def gradients_in_groups(connection: Connection, case: GroupCase) -> list[TrialPart]:
    """Gradients of one batch after the other, by one engine whose groups change."""
    order = partial(order_of, case.schedule, case.devices)
    first = order(4)
    layout = Layout.of(MODEL, first, LONGEST, dtype=torch.float64, cell=case.cell)
    steps = GroupedSteps(layout, order)
    planned = [steps.step(_share(batch, case), groups) for batch, groups in case.batches]
    mesh = make_mesh(case.replicas, case.devices, case.cell)
    engine = engine_on(mesh, planned[0].plan, NoUpdate(), torch.device("cpu"), shard=case.shard)
    with closing(engine):
        values = parameters_of(MODEL, layout.main)
        for entry in entries(engine):
            entry.take(values[entry.name])
        publish(engine)
        return [_gradients(engine, each) for each in planned]


def _share(batch: UnequalBatch, case: GroupCase) -> list[LabelledSequence]:
    return batch.sequences()


def _gradients(engine: Engine, planned: PlannedBatch) -> TrialPart:
    engine.use(planned.plan)
    loss = engine.gradients(planned.batch).loss
    held = [
        HeldGradient(entry.name, entry.grad.clone(), entry.part.index) for entry in entries(engine)
    ]
    return TrialPart(loss, held)


def groups_made(connection: Connection, case: GroupCase) -> list[int]:
    """How many groups the pool has, after the first batch and after all."""
    one = GroupCase(case.batches[:1], case.schedule, case.devices, case.cell, case.shard)
    gradients_in_groups(connection, one)
    before = len(GROUP_POOL._made)
    gradients_in_groups(connection, case)
    return [before, len(GROUP_POOL._made)]
