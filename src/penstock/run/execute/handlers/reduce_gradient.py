"""Z: the gradient of a stage, added up over the replicas of the pipeline."""

from typing import Protocol

from torch import Tensor

from penstock.run.program.values import Places, Values


class Reducible(Protocol):
    """What a device keeps of a stage whose gradient is added up."""

    def reduce(self) -> None: ...

    def shared_gradient(self) -> Tensor | None:
        """The gradient of the weight that another stage has too."""
        ...


def reduce_gradient(
    kept: Reducible, piece: None, values: Values, reads: Places, writes: Places
) -> None:
    """The sum replaces this replica's own gradient."""
    (dw,) = reads
    reduced, shared = writes
    kept.reduce()
    values[reduced] = values[dw]
    values[shared] = kept.shared_gradient()
