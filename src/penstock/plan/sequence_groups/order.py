"""In which order a pipeline runs microbatches that take unequal times.

The first microbatch fills the pipeline and the last one drains it, and all devices but one wait
meanwhile. So the short ones stand at both ends, and times rise and fall between them.

    times 5 1 4 2 3   ->   1 3 5 4 2
"""

from collections.abc import Callable, Sequence

from penstock.core.schedule import Schedule
from penstock.errors import ShapeError
from penstock.plan.sequence_groups.batch import GroupedBatch
from penstock.plan.sequence_groups.groups import GroupedMicrobatch

MOST_ADDED = 64
"""Microbatches that are added at most where a schedule does not take every number of them."""

ScheduleOfSize = Callable[[int], Schedule]
"""The order for so many microbatches."""


def rising_and_falling(times: Sequence[float]) -> list[int]:
    """Numbers of microbatches in the order in which they are run.

    >>> rising_and_falling([5, 1, 4, 2, 3])
    [1, 4, 0, 2, 3]
    """
    order = sorted(range(len(times)), key=lambda number: (times[number], number))
    return [*order[::2], *order[1::2][::-1]]


def run_order(grouped: GroupedBatch, devices: int) -> list[GroupedMicrobatch]:
    """Microbatches as they are run: in a pipeline the short ones at both ends."""
    if devices == 1:
        return list(grouped.microbatches)
    times = [microbatch.seconds for microbatch in grouped.microbatches]
    return [grouped.microbatches[number] for number in rising_and_falling(times)]


def accepted_order(order: ScheduleOfSize, microbatches: int) -> Schedule:
    """The order for so many microbatches, or for the next number that the schedule takes."""
    for count in range(microbatches, microbatches + MOST_ADDED):
        try:
            return order(count)
        except ShapeError:
            continue
    return order(microbatches)
