"""Random batches on groups of ranks of unequal sizes, and what a rank does with them."""

import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

import torch

from penstock.arch.cell_shape import CellShape
from penstock.core.schedule import Schedule
from penstock.plan.balance import TokenCost
from penstock.plan.sequence_groups.batch import GROUPINGS, GroupedBatch
from penstock.plan.sequence_groups.cost import ExchangeCost, GroupCost, powers_of_two
from penstock.plan.sequence_groups.groups import GroupedMicrobatch, SequenceGroup
from penstock.run.comm.group_pool import GROUP_POOL
from penstock.run.comm.mesh import Mesh, make_mesh
from penstock.run.policies.grouped_step import GroupedSteps
from penstock.run.policies.ragged_step import LabelledSequence, PlannedBatch, own_share
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
from verify.unequal_jobs import LONGEST, MODEL, UnequalBatch, random_batch

LARGEST = 400
"""Tokens of all sequences of a microbatch."""
FOUR = CellShape(ulysses=4)
DEALING = TokenCost.of_model(MODEL)

ReplicaGroups = tuple[GroupedBatch, ...]
"""The groups of each replica's part of a batch."""


@dataclass(frozen=True)
class GroupMesh:
    """Four ranks, and the order in which they work."""

    schedule: str = "1f1b"
    devices: int = 1
    cell: CellShape = FOUR
    shard: str = "none"
    replicas: int = 1
    slices: int = 1


@dataclass(frozen=True)
class GroupCase:
    """Several batches with their groups on one mesh."""

    batches: tuple[tuple[UnequalBatch, ReplicaGroups], ...]
    mesh: GroupMesh


def random_groups(numbers: random.Random, mesh: GroupMesh) -> tuple[UnequalBatch, ReplicaGroups]:
    """A batch with sequences of one token and of the most, and groups for each replica."""
    drawn = random_batch(numbers)
    ends = numbers.sample([1, 1, LONGEST, LONGEST], numbers.randint(0, 3))
    batch = replace(drawn, lengths=(*ends, *drawn.lengths))
    shares = [share_of(batch, replica, mesh.replicas) for replica in range(mesh.replicas)]
    exchanging = mesh.cell.ulysses
    return batch, tuple(_grouped(numbers, list(map(_length, own)), exchanging) for own in shares)


def _length(sequence: LabelledSequence) -> int:
    return len(sequence.tokens)


def _grouped(numbers: random.Random, lengths: Sequence[int], exchanging: int) -> GroupedBatch:
    """Planned with a cost model of random numbers, in one of the ways; or any groups at all."""
    if numbers.random() < 0.5:
        return GroupedBatch(tuple(_any_groups(numbers, lengths, exchanging)))
    exchange = {d: ExchangeCost(numbers.uniform(0, d)) for d in powers_of_two(exchanging)}
    capacity = -(-max(lengths) // exchanging) + numbers.randint(0, 8)
    cost = GroupCost(numbers.random(), numbers.random(), numbers.random(), exchange, capacity)
    return GROUPINGS[numbers.choice([*GROUPINGS])](lengths, exchanging, cost)


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


def share_of(batch: UnequalBatch, replica: int, replicas: int) -> list[LabelledSequence]:
    return own_share(batch.sequences(), replica, replicas, DEALING)


def order_of(mesh: GroupMesh, microbatches: int) -> Schedule:
    sizes = {"devices": mesh.devices, "microbatches": microbatches, "slices": mesh.slices}
    return build(mesh.schedule, **sizes)


def gradients_in_groups(connection: Connection, case: GroupCase) -> list[TrialPart]:
    """Gradients of one batch after the other, by one engine whose groups change."""
    given = case.mesh
    order = partial(order_of, given)
    layout = Layout.of(MODEL, order(4), LARGEST, dtype=torch.float64, cell=given.cell)
    mesh = make_mesh(given.replicas, given.devices, given.cell)
    steps = GroupedSteps(layout, order)
    planned = [_planned(steps, mesh, *each) for each in case.batches]
    engine = engine_on(mesh, planned[0].plan, NoUpdate(), torch.device("cpu"), shard=given.shard)
    with closing(engine):
        values = parameters_of(MODEL, layout.main)
        for entry in entries(engine):
            entry.take(values[entry.name])
        publish(engine)
        return [_gradients(engine, each) for each in planned]


def _planned(
    steps: GroupedSteps, mesh: Mesh, batch: UnequalBatch, groups: ReplicaGroups
) -> PlannedBatch:
    most = max(len(each.microbatches) for each in groups)
    return steps.step(share_of(batch, mesh.replica, mesh.replicas), groups[mesh.replica], most)


def _gradients(engine: Engine, planned: PlannedBatch) -> TrialPart:
    engine.use(planned.plan)
    loss = engine.gradients(planned.batch).loss
    held = [
        HeldGradient(entry.name, entry.grad.clone(), entry.part.index) for entry in entries(engine)
    ]
    return TrialPart(loss, held)


def groups_made(connection: Connection, case: GroupCase) -> list[int]:
    """How many groups the pool has, after the first batch and after all."""
    gradients_in_groups(connection, replace(case, batches=case.batches[:1]))
    before = len(GROUP_POOL._made)
    gradients_in_groups(connection, case)
    return [before, len(GROUP_POOL._made)]
