"""A schedule whose stages are gathered and reduced in turn, for a run with fully sharded weights.

How many buffers a device has is a setting of the run. Two for weights let the next stage be
gathered while one computes. For gradients the default is as few as let every stage be reduced once
in a step, so that a gradient moves no more often than without sharding, and two where that is one:
then one is reduced while the next stage adds to the other.
"""

from typing import NamedTuple

from penstock.core.schedule import Schedule
from penstock.errors import RunError
from penstock.transform.buffer_stays import LEAST_RECENT, BufferStays, stays_in_buffers
from penstock.transform.sharding import add_collectives, fewest_for_one_reduction

SHARDING_KINDS = frozenset("GZ")


class BufferCounts(NamedTuple):
    """Buffers of each device."""

    weights: int = 2
    gradients: int = 0
    """0: as few as let every stage be reduced once."""


TWO_BUFFERS = BufferCounts()


def schedule_for(schedule: Schedule, buffers: BufferCounts | None) -> Schedule:
    """What is run with so many buffers for whole stages; without any, weights are whole."""
    if buffers is not None:
        return shard_weights(schedule, buffers)
    refuse_sharded(schedule)
    return schedule


def shard_weights(schedule: Schedule, buffers: BufferCounts) -> Schedule:
    """The schedule with gathers and reductions; one that has gathers keeps them.

    The buffer that has not been used for the longest time is taken: its gather can start earliest.
    """
    if "G" in schedule.table.kinds:
        return schedule
    return add_collectives(schedule, stays_of(schedule, buffers))


def stays_of(schedule: Schedule, buffers: BufferCounts) -> BufferStays:
    """Who is in the buffers of each device."""
    gradients = buffers.gradients or fewest_for_one_reduction(schedule)
    return stays_in_buffers(
        schedule, weights=buffers.weights, gradients=gradients, rule=LEAST_RECENT
    )


def refuse_sharded(schedule: Schedule) -> None:
    """Refuse gathers and reductions of a schedule where weights are whole on every rank."""
    if found := sorted(schedule.table.kinds & SHARDING_KINDS):
        raise RunError(
            f"{schedule.name} has ops of kind {', '.join(found)}, but the weights of this run are "
            "not sharded",
            hint='run it with shard = "full" (penstock verify: --shard full), or take the schedule '
            "without them",
        )
