"""How many layers each stage of a layout should have, by the times of an estimate.

What a stage takes is so much for each of its layers, and something that does not depend on them:
the embedding, the head, what is waited for at a boundary. Two splits that differ by one layer show
both.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from penstock.arch.balanced_split import faster_split
from penstock.arch.layer_split import even_split
from penstock.arch.unequal_split import faster_unequal
from penstock.core.homes import weight_homes
from penstock.estimate.layer_sorts import layer_sorts
from penstock.estimate.layout import TrainingLayout
from penstock.estimate.price import layout_cost
from penstock.estimate.step_schedule import StepSchedule, step_schedule

WORK_KINDS = "FNRBIW"
"""Kinds of ops that compute the layers of a stage."""


def balanced_layers(layout: TrainingLayout) -> tuple[int, ...]:
    """Layers of each stage; empty where an even split is as fast, or stages are parts of layers."""
    step = step_schedule(layout)
    homes = weight_homes(step.schedule)
    stages, layers = step.schedule.shape.stages, layout.model.layers
    if stages == 1 or stages > layers or step.schedule.shape.weightless:
        return ()
    if not layer_sorts(layout.model).alike:
        return _of_kinds(layout, step, [homes[stage][0] for stage in range(stages)])
    even = even_split(layers, stages)
    moved = (even[0] - 1, even[1] + 1, *even[2:])
    first, second = (_stage_seconds(layout, step, each) for each in (even, moved))
    layer = float(second[1] - first[1])
    more = [float(max(0.0, took)) / layer - count for took, count in zip(first, even)]
    return faster_split(layers, more, [homes[stage][0] for stage in range(stages)])


def _of_kinds(layout: TrainingLayout, step: StepSchedule, homes: Sequence[int]) -> tuple[int, ...]:
    """The same where layers differ: a stage of one layer more shows what that layer takes."""
    layers, stages = layout.model.layers, len(homes)
    even = even_split(layers, stages)
    took = _stage_seconds(layout, step, even)
    loads = _layer_seconds(layout, step, stages)
    ends = [0, *accumulate(even)]
    more = [float(took[at]) - sum(loads[ends[at] : ends[at + 1]]) for at in range(stages)]
    return faster_unequal(loads, more, homes)


def _layer_seconds(layout: TrainingLayout, step: StepSchedule, stages: int) -> list[float]:
    """What each layer takes: the difference that it makes to the second stage, of its sort."""
    layers, sorts = layout.model.layers, layer_sorts(layout.model).of_layer
    spare = (0,) * (stages - 2)
    found: dict[int, float] = {}
    for layer, sort in enumerate(sorts):
        if sort not in found:
            ends = [(at, layers - at, *spare) for at in (layer, layer + 1)]
            longer, shorter = (_stage_seconds(layout, step, each)[1] for each in ends)
            found[sort] = float(longer - shorter)
    return [found[sort] for sort in sorts]


def _stage_seconds(
    layout: TrainingLayout, step: StepSchedule, layers: tuple[int, ...]
) -> NDArray[np.float64]:
    """Seconds that each stage computes and waits for ranks of its cell, in all microbatches."""
    schedule = step.schedule
    cost = layout_cost(replace(layout, layers=layers), step)
    ticks, tick = cost.durations(schedule)
    rows = schedule.table.of_kinds(WORK_KINDS)
    stage = schedule.table.stage[rows]
    summed = np.bincount(stage, ticks[rows], schedule.shape.stages)
    return np.asarray(summed * float(tick), np.float64)
