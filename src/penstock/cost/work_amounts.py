"""How much of each kind of work ops do."""

from typing import NamedTuple

from penstock.cost.passes import Counts


class WorkAmounts(NamedTuple):
    """How much of each kind of work is done; FLOPs, then bytes."""

    linear: Counts
    attention: Counts
    attention_backward: Counts
    lookup: Counts
    copy: Counts

    @property
    def flops(self) -> Counts:
        return self.linear + self.attention + self.attention_backward
