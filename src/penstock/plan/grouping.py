"""How many microbatches to run as a group, and how large they may be, within the memory there is.

A larger group hides longer transfers (`transform.group`) and keeps that many times the activations;
so it is paid for with smaller microbatches. For every group the largest microbatch that fits is the
one to take: a smaller one has the same order and slower kernels. What remains is a short list from
which a run can choose, and choose again while the network changes.
Source: arXiv:2303.01675; the list is a reconstruction.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.errors import PlanError, ShapeError


class Room(NamedTuple):
    """Memory of one stage, in bytes."""

    free: int
    """What weights, optimizer state and fixed workspace leave of the limit."""
    activation: int
    """What one sample holds from its forward to its backward."""
    receive: int = 0
    """One sample in a receive buffer, of which every member of a group has one."""
    working: int = 0
    """What one sample needs only while it is computed, such as logits."""


class Grouping(NamedTuple):
    """`microbatches` of `size` samples each, run in groups of `group`."""

    group: int
    size: int
    microbatches: int


def candidates(
    batch: int, rooms: Sequence[Room], *, most: int | None = None
) -> tuple[Grouping, ...]:
    """For each size of group up to `most` the largest microbatches that fit on every stage.

    The batch is divided into equal microbatches; the last group may be short.

    >>> candidates(8, [Room(8, 1), Room(8, 1)], most=2)
    (Grouping(group=1, size=8, microbatches=1), Grouping(group=2, size=4, microbatches=2))
    """
    if batch < 1 or not rooms:
        raise ShapeError(
            f"a batch of {batch} over {len(rooms)} stages has nothing to group",
            hint="give 1 or more samples and stages",
        )
    sizes = [size for size in range(batch, 0, -1) if batch % size == 0]
    groups = range(1, min(most or batch, batch) + 1)
    ways = ([Grouping(group, size, batch // size) for size in sizes] for group in groups)
    fitting = ([way for way in group if _fits(way, rooms)] for group in ways)
    found = tuple(group[0] for group in fitting if group)
    if not found:
        raise PlanError(
            f"not even single samples of a batch of {batch} fit on all {len(rooms)} stages",
            hint="take more stages, shorter sequences, or recompute activations",
        )
    return found


def _fits(way: Grouping, rooms: Sequence[Room]) -> bool:
    """Whether a group is a group, and the peak of every stage stays within its room."""
    if way.group > way.microbatches:
        return False
    return all(_peak(way, room, len(rooms) - r) <= room.free for r, room in enumerate(rooms))


def _peak(way: Grouping, room: Room, behind: int) -> int:
    """Most bytes on a stage with `behind` stages from it to the end, itself included."""
    alive = min(way.group * behind, way.microbatches)
    return way.size * (alive * room.activation + way.group * room.receive + room.working)
