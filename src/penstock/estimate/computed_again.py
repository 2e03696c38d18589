"""What the ops of a schedule compute again, as utilisation counts it.

A layout may ask for it, and some schedules do it by themselves: those that keep the activations of
some stages or slices alone. Either way it is ops of their own, so the schedule says how much it is.
"""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from penstock.arch.attention_cut import HEADS
from penstock.core.schedule import Schedule
from penstock.estimate.step_schedule import StepSchedule


def layers_computed_again(step: StepSchedule, layers: Sequence[int]) -> dict[int, Fraction]:
    """Layers that a token goes through again, on average over all sequences of each length; with
    the layers of each stage."""
    schedule, every = step.schedule, step.microbatches
    rows = np.flatnonzero(schedule.table.of_kinds("R"))
    if not len(rows):
        return {}
    tokens = np.array([count for slices in every for count in slices], np.int64)
    places = np.stack([schedule.table.stage[rows], schedule.unit[rows]])
    stage, unit = np.unique(places, axis=1)  # devices of a gang share an op
    again = np.zeros(len(tokens), np.int64)
    np.add.at(again, unit, np.array(layers, np.int64)[stage] * tokens[unit])
    found: Counter[int] = Counter()
    for slices, own in zip(every, _by_microbatch(again, every)):
        found[sum(slices)] += own
    counts = Counter(map(sum, every))
    return {length: Fraction(found[length], length * counts[length]) for length in counts}


def _by_microbatch(each: NDArray[np.int64], every: Sequence[Sequence[int]]) -> list[int]:
    """The sums of what the slices of each microbatch have."""
    starts = [*accumulate(map(len, every[:-1]), initial=0)]
    return [int(own) for own in np.add.reduceat(each, starts)]


def keeps_attention(schedule: Schedule) -> bool:
    """Whether all stages but attention are computed again, or that one keeps its output."""
    shape, table = schedule.shape, schedule.table
    if not shape.weightless or "R" not in table.kinds:
        return False
    again = {*table.stage[table.of_kinds("R")].tolist()}
    return shape.to_attention != HEADS or not again & shape.weightless
