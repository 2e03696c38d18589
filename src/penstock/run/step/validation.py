"""When an update is validated by the norm of the whole model, by the names of a configuration.

    before   an update waits for the norms of all stages; the next step begins on all devices at
             once, when the last one has its norm
    after    a stage is updated by what its own norm says, and the next step begins; the update is
             confirmed, or taken back and made anew, on the way (run/step/former_step.py)

Weights, moments and losses are the same bit for bit.
"""

from collections.abc import Mapping
from typing import Protocol

from torch.distributed import ProcessGroup

from penstock.errors import RunError, nearest
from penstock.model.stages.weights import Weights
from penstock.run.comm.mesh import Mesh
from penstock.run.program.step_end import StepEnd, end_step, end_step_early
from penstock.run.step.early_copy import EarlyCopy
from penstock.run.step.optimizer import StageOptimizer


class Validation(Protocol):
    """What an engine asks."""

    @property
    def end(self) -> StepEnd:
        """How a step ends."""
        ...

    @property
    def states(self) -> int:
        """How often a rank holds the main weights and moments that it owns."""
        ...

    def norms(self, mesh: Mesh) -> ProcessGroup | None:
        """The group that adds up the norm; made on all ranks when it is asked for."""
        ...

    def copy(self, weights: Weights, optimizer: StageOptimizer) -> EarlyCopy | None:
        """Room for what an update of a stage replaces."""
        ...


class ValidatedBefore:
    """Nothing is updated that would have to be put back."""

    end: StepEnd = staticmethod(end_step)
    states = 1

    def norms(self, mesh: Mesh) -> ProcessGroup | None:
        return mesh.world

    def copy(self, weights: Weights, optimizer: StageOptimizer) -> EarlyCopy | None:
        return None


class ValidatedAfter:
    """The norm is added up while the next step begins, over a group that nothing else uses."""

    end: StepEnd = staticmethod(end_step_early)
    states = 2

    def norms(self, mesh: Mesh) -> ProcessGroup | None:
        return mesh.beside

    def copy(self, weights: Weights, optimizer: StageOptimizer) -> EarlyCopy | None:
        return EarlyCopy(weights, optimizer)


VALIDATIONS: Mapping[str, Validation] = {"before": ValidatedBefore(), "after": ValidatedAfter()}


def validation_named(name: str) -> Validation:
    """The validation of a name."""
    if name not in VALIDATIONS:
        raise RunError(f"there is no validation {name!r}", hint=nearest(name, [*VALIDATIONS]))
    return VALIDATIONS[name]
