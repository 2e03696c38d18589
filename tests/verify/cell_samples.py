"""Small trials of one device whose ranks can be threads, and the answers that they have to find."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from penstock.arch.cell_shape import CellShape
from penstock.arch.config import ModelConfig
from penstock.core.schedule import Schedule
from penstock.core.shape import Shape
from penstock.transform import recompute_without_attention
from penstock.verify.compare import Difference, difference
from penstock.verify.material import microbatches_of, parameters_of
from penstock.verify.oracle import Answer, answer
from penstock.verify.scale import CPU
from penstock.verify.trial import TrialPart
from penstock.verify.variants import Batch, Trial, TrialWork

MODEL = replace(CPU.model, layers=2, qkv_bias=True, qk_norm=True)
"""Four heads, two key/value heads; two layers."""
LENGTHS = (9, 5)
"""Slices that nothing divides."""


def in_turn(stages: int, slices: Sequence[int], weightless: Sequence[int] = ()) -> Schedule:
    """One device that does a microbatch forward and back before the next one."""
    shape = Shape(1, stages, tuple(slices), weightless=frozenset(weightless))
    lane = []
    for mb, count in enumerate(slices):
        lane += [("F", stage, mb, n) for n in range(count) for stage in range(stages)]
        back = [(stage, mb, n) for n in reversed(range(count)) for stage in reversed(range(stages))]
        lane += [("B", *at) for at in back]
    return Schedule.of("in turn", shape, [lane])


def sample(
    cell: CellShape,
    model: ModelConfig = MODEL,
    lengths: Sequence[int] = LENGTHS,
    *,
    microbatches: int = 1,
    replicas: int = 1,
    shard: str = "none",
    **batch: Any,
) -> Trial:
    """A trial in which each of two stages has its share of the layers."""
    schedule = in_turn(2, [len(lengths)] * microbatches)
    whole = Batch(replicas * microbatches, length=sum(lengths), **batch)
    return Trial(
        cell.text,
        schedule,
        TrialWork(model, whole),
        (model.layers - 1, 1),
        (tuple(lengths),) * microbatches,
        replicas,
        "float64",
        cell=cell,
        shard=shard,
    )


def cut_at_attention(trial: Trial) -> Trial:
    """The same where attention is a stage of its own."""
    stages = 2 * trial.work.model.layers + 1
    schedule = in_turn(stages, trial.schedule.shape.slices, range(1, stages, 2))
    return replace(trial, schedule=schedule, layers=())


def with_weights_sent(trial: Trial) -> Trial:
    """The same where weights travel to attention."""
    cut = cut_at_attention(trial)
    shape = replace(cut.schedule.shape, to_attention="weights")
    return replace(cut, schedule=replace(cut.schedule, shape=shape, derived={}))


def again_without_attention(trial: Trial) -> Trial:
    """The same where all but attention runs again."""
    return replace(trial, schedule=recompute_without_attention(trial.schedule))


@cache
def right_answer(work: TrialWork) -> Answer:
    """What the oracle says."""
    batch = microbatches_of(work.batch, work.model.vocabulary)
    return answer(work.model, parameters_of(work.model, torch.float64), batch)


def from_right(trial: Trial, parts: Sequence[TrialPart]) -> Difference:
    """How far the ranks of a trial are from the oracle: all gradients, and the worst loss."""
    held = [gradient for part in parts for gradient in part.held]
    right = right_answer(trial.work)
    found = [difference(part.loss, held, right) for part in parts]
    return max(found, key=lambda each: each.loss)
