"""V: the squares of a stage's gradients, for the norm of the whole model."""

from typing import Protocol

from torch import Tensor

from penstock.run.program.values import Places, Values


class Normed(Protocol):
    """What a device keeps of a stage whose gradient has a norm."""

    def share(self, total: Tensor) -> None:
        """Take over the summed gradient of the weight that another stage has too."""
        ...

    def squares(self) -> Tensor: ...

    def hand_over(self) -> None:
        """The gradient is complete: whoever updates by it elsewhere takes it now."""
        ...


def take_norm(kept: Normed, piece: None, values: Values, reads: Places, writes: Places) -> None:
    """A weight that two stages have is counted once, with the gradient of both."""
    _, shared = reads
    norm, own = writes
    if values[shared] is not None:
        kept.share(values[shared])
    values[own] = kept.squares()
    values[norm] = values[own].clone()  # what is added up replaces its first part
    kept.hand_over()
