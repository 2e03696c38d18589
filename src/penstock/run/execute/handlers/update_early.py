"""A: a stage is updated by what its own norm says, before that of the model is known."""

from typing import Protocol

from torch import Tensor

from penstock.run.program.values import Places, Values


class EarlyUpdatable(Protocol):
    """What a device keeps of a stage whose weights are updated early."""

    def update_early(self, own: Tensor) -> None: ...


def update_early(
    kept: EarlyUpdatable, piece: None, values: Values, reads: Places, writes: Places
) -> None:
    """Waits for no other stage."""
    _, own = reads
    kept.update_early(values[own])
    values[own] = None
