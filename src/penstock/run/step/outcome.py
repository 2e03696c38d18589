"""What a step says of itself."""

from math import isfinite, sqrt
from typing import NamedTuple

from torch import Tensor


class Totals(NamedTuple):
    """What the whole batch came to, on all devices of all replicas."""

    loss: float
    """Sum over the labels that count."""
    norm: float
    """Of the whole model's gradient, before clipping."""

    @classmethod
    def of(cls, vector: Tensor) -> "Totals":
        loss, *squares = vector.tolist()
        return cls(loss, sqrt(sum(squares)))

    def is_number(self, scale: float) -> bool:
        """Whether weights can be updated by it; `scale` is the weight of a label in the loss."""
        return isfinite(self.loss * scale) and isfinite(self.norm)


class Outcome(NamedTuple):
    """What a step says of itself; the same on every rank."""

    loss: float
    """Mean over the labels that count."""
    norm: float
    """Of the whole model's gradient, before clipping."""
    labels: int

    @classmethod
    def of(cls, totals: Totals, labels: int) -> "Outcome":
        return cls(totals.loss / max(labels, 1), totals.norm, labels)
