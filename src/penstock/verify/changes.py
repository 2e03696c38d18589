"""What variants change about a run: the lengths of slices, the layers of stages, the schedule."""

from collections.abc import Sequence

from penstock.core.schedule import Schedule
from penstock.plan.slices import Lengths, even
from penstock.run.program.token_groups import MicrobatchGroups, TokenGroup
from penstock.transform import cut_slices, recompute_all, shard
from penstock.transform.buffer_stays import LEAST_RECENT

CUTS = 3
"""Slices into which a schedule without slices is cut, to meet uneven ones."""


def even_lengths(length: int, count: int, mb: int) -> Lengths:
    """Slices of equal length, the same for every microbatch."""
    return even(length, count)


def ragged_lengths(length: int, count: int, mb: int) -> Lengths:
    """Slices of unequal lengths, in another order for each microbatch.

    >>> ragged_lengths(24, 4, 0), ragged_lengths(24, 4, 1)
    ((9, 8, 4, 3), (8, 4, 3, 9))
    """
    lengths = list(even(length, count))
    most = min(lengths) // 2
    for slice in range(count // 2):
        moved = max(most - slice, 0)
        lengths[slice] += moved
        lengths[-1 - slice] -= moved
    turn = mb % count
    return (*lengths[turn:], *lengths[:turn])


def unequal_lengths(length: int, count: int, mb: int) -> Lengths:
    """Sequences of unequal lengths: the whole, one token for each slice, a half, a third.

    >>> [unequal_lengths(24, 2, mb) for mb in range(4)]
    [(18, 6), (1, 1), (9, 3), (2, 6)]
    """
    totals = (length, count, length // 2, length // 3)
    return ragged_lengths(max(totals[mb % len(totals)], count), count, mb)


def unequal_totals(cuts: tuple[Lengths, ...], length: int) -> tuple[int, ...]:
    """Tokens of each microbatch; nothing where all have the usual length."""
    tokens = tuple(map(sum, cuts))
    return () if {*tokens} == {length} else tokens


def whole_cell(starts: Sequence[int], length: int, mb: int) -> MicrobatchGroups:
    """No groups: all ranks of a cell share every microbatch."""
    return ()


def alone_in_turn(starts: Sequence[int], length: int, mb: int) -> MicrobatchGroups:
    """Two ranks share every second microbatch; in the others each has documents of its own, or one
    of them has none.

    >>> [[tuple(group) for group in alone_in_turn((0, 5, 14), 24, mb)] for mb in (0, 1)]
    [[(2, 24)], [(1, 5), (1, 19)]]
    """
    inside = [start for start in starts if 0 < start < length]
    if mb % 2 == 0:
        return (TokenGroup(2, length),)
    if not inside:
        return (TokenGroup(1, length),)
    return TokenGroup(1, inside[0]), TokenGroup(1, length - inside[0])


def equal_layers(layers: int, stages: int) -> tuple[int, ...]:
    return even(layers, stages)


def uneven_layers(layers: int, stages: int) -> tuple[int, ...]:
    """One layer for each stage, and all that are left over for every second stage.

    >>> uneven_layers(10, 4)
    (1, 4, 1, 4)
    """
    counts = [1] * stages
    for extra in range(layers - stages):
        counts[(1 + 2 * extra) % stages] += 1
    return tuple(counts)


def as_it_is(schedule: Schedule) -> Schedule:
    return schedule


def with_slices(schedule: Schedule) -> Schedule:
    """A schedule of whole sequences, cut into slices."""
    if max(schedule.shape.slices) > 1:
        return schedule
    return cut_slices(schedule, CUTS).renamed(schedule.name)


def with_few_buffers(schedule: Schedule) -> Schedule:
    """A schedule whose weights are gathered into one buffer of a device, and gradients reduced from
    one, so that stages of a device take turns; two buffers where the strands of a pair need them.
    """
    buffers = 2 if schedule.pairs else 1
    sharded = shard(schedule, weights=buffers, gradients=buffers, rule=LEAST_RECENT)
    return sharded.renamed(schedule.name)


def with_recompute(schedule: Schedule) -> Schedule:
    return recompute_all(schedule).renamed(schedule.name)
