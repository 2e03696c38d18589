"""What a user asks `penstock best` for: sizes, prices, layers, and what a device may hold."""

from dataclasses import dataclass, replace
from fractions import Fraction

from penstock.cost.layers import Layer, Layers, read_layers
from penstock.cost.model import UnitCost
from penstock.schedules import Case
from penstock.search.best.registered import LIMIT
from penstock.search.joint.joint import Problem
from penstock.search.joint.moves import GRAIN
from penstock.search.joint.pipeline import Scale

OPS = 100_000_000
OPS_PER_OP = 30_000
"""What the search may place or replay: so much, and so much more for each op of the schedule."""


@dataclass(frozen=True)
class Wanted:
    """A request."""

    case: Case
    layers: Layers
    limit: Fraction | None = None
    chunks: int = 3
    """Most stages per device."""
    slices: int = 1
    """Most slices of a sequence; all slices cost the same."""
    seconds: float = 8.0
    """Processor time after which nothing more is tried."""

    @classmethod
    def of(cls, case: Case, layers: str = "", limit: Fraction | None = None) -> "Wanted":
        return cls(case, read_layers(layers or f"{GRAIN * case.p}*1/{GRAIN}"), limit)

    @property
    def counts(self) -> list[int]:
        """Numbers of slices to try: powers of two, and the most.

        >>> replace(Wanted.of(Case(2, 4)), slices=12).counts
        [1, 2, 4, 8, 12]
        """
        powers = [2**power for power in range(self.slices.bit_length())]
        return sorted({*powers, self.slices})

    def ops(self, slices: int) -> int:
        """Ops that a search may place or replay: they decide what it finds, not the clock."""
        return OPS + OPS_PER_OP * 3 * self.case.p * self.chunks * self.case.m * slices

    @property
    def average(self) -> Case:
        """The request as it looks to a schedule with equal stages: prices of an average device."""
        columns = dict(zip(Layer._fields, zip(*self.layers)))
        shares = {name: sum(column) / Fraction(self.case.p) for name, column in columns.items()}
        prices = {name: getattr(self.case, name) * share for name, share in shares.items()}
        options = {} if self.limit is None else {LIMIT: self.limit}
        return replace(self.case.at(prices), options=options)

    @property
    def cost(self) -> UnitCost:
        case = self.case
        return UnitCost(
            times={"F": case.F, "I": case.I, "W": case.W},
            sizes={"act": case.act, "stash": case.stash},
            hop=case.hop,
        )

    def problem(self, slices: int = 1) -> Problem:
        """What is searched, with sequences in so many slices."""
        slice = self.case.at({name: getattr(self.case, name) / slices for name in Layer._fields})
        scale = Scale.of(self.layers, slice)
        p, m = self.case.p, self.case.m
        return Problem(scale, p, m, self.chunks, scale.limit(self.limit), slices)
