"""The pattern that most schedules share: a stream of forwards and a stream of backwards, merged.

A paper defines each device's order by saying which forward comes j-th, which backward comes j-th,
and how many forwards run before the first backward. The streams come from a table of virtual
microbatches; `alternate` and `alternate_split` merge them.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import TypeVar

from penstock.core.shape import Shape
from penstock.schedules.generators.placements import stages_per_device

Unit = tuple[int, int]
"""Microbatch and slice."""
Virtual = tuple[int, int, int]
"""Chunk, microbatch and slice: a unit on one of a device's chunks."""
PlainOp = tuple[str, int, int, int]
"""Kind, stage, microbatch, slice; a plain tuple, because generators make millions."""


Item = TypeVar("Item")


def forward_units(shape: Shape) -> list[Unit]:
    """The whole batch in the order in which it goes forward."""
    return [(mb, s) for mb, slices in enumerate(shape.slices) for s in range(slices)]


def backward_units(shape: Shape) -> list[Unit]:
    """The whole batch in the order in which it goes back: the slices of a microbatch reversed."""
    return [(mb, s) for mb, slices in enumerate(shape.slices) for s in reversed(range(slices))]


def group_sizes(units: int, group: int) -> list[int]:
    """`units` cut into groups; the last one may be shorter.

    >>> group_sizes(5, group=3)
    [3, 2]
    """
    full, rest = divmod(units, group)
    return [group] * full + [rest] * (rest > 0)


def virtual_table(
    units: Iterable[Unit], *, chunks: Sequence[int], groups: Iterable[int]
) -> list[Virtual]:
    """Every group of units goes through all chunks before the next group starts.

    >>> virtual_table([(0, 0), (1, 0), (2, 0)], chunks=range(2), groups=[2, 1])
    [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0), (0, 2, 0), (1, 2, 0)]
    """
    rest = iter(units)
    members = (list(islice(rest, size)) for size in groups)
    return [(c, mb, s) for group in members for c in chunks for mb, s in group]


def looped_tables(shape: Shape, group: int) -> tuple[list[Virtual], list[Virtual]]:
    """Forward and backward table of the whole batch; the backward visits the chunks reversed."""
    chunks = range(stages_per_device(shape))
    groups = group_sizes(shape.units, group)
    return (
        virtual_table(forward_units(shape), chunks=chunks, groups=groups),
        virtual_table(backward_units(shape), chunks=chunks[::-1], groups=groups),
    )


def table_ops(kind: str, table: Iterable[Virtual], stages: Sequence[int]) -> list[PlainOp]:
    """A table as ops of one device, whose chunks are these stages.

    >>> table_ops("F", [(0, 7, 1), (1, 7, 1)], stages=(3, 8))
    [('F', 3, 7, 1), ('F', 8, 7, 1)]
    """
    return [(kind, stages[c], mb, s) for c, mb, s in table]


def alternate(forwards: Sequence[Item], backwards: Sequence[Item], warmup: int) -> list[Item]:
    """`warmup` forwards, then one forward and one backward in turn, then the other backwards."""
    warmup = min(warmup, len(forwards))
    steady = chain.from_iterable(zip(forwards[warmup:], backwards))
    return [*forwards[:warmup], *steady, *backwards[len(forwards) - warmup :]]


def alternate_split(
    forwards: Sequence[PlainOp], backwards: Sequence[PlainOp], *, warmup: int, delay: int
) -> list[PlainOp]:
    """`alternate` with split backwards: weight gradients run `delay` behind input gradients."""
    warmup = min(warmup, len(forwards))
    inputs: list[PlainOp] = [("I", stage, mb, s) for _, stage, mb, s in backwards]
    weights: list[PlainOp] = [("W", stage, mb, s) for _, stage, mb, s in backwards]
    lane = list(forwards[:warmup])
    for j, input_gradient in enumerate(inputs):
        lane += forwards[warmup + j : warmup + j + 1]
        lane.append(input_gradient)
        if j >= delay:
            lane.append(weights[j - delay])
    return lane + weights[max(0, len(weights) - delay) :]
