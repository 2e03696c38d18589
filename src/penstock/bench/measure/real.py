"""Whole steps of a real model: ours under several schedules, PyTorch's on the same work.

A step is all forwards and backwards of a batch, from a barrier to the end of the last rank, without
the optimizer. Both sides run in the same processes with the same weights and tokens; ours has
the executor, sliced attention and written-out backwards, PyTorch's has its pipeline runtime over
plain modules. Ours also notes when each op ran, and a simulation with these very costs says what
the step should have taken.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

import torch
from torch.distributed import ProcessGroup, barrier, group

from penstock.arch.config import ModelConfig
from penstock.arch.layer_split import split_layers
from penstock.bench.measure.plain_model import plain_stage, summed_loss
from penstock.bench.measure.torch_pipeline import TorchPipeline, torch_stages
from penstock.core.ops import Op
from penstock.core.schedule import Schedule
from penstock.cost.model import UnitCost
from penstock.cost.profile import Profile
from penstock.data.batch import Microbatch
from penstock.lower import lower_for_running
from penstock.model.attention.piece import Piece
from penstock.model.io.initial_weights import initialise
from penstock.model.stages.weights import Weights
from penstock.run.comm.collective import make_group
from penstock.run.comm.gloo import Gloo
from penstock.run.execute.executor import Executor, by_home
from penstock.run.process.rendezvous import Connection
from penstock.run.program.calls import Join
from penstock.run.program.layout import Layout
from penstock.run.program.pieces import cut_batch
from penstock.run.program.step_plan import StepPlan
from penstock.run.step.helping import helping_of
from penstock.run.step.shard_sums import ShardRanks, ShardSums
from penstock.run.step.stages import boundary_of, empty_weights, home_views, stage_of
from penstock.sim import simulate

HOST = torch.device("cpu")
Said = TypeVar("Said")


class Timed(NamedTuple):
    """One rank's steps."""

    seconds: list[float]
    loss: float
    """Mean over the labels, of the last step; 0 where no loss is met."""
    spans: list[tuple[Op, int, int]]
    """Start and end of each op of the last step, nanoseconds of the clock that all ranks share."""


class MeasuredRun(NamedTuple):
    """A run over all ranks."""

    seconds: float
    """Median step."""
    loss: float
    makespan: float
    """Of the last step, from the first op to the end of the last; 0 where ops were not noted."""
    predicted: float
    """The same, simulated with the mean cost of each kind, stage and slice."""


class TrainingWork(NamedTuple):
    """What is trained on."""

    model: ModelConfig
    length: int
    microbatches: int

    def batch(self) -> list[Microbatch]:
        numbers = torch.Generator().manual_seed(3)
        size = (self.microbatches, 1, self.length + 1)
        words = torch.randint(self.model.vocabulary, size, generator=numbers)
        return [Microbatch(row[:, :-1], row[:, 1:], ((0,),)) for row in words]

    @property
    def scale(self) -> float:
        return 1 / (self.microbatches * self.length)


def run_ours(
    connection: Connection,
    work: TrainingWork,
    schedule: Schedule,
    lengths: tuple[int, ...],
    steps: int,
) -> Timed:
    """Steps of one of our schedules; every microbatch is cut to the same lengths."""
    with open_executor(connection, work, schedule, lengths) as (executor, pieces):
        seconds, losses = measure_steps(lambda: executor.step(pieces), steps)
    ops = [call.op for call in executor.spans.calls]
    spans = list(zip(ops, executor.spans.start, executor.spans.end))
    return Timed(seconds, work.scale * sum(loss.item() for loss in losses), spans)


@contextmanager
def open_executor(
    connection: Connection, work: TrainingWork, schedule: Schedule, lengths: tuple[int, ...]
) -> Iterator[tuple[Executor, list[Piece]]]:
    """This rank's lane of a schedule with the model in it, and the batch that it runs over."""
    layout = Layout.of(work.model, schedule, work.length)
    plan = StepPlan(layout, schedule, (lengths,) * work.microbatches)
    assert group.WORLD is not None
    transport = Gloo(group.WORLD)
    mine = layout.stages_of(connection.rank)
    stages = {stage: stage_of(layout, stage, HOST) for stage in mine}
    executor = Executor(
        lower_for_running(schedule),
        connection.rank,
        by_home(stages, layout.stages),
        transport=transport,
        boundary=boundary_of(layout, HOST),
        homes=home_views(stages, {stage: initial_weights(layout, stage) for stage in mine}),
        sums=partial(_of_shards, ShardSums(ShardRanks(side_group()), HOST)),
    )
    executor.helper = helping_of(layout, HOST)
    yield executor, cut_batch(plan, work.batch(), scale=work.scale, device=HOST)
    transport.close()


@cache
def side_group() -> ProcessGroup:
    """All ranks, for what is put together while they send each other other things."""
    return make_group()


def _of_shards(sums: ShardSums, join: Join, parts: list[Any]) -> Any:
    """The only collectives of a step without its end are those of vocabulary shards."""
    return sums.of(parts[0])


def run_theirs(
    connection: Connection, work: TrainingWork, name: str, chunks: int, steps: int
) -> Timed:
    """Steps of one of PyTorch's schedules."""
    ranks = connection.world
    split = split_layers(work.model.layers, ranks * chunks)
    mine = torch_stages(name, connection.rank, ranks, chunks)
    batch = work.batch()
    scale = work.scale
    rival = TorchPipeline(
        name,
        {stage: plain_stage(work.model, split[stage], work.length) for stage in mine},
        ranks * chunks,
        microbatches=work.microbatches,
        loss=lambda logits, labels: summed_loss(logits, labels) * scale,
    )
    tokens, labels = (torch.cat(parts) for parts in zip(*((b.tokens, b.labels) for b in batch)))
    seconds, losses = measure_steps(lambda: rival.step(tokens, labels), steps)
    return Timed(seconds, sum(loss.item() for loss in losses), [])


def join_ranks(schedule: Schedule | None, parts: Sequence[Timed]) -> MeasuredRun:
    """The slowest rank of every step; the loss; and what a simulation says."""
    seconds = median(max(step) for step in zip(*(part.seconds for part in parts)))
    loss = sum(part.loss for part in parts)
    spans = [span for part in parts for span in part.spans]
    if schedule is None or not spans:
        return MeasuredRun(seconds, loss, 0.0, 0.0)
    makespan = (max(end for _, _, end in spans) - min(start for _, start, _ in spans)) / 1e9
    times = {op: (end - start) / 1e9 for op, start, end in spans}
    cost = Profile.of(schedule, [times[op] for op in schedule.table.ops()], UnitCost())
    predicted = simulate(schedule, cost).makespan
    return MeasuredRun(seconds, loss, makespan, float(predicted))


def initial_weights(layout: Layout, stage: int) -> Weights:
    """The weights of a stage before training."""
    weights = empty_weights(layout, stage, HOST)
    for name, value in weights.named(weights.main).items():
        initialise(layout.model, name, value, seed=0)
    weights.publish()
    return weights


def measure_steps(step: Callable[[], Said], steps: int) -> tuple[list[float], Said]:
    """Seconds of each step after a first one, which takes its memory from the system, or of that
    one where no more are wanted; and what the last step says."""
    each = [_time(step) for _ in range(steps + 1)]
    return [seconds for seconds, _ in each[1:] or each], each[-1][1]


def _time(step: Callable[[], Said]) -> tuple[float, Said]:
    """All ranks begin together."""
    barrier()
    start = perf_counter()
    said = step()
    return perf_counter() - start, said
