"""A split of layers that are not equal: a fused one may take as long as ten others.

Layers keep their order, so a split is a place between layers for each two stages. Which is best for
devices that hold one stage each is found exactly: of all ways to give the first layers to the first
stages, the one whose slowest stage is fastest is kept. Where a device has several stages, layers
are then moved over single boundaries as long as the slowest device gets faster.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from penstock.arch.balanced_split import Loads
from penstock.arch.layer_split import even_split

ROUNDED = 9
"""Digits by which loads are compared, so that sums in another order are equal."""


def split_unequal(loads: Loads, more: Loads, homes: Sequence[int]) -> tuple[int, ...]:
    """Layers of each stage, with the load of each layer, what else each stage has to do, and the
    device of each stage.

    >>> split_unequal((1, 1, 1, 4, 1, 1), (0, 0, 1), (0, 1, 2))
    (3, 1, 2)
    """
    counts = _by_stages(loads, more)
    if len({*homes}) == len(homes):
        return counts
    best = _slowest(counts, loads, more, homes)
    while True:
        nearby = [(_slowest(each, loads, more, homes), each) for each in _moved(counts)]
        faster = min(nearby, default=(best, counts))
        if faster[0] >= best:
            return counts
        best, counts = faster


def faster_unequal(loads: Loads, more: Loads, homes: Sequence[int]) -> tuple[int, ...]:
    """The same where its slowest device is faster than with an even split, else nothing.

    >>> faster_unequal((4, 1, 1), (0, 0), (0, 1)), faster_unequal((1, 4, 4, 1), (0, 0), (0, 1))
    ((1, 2), ())
    """
    found, even = split_unequal(loads, more, homes), even_split(len(loads), len(homes))
    slowest = [_slowest(each, loads, more, homes)[0] for each in (found, even)]
    return found if slowest[0] < slowest[1] else ()


def _by_stages(loads: Loads, more: Loads) -> tuple[int, ...]:
    """The split whose slowest stage is fastest; of equals the earlier stages have fewer layers."""
    ends = [0.0, *accumulate(loads)]
    best: list[tuple[float, tuple[int, ...]]] = [
        (0.0 if not layers else float("inf"), ()) for layers in range(len(ends))
    ]
    for other in more:
        best = [
            min(
                (
                    max(before, round(ends[stop] - ends[start] + other, ROUNDED)),
                    (*counts, stop - start),
                )
                for start, (before, counts) in enumerate(best[: stop + 1])
            )
            for stop in range(len(ends))
        ]
    return best[-1][1]


def _moved(counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Splits in which one layer is on the other side of a boundary."""
    for stage in range(len(counts) - 1):
        for step in (1, -1):
            here, there = counts[stage] - step, counts[stage + 1] + step
            if here >= 0 and there >= 0:
                yield (*counts[:stage], here, there, *counts[stage + 2 :])


def _slowest(
    counts: Sequence[int], loads: Loads, more: Loads, homes: Sequence[int]
) -> tuple[float, ...]:
    """Loads of devices, the largest first."""
    ends = [0, *accumulate(counts)]
    found = dict.fromkeys(homes, 0.0)
    for stage, home in enumerate(homes):
        found[home] += sum(loads[ends[stage] : ends[stage + 1]]) + more[stage]
    return tuple(sorted((round(each, ROUNDED) for each in found.values()), reverse=True))
