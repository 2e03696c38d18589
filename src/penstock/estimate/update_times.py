"""Seconds of the end of a step: the norm of the gradients, and the update of the weights.

Both only move bytes. The norm reads each gradient. The update reads gradient, main weight and two
moments in 32 bits and writes the last three and the weight that is computed with: 7 x 4 + 2 = 30
bytes of a parameter with 16 bits.
"""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.arch.layers.record import wide_bytes
from penstock.arch.ownership import most_owned
from penstock.core.shape import Shape
from penstock.cost.workload import Workload
from penstock.estimate.products import KERNEL_START
from penstock.plan.stage_parameters import stage_elements, stored_elements


@dataclass(frozen=True)
class UpdateTimes:
    """Of a rank's stages, of whose parameters it owns one of `owners` parts."""

    workload: Workload
    shape: Shape
    owners: int
    rate_of: Callable[[str], float]
    """Bytes per second of a V, or of an update."""

    def seconds(self, kind: str, stage: int) -> float:
        """Of a V, or of an update."""
        narrow = self.workload.model.element_bytes
        wide = wide_bytes(narrow)
        if kind == "V":
            elements = stage_elements(self.workload, stage, self.shape)
            return KERNEL_START + most_owned(elements, self.owners) * wide / self.rate_of(kind)
        owned = most_owned(stored_elements(self.workload, stage, self.shape), self.owners)
        moved = owned * (7 * wide + narrow * (narrow < wide))
        return KERNEL_START + moved / self.rate_of(kind)
