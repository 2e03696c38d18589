"""Steps that are done and not yet written down.

Where updates are validated after they were made, the loss of a step is known while the next one is
under way. Until then the run keeps what its record needs. What ranks say of a step goes round
beside the next one too: a rank that waited for all others here would lose what it has won.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.run.comm.collective import begin_sum
from penstock.run.comm.mesh import Mesh
from penstock.run.policies.one_ahead import MakingTimes


class Glance(NamedTuple):
    """What each rank says of its own step."""

    busy: float
    """Seconds in which it computed."""
    lane: float
    """Seconds from its first op to its last."""
    memory: float
    """Peak bytes."""
    told_to_stop: float
    """Above 0 where it was."""
    flops: float
    """What the model needs for the batch of its replica."""


@dataclass
class Unrecorded:
    """One step."""

    step: int
    """Steps done, this one included."""
    rate: float
    tokens: int
    """Of all steps up to this one."""
    said: Tensor
    """A row for each rank, of which others fill theirs."""
    heard: Callable[[], object]
    """Waits until they have."""
    seconds: float = 0.0
    plan: str = ""
    """The plan that was in force."""
    batch_tokens: int = 0
    """Tokens of the step, padding apart."""
    making: MakingTimes | None = None
    """What its plan took, where each batch has its own."""

    @classmethod
    def of(cls, step: int, rate: float, tokens: int, own: Glance, mesh: Mesh) -> "Unrecorded":
        """Tell all ranks what this one says."""
        said = torch.zeros(mesh.grid.ranks, len(Glance._fields), dtype=torch.float64)
        said[mesh.rank] = torch.tensor(own, dtype=torch.float64)
        return cls(step, rate, tokens, said, begin_sum(said, mesh.world))

    def glances(self) -> list[Glance]:
        """What every rank says of the step, known to all."""
        self.heard()
        self.heard = lambda: None
        return [Glance(*row) for row in self.said.tolist()]
