"""U: the optimizer's update of a stage."""

from typing import Protocol

from torch import Tensor

from penstock.run.program.values import Places, Values


class Updatable(Protocol):
    """What a device keeps of a stage whose weights are updated."""

    def update(self, norm: Tensor) -> None: ...


def update(kept: Updatable, piece: None, values: Values, reads: Places, writes: Places) -> None:
    """The norm is that of the whole model, the same on every device."""
    _, norm = reads
    kept.update(values[norm])
