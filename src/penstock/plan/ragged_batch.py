"""The order of one batch of sequences of unequal lengths, made when the batch is known.

Every batch has other lengths, so every step has its own slices and its own order. What the order
depends on is only how many slices each microbatch has: the same numbers get the same schedule,
which is made, proven and compiled once. Microbatches of most slices come first, so batches that
differ in the order of their sequences share one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import NamedTuple

from penstock.core.schedule import Schedule
from penstock.errors import ShapeError
from penstock.plan.balance import TokenCost, balance_slices
from penstock.plan.level_cuts import level_cuts
from penstock.plan.packing import Packing, pack_tails
from penstock.schedules import Spec
from penstock.transform import weigh_slices

KEPT_ORDERS = 256
"""Orders that are kept; the one that was used longest ago goes first."""


class SliceRule(NamedTuple):
    """How sequences are cut, and what is kept of long ones."""

    size: int
    """Tokens of a slice at most."""
    retain: int = 1
    """Slices of a sequence that keep their activations; the others run forward twice."""
    warmup: int = 1
    """Slices of the sequence that devices warm up for."""


class OrderedBatch(NamedTuple):
    """A batch as microbatches, and the order of their ops."""

    packing: Packing
    schedule: Schedule
    """Its slices count as equal, so that batches share it."""


@dataclass(frozen=True, eq=False)
class RaggedBatches:
    """Makes the order of every batch by one rule."""

    spec: Spec
    devices: int
    rule: SliceRule
    longest: int
    """Most tokens of a sequence."""
    cost: TokenCost
    change: Callable[[Schedule], Schedule] = lambda schedule: schedule
    """What else is done to every order, such as offloading."""

    def __post_init__(self) -> None:
        if not self.spec.ragged:
            raise ShapeError(
                f"{self.spec.name} has no order for sequences of unequal lengths",
                hint="take a schedule with the option groups (see `penstock list`)",
            )

    def order(self, lengths: Sequence[int]) -> OrderedBatch:
        """Sequences of these lengths, packed and ordered."""
        self._refuse_long(lengths)
        packing = pack_tails(lengths, self.rule.size, self.longest)
        packing = level_cuts(balance_slices(packing, self.cost), self.cost).long_first()
        return OrderedBatch(packing, self.schedule(packing.slices))

    def weighed(self, batch: OrderedBatch) -> Schedule:
        """The order of a batch with the work of each slice, for predictions."""
        shares = [list(map(Fraction, costs)) for costs in self.cost.of_packing(batch.packing)]
        return weigh_slices(batch.schedule, shares)

    @cached_property
    def schedule(self) -> Callable[[tuple[int, ...]], Schedule]:
        """The order for microbatches of so many slices."""
        return lru_cache(maxsize=KEPT_ORDERS)(self._made)

    def _made(self, slices: tuple[int, ...]) -> Schedule:
        longest = max(slices)
        options = {
            "groups": ",".join(map(str, slices)),
            "retain": min(self.rule.retain, longest),
            "warmup": min(self.rule.warmup, longest),
        }
        case = self.spec.case(self.devices, len(slices), options=options)
        return self.change(self.spec.build(case))

    def _refuse_long(self, lengths: Sequence[int]) -> None:
        if lengths and max(lengths) > self.longest:
            number = max(range(len(lengths)), key=lambda each: lengths[each])
            raise ShapeError(
                f"sequence {number} of the batch has {lengths[number]:,} tokens, but the run was "
                f"planned for {self.longest:,}",
                hint="raise the longest length, or leave the sequence out",
            )
