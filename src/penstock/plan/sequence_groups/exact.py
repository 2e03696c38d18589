"""The best groups of a microbatch, as a mixed-integer program.

Candidates are groups of every size, each used or not. How many sequences of a bucket a candidate
works on is a whole number, and the time of the slowest group is to be small:

    minimise C    where  seconds(p) <= C            of every group p that is used
                         tokens(p) <= d(p) capacity
                         sum of d(p) used(p) <= ranks
                         counts of a bucket add up to its sequences

A sequence goes to no group that is too small for it. Of candidates of one size the first are used
first. What a search without a solver finds (search.py) is an upper bound from the start, and is
the answer where the solver's time ends without a better one. Source: arXiv:2412.01523, section 4.2.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from penstock.errors import ShapeError
from penstock.plan.sequence_groups.assign import Assignment
from penstock.plan.sequence_groups.buckets import Buckets, buckets_within
from penstock.plan.sequence_groups.cost import GroupCost
from penstock.plan.sequence_groups.groups import GroupedMicrobatch
from penstock.plan.sequence_groups.priced import PricedSequences
from penstock.plan.sequence_groups.search import search_groups

SOLVERS: Mapping[str, str] = {"sat": "num_workers:1", "highs": "output_flag=false"}
"""Solvers of OR-Tools, and what makes them repeat a result and write nothing."""
USUAL_SECONDS = 5.0
TICKS = 1000.0
"""What the upper bound counts as: solvers work with a fixed precision of a millionth."""


def integer_programs() -> Any:
    """OR-Tools' module of linear programs, or an error that says how to get it."""
    try:
        from ortools.linear_solver.python import model_builder
    except ImportError:
        raise ShapeError(
            "the exact groups need OR-Tools, which is not installed",
            hint='install it with pip install "penstock[solve]", or search without a solver',
        ) from None
    return model_builder


def solve_groups(
    lengths: Sequence[int],
    cell: int,
    cost: GroupCost,
    *,
    buckets: Buckets | None = None,
    limit: float = USUAL_SECONDS,
    solver: str = "sat",
) -> GroupedMicrobatch | None:
    """The best groups for a microbatch, by buckets of its lengths, or the best that is found in so
    many seconds; None where memory is not enough."""
    chosen = buckets or buckets_within(lengths, cell * cost.capacity)
    begun = search_groups(lengths, cell, cost)
    most = (
        _bucketed(begun, lengths, chosen, cost)
        if begun
        else cost.seconds(lengths, min(cost.exchange))
    )
    program = GroupProgram(chosen, cell, cost, most)
    counts = program.solve(solver, limit)
    found = [begun] if begun else []
    if counts is not None:
        found.append(_improved(lengths, program.degrees, _drawn(lengths, chosen, counts), cost))
    return min(found, key=lambda each: each.seconds, default=None)


def _bucketed(
    begun: GroupedMicrobatch, lengths: Sequence[int], buckets: Buckets, cost: GroupCost
) -> float:
    """Seconds of a plan whose sequences are as long as their buckets."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    longest = dict(zip(order, (bucket[-1] for bucket in buckets for _ in bucket)))
    return max(
        cost.seconds([longest[number] for number in group.members], group.degree)
        for group in begun.groups
    )


def _improved(
    lengths: Sequence[int],
    degrees: Sequence[int],
    members: Sequence[Sequence[int]],
    cost: GroupCost,
) -> GroupedMicrobatch:
    """The candidates that have members, once these are changed by their true lengths."""
    used = [(degree, each) for degree, each in zip(degrees, members) if each]
    assignment = Assignment(PricedSequences(lengths, cost), [degree for degree, _ in used])
    assignment.take([each for _, each in used])
    assignment.improve()
    return assignment.grouped


class GroupProgram:
    """Variables of the program, by candidate and by bucket."""

    def __init__(self, buckets: Buckets, cell: int, cost: GroupCost, most: float) -> None:
        """`most` are seconds that some plan takes."""
        self._tick = most / TICKS
        self._program = integer_programs().Model()
        sizes = sorted((degree for degree in cost.exchange if degree <= cell), reverse=True)
        self.degrees = [degree for degree in sizes for _ in range(cell // degree)]
        self._seconds = self._program.new_num_var(0.0, 1.001 * TICKS, "")
        self._used = [self._program.new_bool_var("") for _ in self.degrees]
        self._counts = [
            [self._count(bucket, degree, cost) for bucket in buckets] for degree in self.degrees
        ]
        self._place(buckets, cell)
        for at, degree in enumerate(self.degrees):
            self._hold(at, degree, buckets, cost)
        self._program.minimize(self._seconds)

    def solve(self, solver: str, limit: float) -> list[list[int]] | None:
        """Sequences of each bucket in each candidate; None where none are found in time."""
        engine = integer_programs().Solver(solver)
        engine.set_time_limit_in_seconds(limit)
        engine.set_solver_specific_parameters(SOLVERS[solver])
        if engine.solve(self._program).name not in ("OPTIMAL", "FEASIBLE"):
            return None
        return [[round(engine.value(count)) for count in each] for each in self._counts]

    def _count(self, bucket: tuple[int, ...], degree: int, cost: GroupCost) -> Any:
        fits = degree * cost.capacity >= bucket[-1]
        return self._program.new_int_var(0, len(bucket) if fits else 0, "")

    def _place(self, buckets: Buckets, cell: int) -> None:
        """Every sequence in one group, no more ranks than there are, and like groups in order."""
        for number, bucket in enumerate(buckets):
            self._program.add(sum(each[number] for each in self._counts) == len(bucket))
        taken = sum(degree * used for degree, used in zip(self.degrees, self._used))
        self._program.add(taken <= cell)
        for one, other in pairwise(range(len(self.degrees))):
            if self.degrees[one] == self.degrees[other]:
                self._program.add(self._used[one] >= self._used[other])

    def _hold(self, at: int, degree: int, buckets: Buckets, cost: GroupCost) -> None:
        """What one candidate needs, where it is used; nothing is in it where it is not."""
        used, counts = self._used[at], self._counts[at]
        room = degree * cost.capacity
        tokens = sum(bucket[-1] * count for bucket, count in zip(buckets, counts))
        tick = degree * self._tick
        work = sum(
            cost.work(bucket[-1], degree) / tick * count for bucket, count in zip(buckets, counts)
        )
        self._program.add(tokens <= room * used)
        overhead = cost.overhead(degree) / self._tick
        self._program.add(work + overhead * used <= self._seconds)


def _drawn(
    lengths: Sequence[int], buckets: Buckets, counts: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Sequences of each candidate: any of the bucket, for all of them fit."""
    left = sorted(range(len(lengths)), key=lambda number: lengths[number])
    stocks = []
    for bucket in buckets:
        stocks.append(left[: len(bucket)])
        left = left[len(bucket) :]
    return [
        [stock.pop() for stock, count in zip(stocks, each) for _ in range(count)] for each in counts
    ]
