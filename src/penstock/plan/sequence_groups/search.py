"""The groups of a microbatch without a solver: choices of sizes, each filled by a rule.

Groups of one size come first. Up to 64 ranks other choices are tried in the order of what they take
at least (ways.py); with more there are too many. From the best of them the search goes from way to
way: it divides a group in two or joins two of one size, and goes on from the best one, as long as
that is an improvement. Members are changed in the most promising ones alone.
"""

from collections.abc import Iterable, Sequence

from penstock.plan.sequence_groups.assign import Assignment
from penstock.plan.sequence_groups.cost import GroupCost
from penstock.plan.sequence_groups.groups import GroupedMicrobatch
from penstock.plan.sequence_groups.priced import PricedSequences
from penstock.plan.sequence_groups.ways import (
    GroupSizes,
    near_ways,
    of_one_size,
    ways_by_bound,
)

ALL_WAYS = 64
"""Ranks up to which every way to divide them is looked at."""
MOST_FILLED = 200
"""Ways that are filled at most, those with the lowest bounds; more where none has room."""
MOST_IMPROVED = 500
"""Sequences of all ways together whose members are changed, of those that are best without."""
STARTS = 8
"""Ways from which others are looked for near them; more where there are more sizes."""
LEAST_IMPROVED = 4
"""Ways whose members are changed, however many sequences there are."""


def search_groups(lengths: Sequence[int], cell: int, cost: GroupCost) -> GroupedMicrobatch | None:
    """The fastest groups that are found for a microbatch; None where memory is not enough."""
    priced = PricedSequences(lengths, cost)
    degrees = tuple(degree for degree in priced.degrees if degree <= cell)
    if not degrees or priced.smallest.max() >= len(degrees):
        return None
    search = GroupSearch(priced, cell - cell % degrees[0], degrees)
    search.one_size()
    if cell <= ALL_WAYS:
        search.by_bounds()
    search.climb()
    return search.best()


class GroupSearch:
    """Ways to divide a cell, as far as they were filled with the sequences."""

    def __init__(self, priced: PricedSequences, cell: int, degrees: tuple[int, ...]) -> None:
        self._priced, self._cell, self._degrees = priced, cell, degrees
        self._size = len(priced) * cell * min(MOST_FILLED, cell * len(degrees))
        self._tried: set[GroupSizes] = set()
        self._filled: dict[GroupSizes, Assignment] = {}
        """Those of them that had room for all sequences."""

    def one_size(self) -> None:
        """Fill the ways that have groups of one size."""
        self._fill(of_one_size(self._cell, degree) for degree in self._degrees)

    def by_bounds(self) -> None:
        """Fill ways from the lowest bound on, until no other can be faster."""
        fastest = min((each.seconds for each in self._filled.values()), default=float("inf"))
        for bound, way in ways_by_bound(self._cell, self._degrees, self._priced):
            if bound >= fastest or (len(self._tried) >= MOST_FILLED and self._filled):
                return
            self._fill([way])
            if way in self._filled:
                fastest = min(fastest, self._filled[way].seconds)

    def climb(self) -> None:
        """Go from the best ways to better ones near them."""
        for here in self._best_ways(max(STARTS, len(self._degrees))):
            before: GroupSizes = ()
            while here != before:
                near = {here, *self._near(here)}
                self._fill(sorted(near))
                known = ((self._filled[way].seconds, way) for way in near if way in self._filled)
                before, here = here, min(known)[1]

    def _best_ways(self, count: int) -> list[GroupSizes]:
        return sorted(self._filled, key=lambda way: self._filled[way].seconds)[:count]

    def _near(self, way: GroupSizes) -> list[GroupSizes]:
        """Neighbours that the cell has ranks for, which one of other sizes than powers of two may
        not have."""
        return [near for near in near_ways(way, self._degrees) if sum(near) <= self._cell]

    def best(self) -> GroupedMicrobatch | None:
        """The fastest way, once the members of the most promising ones are changed."""
        count = max(LEAST_IMPROVED, MOST_IMPROVED // len(self._priced))
        promising = [self._filled[way] for way in self._best_ways(count)]
        for assignment in promising:
            assignment.improve()
        best = min(promising, key=lambda each: each.seconds, default=None)
        return best.grouped if best else None

    def _fill(self, ways: Iterable[GroupSizes]) -> None:
        """Give each way its sequences, as far as memory is enough."""
        for way in (each for each in ways if each not in self._tried):
            self._tried.add(way)
            assignment = Assignment(self._priced, way, self._size)
            if assignment.fill():
                self._filled[way] = assignment


def search_one_size(
    lengths: Sequence[int], cell: int, cost: GroupCost, degree: int
) -> GroupedMicrobatch | None:
    """The same with groups of one size."""
    priced = PricedSequences(lengths, cost)
    size = len(priced) * cell * len(cost.exchange)
    assignment = Assignment(priced, of_one_size(cell, degree), size)
    if not assignment.fill():
        return None
    assignment.improve()
    return assignment.grouped
