"""Random batches of unequal sequences, and what a rank does with them."""

import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import torch

from penstock.arch.cell_shape import ONE_RANK, CellShape
from penstock.data.batch import IGNORE, Microbatch
from penstock.plan.balance import TokenCost
from penstock.plan.ragged_batch import RaggedBatches, SliceRule
from penstock.run.comm.mesh import make_mesh
from penstock.run.policies.ragged_step import LabelledSequence, plan_batch
from penstock.run.process.rendezvous import Connection
from penstock.run.program.layout import Layout
from penstock.run.step.build import engine_on
from penstock.run.step.optimizer import NoUpdate
from penstock.run.step.state import entries, publish
from penstock.schedules import registry
from penstock.verify.compare import HeldGradient
from penstock.verify.material import parameters_of
from penstock.verify.oracle import Answer, answer
from penstock.verify.scale import CPU
from penstock.verify.trial import TrialPart

LONGEST = 30
MODEL = replace(CPU.model, layers=4)
RAGGED = [spec for spec in registry().values() if spec.ragged]


@dataclass(frozen=True)
class UnequalBatch:
    """Lengths of a batch, and the rule by which it is cut."""

    lengths: tuple[int, ...]
    rule: SliceRule
    schedule: str

    def sequences(self) -> list[LabelledSequence]:
        """The same tokens in every process; labels of some positions do not count."""
        generator = torch.Generator().manual_seed(sum(self.lengths))
        found = []
        for length in self.lengths:
            tokens = torch.randint(MODEL.vocabulary, (length,), generator=generator)
            labels = tokens.roll(-1)
            labels[-1] = IGNORE
            labels[torch.rand(length, generator=generator) < 0.1] = IGNORE
            found.append(LabelledSequence(tokens, labels))
        return found


@dataclass(frozen=True)
class UnequalCase:
    """Several batches on one mesh."""

    batches: tuple[UnequalBatch, ...]
    devices: int
    replicas: int = 1
    cell: CellShape = ONE_RANK
    shard: str = "none"


def random_batch(numbers: random.Random) -> UnequalBatch:
    """Most sequences short, some of the longest; cut and kept in any way."""
    short = [numbers.randint(1, 6) for _ in range(numbers.randint(1, 8))]
    long = [numbers.randint(2, LONGEST) for _ in range(numbers.randint(1, 2))]
    lengths = [*short, *long]
    numbers.shuffle(lengths)
    rule = SliceRule(numbers.randint(1, 12), numbers.randint(1, 4), numbers.randint(1, 4))
    return UnequalBatch(tuple(lengths), rule, numbers.choice(RAGGED).name)


def right_answer(batch: UnequalBatch) -> Answer:
    """Every sequence alone, in one process, with the plain decoder."""
    alone = [Microbatch(s.tokens[None], s.labels[None], ((0,),)) for s in batch.sequences()]
    return answer(MODEL, parameters_of(MODEL, torch.float64), alone)


def gradients_of_batches(connection: Connection, case: UnequalCase) -> list[TrialPart]:
    """Gradients of one batch after the other, by one engine whose plan changes."""
    ragged = [_ragged(batch, case.devices) for batch in case.batches]
    layout = Layout.of(
        MODEL, ragged[0].schedule((1,)), LONGEST, dtype=torch.float64, cell=case.cell
    )
    mesh = make_mesh(case.replicas, case.devices, case.cell)
    planned = [
        plan_batch(one, layout, batch.sequences(), mesh.replica, case.replicas)
        for one, batch in zip(ragged, case.batches)
    ]
    device = torch.device("cpu")
    engine = engine_on(mesh, planned[0].plan, NoUpdate(), device, shard=case.shard)
    found = []
    with closing(engine):
        values = parameters_of(MODEL, layout.main)
        for entry in entries(engine):
            entry.take(values[entry.name])
        publish(engine)
        for plan, batch in planned:
            engine.use(plan)
            loss = engine.gradients(batch).loss
            held = [
                HeldGradient(entry.name, entry.grad.clone(), entry.part.index)
                for entry in entries(engine)
            ]
            found.append(TrialPart(loss, held))
    return found


def _ragged(batch: UnequalBatch, devices: int) -> RaggedBatches:
    spec, cost = registry()[batch.schedule], TokenCost.of_model(MODEL)
    return RaggedBatches(spec, devices, batch.rule, LONGEST, cost)


def parts_of_batch(reports: Sequence[list[TrialPart]], number: int) -> list[TrialPart]:
    return [report[number] for report in reports]
