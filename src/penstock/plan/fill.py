"""Slices that fill and drain a pipeline soonest, by dynamic programming.

When all slices go forward and then all go backward, a pipeline of K stages takes

    sum of t(n, c) over the slices  +  (K - 1) * the largest t(n, c)

where t(n, c) is what one stage needs for n tokens behind c others: many short slices fill the
pipeline sooner, few long ones waste less per slice. For a bound on the largest term, the cheapest
sum is a shortest path over the positions of the sequence; tightening the bound below the largest
term of each answer visits every trade-off once. Source: arXiv:2102.07988, section 3.3.

Where forwards of one slice meet backwards of another (1F1B and its kin) this understates the price
of unequal slices: there, simulate.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from penstock.core.kernel import kernel
from penstock.core.table import Ticks
from penstock.errors import PlanError, ShapeError
from penstock.plan._spans import FORBIDDEN, Latency, LengthGrid, grid_of, span_tables
from penstock.plan.slices import Lengths

BatchLatency = Callable[[int, int, int], Fraction]
"""The same for so many sequences at once; their number comes first."""

MAX_STEPS = 2 * 10**7
"""Slices tried per round of a search for a count or a batch; there may be thousands of rounds."""


class Fastest(NamedTuple):
    """The best slices, and the time the pipeline takes with them."""

    lengths: Lengths
    time: Fraction


class FastestBatch(NamedTuple):
    """The best parts of a batch: how many sequences go together, and their slices."""

    parts: tuple[tuple[int, Lengths], ...]
    time: Fraction


class _Answer(NamedTuple):
    """The cheapest way under a bound: its sum, its largest term, and what it is."""

    total: int
    largest: int
    way: Any


def fastest(
    length: int,
    stages: int,
    latency: Latency,
    *,
    unit: int = 1,
    minimum: int = 1,
    count: int | None = None,
) -> Fastest:
    """The slices with the smallest time; exactly `count` of them where it is given.

    >>> fastest(12, 4, lambda n, c: 1 + Fraction(n, 2) + Fraction(n * (2 * c + n), 20)).lengths
    (4, 2, 2, 2, 1, 1)
    """
    grid = grid_of(length, stages, unit, minimum)
    path = _any_path if count is None else partial(_path_of, _possible(count, grid))
    (spans,), tick = span_tables([latency], grid, stages + grid.positions)
    answer = _tighten(lambda bound: path(spans, bound), stages)
    return Fastest(_lengths(answer.way, grid), _time(answer, stages) * tick)


def fastest_batch(
    batch: int, length: int, stages: int, latency: BatchLatency, *, unit: int = 1, minimum: int = 1
) -> FastestBatch:
    """The same for a batch that may be cut too: parts of some sequences, each with its slices."""
    grid = grid_of(length, stages, unit, minimum)
    most = MAX_STEPS // grid.positions**2
    if not 1 <= batch <= most:
        raise ShapeError(
            f"a batch of {batch} sequences cannot be searched in {grid.positions} steps each",
            hint=f"take 1 to {most} sequences, or a larger unit",
        )
    sizes = range(1, batch + 1)
    latencies = [lambda n, c, size=size: latency(size, n, c) for size in sizes]
    tables, tick = span_tables(latencies, grid, stages + batch * grid.positions)
    answer = _tighten(lambda bound: _knapsack(tables, bound), stages)
    parts = tuple((size, _lengths(cuts, grid)) for size, cuts in answer.way)
    return FastestBatch(parts, _time(answer, stages) * tick)


def _possible(count: int, grid: LengthGrid) -> int:
    """The count of slices, unless it cannot be reached or would take too long to search."""
    most = min(grid.positions, MAX_STEPS // grid.positions**2)
    if not 1 <= count <= most:
        raise ShapeError(
            f"{grid.length} tokens in steps of {grid.unit} cannot be searched for {count} slices",
            hint=f"take 1 to {most} slices, or another unit",
        )
    return count


def _tighten(solve: Callable[[int], _Answer | None], stages: int) -> _Answer:
    """The best answer over all bounds: each round asks for less than the last largest term."""
    best: _Answer | None = None
    bound = FORBIDDEN - 1
    while (answer := solve(bound)) is not None:
        if best is None or _time(answer, stages) < _time(best, stages):
            best = answer
        if answer.total >= _time(best, stages):  # sums only grow as the bound falls
            break
        bound = answer.largest - 1
    if best is None:
        raise PlanError(
            "no slices satisfy the unit, the minimum and the count together",
            hint="lower the minimum or the count",
        )
    return best


def _time(answer: _Answer, stages: int) -> int:
    return answer.total + (stages - 1) * answer.largest


def _any_path(spans: Ticks, bound: int) -> _Answer | None:
    """Cheapest cuts of any number; `spans[end, start]` is the cost of one slice."""
    origin = np.zeros(len(spans), np.int64)
    if _shortest(spans.size, spans, bound, FORBIDDEN, origin) >= FORBIDDEN:
        return None
    cuts = [len(spans) - 1]
    while cuts[-1]:
        cuts.append(int(origin[cuts[-1]]))
    return _answer(spans, cuts[::-1])


@kernel
def _shortest(spans: Any, bound: Any, never: Any, origin: Any) -> Any:
    """Cost of the shortest path to the last position, and where each position comes from.

    Of equal ways the one with the shorter last slice is taken: long slices go first.
    """
    best = np.full(len(spans), never, np.int64)
    best[0] = 0
    for end in range(1, len(spans)):
        for start in range(end):
            if spans[end, start] <= bound and best[start] + spans[end, start] <= best[end]:
                best[end] = best[start] + spans[end, start]
                origin[end] = start
    return best[-1]


def _path_of(count: int, spans: Ticks, bound: int) -> _Answer | None:
    """Cheapest cuts into exactly `count` slices."""
    origin = np.zeros((count, len(spans)), np.int64)
    if _shortest_of(spans.size * count, spans, bound, FORBIDDEN, origin) >= FORBIDDEN:
        return None
    cuts = [len(spans) - 1]
    for step in range(count - 1, -1, -1):
        cuts.append(int(origin[step, cuts[-1]]))
    return _answer(spans, cuts[::-1])


@kernel
def _shortest_of(spans: Any, bound: Any, never: Any, origin: Any) -> Any:
    """The same over paths of one step per row of `origin`."""
    best = np.full(len(spans), never, np.int64)
    best[0] = 0
    for step in range(len(origin)):
        after = np.full(len(spans), never, np.int64)
        for end in range(1, len(spans)):
            for start in range(end):
                if spans[end, start] <= bound and best[start] + spans[end, start] <= after[end]:
                    after[end] = best[start] + spans[end, start]
                    origin[step, end] = start
        best = after
    return best[-1]


def _answer(spans: Ticks, cuts: list[int]) -> _Answer:
    costs = [int(spans[end, start]) for start, end in pairwise(cuts)]
    return _Answer(sum(costs), max(costs), cuts)


def _knapsack(tables: Sequence[Ticks], bound: int) -> _Answer | None:
    """Cheapest parts of a batch, where part sizes 1, 2, ... have these tables."""
    parts = [_any_path(spans, bound) for spans in tables]
    best: list[_Answer | None] = [_Answer(0, 0, ())]
    for batch in range(1, len(tables) + 1):
        ways = [
            _Answer(
                rest.total + part.total,
                max(rest.largest, part.largest),
                (*rest.way, (size, part.way)),
            )
            for size, part in enumerate(parts[:batch], start=1)
            if part is not None and (rest := best[batch - size]) is not None
        ]
        best.append(min(ways, key=lambda way: way.total) if ways else None)
    return best[-1]


def _lengths(cuts: list[int], grid: LengthGrid) -> Lengths:
    return tuple((end - start) * grid.unit for start, end in pairwise(cuts))
