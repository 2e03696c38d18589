"""Kernels that know a slice with its past, all rows at once.

Queries are fewer than keys and aligned with the last ones, so one call does a slice of one document
and nothing has to be merged.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from penstock.model.attention.aten import Gradients, Output
from penstock.model.attention.back_end import AttentionSaved, Fits, Leave
from penstock.model.attention.reach import Reach


@dataclass(frozen=True)
class OneCall:
    """A back end made of the forward and the backward of a kernel for slices of one document."""

    name: str
    serves: Fits
    ahead: Callable[[Tensor, Tensor, Tensor, bool], Output]
    back: Callable[[Tensor, Tensor, Tensor, Tensor, Output, bool], Gradients]

    def forward(self, q: Tensor, k: Tensor, v: Tensor, reach: Reach) -> Output:
        return self.ahead(q, k, v, True)

    def backward(self, g: Tensor, saved: AttentionSaved, reach: Reach, leave: Leave) -> Gradients:
        q, k, v, *seen = saved
        dq, dk, dv = self.back(g, q, k, v, (seen[0], seen[1]), True)
        return dq, *leave_past(dk, dv, reach, leave)


def leave_past(dk: Tensor, dv: Tensor, reach: Reach, leave: Leave) -> tuple[Tensor, Tensor]:
    """Hand on the gradients of the keys before a slice; those of its own are returned."""
    past = reach.past
    if past:
        leave(range(past), dk[:, :, :past], dv[:, :, :past])
    return dk[:, :, past:], dv[:, :, past:]
