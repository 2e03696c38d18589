"""Main weights and moments of a stage as they were before an update that may be taken back.

The inverse of AdamW is another rounding; a copy is exact. It takes as much memory as main weights
and moments of what the rank owns, and is there from the start, so that memory is refused at once
where there is too little.
"""

import torch
from torch import Tensor

from penstock.model.stages.weights import Weights
from penstock.run.step.optimizer import StageOptimizer


class EarlyCopy:
    """The room for one stage, and whether it has something to put back."""

    def __init__(self, weights: Weights, optimizer: StageOptimizer) -> None:
        self._optimizer = optimizer
        own = [weights.owned_run(weights.main, run) for run in weights.own.runs]
        self._updated = [*own, *optimizer.moments.values()]
        self._kept: list[Tensor] = [torch.empty_like(each) for each in self._updated]
        self._steps = 0
        self.taken = False
        """Whether the stage has been updated since, and nobody has confirmed that."""

    @property
    def bytes(self) -> int:
        """What it takes, where main weights and moments are."""
        return sum(kept.nbytes for kept in self._kept)

    def take(self) -> None:
        """Remember everything as it is, before an update."""
        for kept, now in zip(self._kept, self._updated):
            kept.copy_(now)
        self._steps, self.taken = self._optimizer.steps, True

    def drop(self) -> None:
        """The update is right."""
        self.taken = False

    def put_back(self) -> None:
        """Undo the update, if there was one."""
        if self.taken:
            for kept, now in zip(self._kept, self._updated):
                now.copy_(kept)
            self._optimizer.steps, self.taken = self._steps, False
