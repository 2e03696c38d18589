"""The order of a step as a problem for the solver, from times that were measured.

Measured times differ from step to step in digits that mean nothing; the solver would search longer
for them, and no problem would ever come twice. So times are whole numbers of a grain, which is a
share of the mean op. What was found for a problem is kept under its signature: a later run with the
same times begins with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import sha256

from penstock.core.schedule import Schedule
from penstock.cost.model import Cost
from penstock.cost.profile import NANOSECOND, Key, Profile
from penstock.search.exact.exact import Solution, solve
from penstock.sim import simulate

GRAINS = 10
"""Grains of a mean op."""
LIMIT_PARTS = 20
"""Parts of the largest activation by which limits of one signature may differ."""


@dataclass(frozen=True)
class OrderProblem:
    """Ops to be ordered, in grains, and the memory that the order may take."""

    start: Schedule
    ops: Mapping[Key, int]
    links: Mapping[tuple[int, int], int]
    sizes: Cost
    limit: Fraction | None
    """What a device may hold, in the unit of the sizes; None where all activations fit."""
    effort: float
    """Seconds of the solver's own clock."""
    grain: float = 0.0
    """Seconds of a grain."""

    @classmethod
    def of(
        cls, start: Schedule, profile: Profile, limit: Fraction, effort: float
    ) -> "OrderProblem":
        """The problem of a schedule whose ops took the times of a profile; an order that holds as
        much as the schedule itself is always allowed."""
        grain = sum(profile.seconds.values()) / len(profile.seconds) / GRAINS or 1.0
        ops = {key: max(1, round(time / grain)) for key, time in profile.seconds.items()}
        links = {link: round(float(time) / grain) for link, time in profile.links.items()}
        peak = max(simulate(start, profile).peak)
        room = None if limit >= sum(_activations(start, profile.sizes)) else max(limit, peak)
        bare = replace(start, derived={})
        return cls(bare, ops, links, profile.sizes, room, effort, grain)

    @property
    def cost(self) -> Profile:
        """The times with a nanosecond for each grain."""
        seconds = {key: grains * float(NANOSECOND) for key, grains in self.ops.items()}
        links = {link: grains * NANOSECOND for link, grains in self.links.items()}
        return Profile(seconds, self.sizes, Fraction(0), links)

    @property
    def signature(self) -> str:
        """Equal for problems that an order is found for once."""
        counts = sorted(self.ops.items()), sorted(self.links.items())
        ops = sorted(map(str, self.start.table.ops()))
        said = repr((self.start.shape, ops, counts, self._parts, self.effort))
        return sha256(said.encode()).hexdigest()

    @property
    def _parts(self) -> int | None:
        """The limit in parts of the largest activation."""
        if self.limit is None:
            return None
        largest = max(_activations(self.start, self.sizes))
        return int(self.limit * LIMIT_PARTS // largest) if largest else 0

    def solve(self) -> Solution:
        """The best order that the effort allows, or the first one; proven either way."""
        found = solve(self.start, self.cost, limit=self.limit, effort=self.effort)
        return found._replace(schedule=replace(found.schedule, derived={}))


def _activations(schedule: Schedule, sizes: Cost) -> list[Fraction]:
    """What each forward keeps."""
    amounts = sizes.amounts(schedule, "act")
    rows = schedule.table.of_kinds("FN").nonzero()[0]
    return [int(ticks) * amounts.tick for ticks in amounts.ticks[rows]]
