"""How ranks that hold the same stage share the work of its optimizer.

    none        every rank adds up the whole gradient and updates everything
    optimizer   every rank owns a range of the stage: the sum of the gradient goes to the owner, who
                updates it, and then the new values go to all
    full        the same, and a rank has nothing but its range; whole stages are in buffers for as
                long as they are needed (run/step/full_sharding.py)

The second moves as much, since a sum for all is a sum for owners and a gather, and values that are
computed with may be narrower than gradients. It keeps main weights and moments once, not in every
replica. The gradient that embedding and head of a tied model share is dealt apart
(arch/ownership.py): a rank owns the same elements of it in both stages, so that the sum over both
is again taken range by range, before the norm.

Ranges may be dealt inside of groups of ranks, as those of one machine. Then a sum goes to owners
inside of each group, and the same ranges of all groups are added up.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from penstock.arch.ownership import Ownership
from penstock.arch.parameter_layout import ParameterLayout
from penstock.arch.parameters import EMBEDDING, HEAD
from penstock.errors import RunError
from penstock.model.stages.weights import Weights
from penstock.run.comm.collective import add_up
from penstock.run.comm.dealt_ranges import gather_ranges, scatter_sum
from penstock.run.comm.mesh import Mesh
from penstock.run.program.sharded_schedule import BufferCounts
from penstock.run.step.gradient_runs import gradient_runs


class Sharding(Protocol):
    """What the end of a step asks, stage by stage."""

    @property
    def buffers(self) -> BufferCounts | None:
        """How many buffers whole stages use in turn; None where every rank has its stages whole."""
        ...

    def groups(self, mesh: Mesh) -> list[ProcessGroup | None]:
        """The groups that it sums and gathers over; made on all ranks when they are asked for."""
        ...

    def empty(
        self, own: Ownership, *, dtype: torch.dtype, main: torch.dtype, device: torch.device
    ) -> Weights:
        """What a rank keeps of a stage."""
        ...

    def ownership(self, parameters: ParameterLayout, mesh: Mesh, *, tied: bool) -> Ownership:
        """What this rank owns of a stage; `tied` where embedding and head of the model are one."""
        ...

    def reduce(self, weights: Weights, gradient: Tensor, mesh: Mesh) -> None:
        """Add up what ranks that hold the same stage have of its gradient, at least what is
        owned."""
        ...

    def shared(self, weights: Weights) -> list[Tensor]:
        """Gradients of the ends of a tied model that this stage has, reduced."""
        ...

    def counts(self, mesh: Mesh) -> bool:
        """Whether this rank takes the squares of what it owns: they must count once."""
        ...

    def gather(self, weights: Weights, mesh: Mesh) -> None:
        """Get from their owners the values that this rank computes with and others publish."""
        ...

    def complete(self, weights: Weights, mesh: Mesh) -> Tensor:
        """The whole gradient, the same on all ranks, once it is reduced and shared."""
        ...

    def held(self, weights: Weights) -> dict[str, Tensor]:
        """What this rank has of the value of each parameter between steps."""
        ...

    def copies(self, mesh: Mesh) -> ProcessGroup | None:
        """The ranks that hold the same as this one between steps; None where no other does."""
        ...


class ReplicatedOptimizer:
    """Every rank does everything."""

    buffers: BufferCounts | None = None

    def groups(self, mesh: Mesh) -> list[ProcessGroup | None]:
        return [mesh.copies]

    def empty(
        self, own: Ownership, *, dtype: torch.dtype, main: torch.dtype, device: torch.device
    ) -> Weights:
        return Weights.empty(own.layout, dtype=dtype, main=main, device=device, own=own)

    def ownership(self, parameters: ParameterLayout, mesh: Mesh, *, tied: bool) -> Ownership:
        return Ownership(parameters)

    def reduce(self, weights: Weights, gradient: Tensor, mesh: Mesh) -> None:
        """What several tensor ranks hold is added up apart. The order of a sum of three and more
        depends on where an element lies in the buffer, and tensor ranks that share the other
        parameters unevenly have it at different places: they would drift apart bit by bit."""
        held = _held_by_several(weights, gradient) if mesh.copy_count > 2 else []
        apart = torch.cat(held) if held else None
        for run in gradient_runs(weights.layout, mesh):
            add_up(gradient[run.where], run.group)
        if apart is not None:
            add_up(apart, mesh.copies)
            for part, total in zip(held, torch.split(apart, [len(part) for part in held])):
                part.copy_(total)

    def shared(self, weights: Weights) -> list[Tensor]:
        gradients = weights.named(weights.grad)
        return [gradients[name] for name in (EMBEDDING, HEAD) if name in gradients]

    def counts(self, mesh: Mesh) -> bool:
        """All ranks hold the same gradients."""
        return mesh.counts

    def gather(self, weights: Weights, mesh: Mesh) -> None:
        return None

    def complete(self, weights: Weights, mesh: Mesh) -> Tensor:
        return weights.grad

    def held(self, weights: Weights) -> dict[str, Tensor]:
        return weights.named(weights.value) | weights.frozen_values()

    def copies(self, mesh: Mesh) -> ProcessGroup | None:
        return mesh.copies


def _held_by_several(weights: Weights, gradient: Tensor) -> list[Tensor]:
    """Gradients of parameters of which some tensor ranks hold the same part; as long, and in the
    same order, on all tensor ranks."""
    return [
        gradient[part.offset : part.stop]
        for part in weights.layout.parts.values()
        if any(len(holders) > 1 for holders in part.among)
    ]


@dataclass(frozen=True)
class OptimizerShards(ReplicatedOptimizer):
    """Every rank updates what it owns."""

    ranks: int = 0
    """How many share a stage, of all that hold it; 0 stands for all."""

    def groups(self, mesh: Mesh) -> list[ProcessGroup | None]:
        held = mesh.copy_count
        if self.ranks < 0 or (self.ranks and held % self.ranks):
            raise RunError(
                f"{held} ranks hold the same weights, which cannot be shared by groups of "
                f"{self.ranks}",
                hint=f"set shard_ranks to a divisor of {held}, or to 0 for all of them",
            )
        return [mesh.sharers(self.ranks), mesh.across(self.ranks)]

    def ownership(self, parameters: ParameterLayout, mesh: Mesh, *, tied: bool) -> Ownership:
        group = mesh.sharers(self.ranks)
        index, of = (group.rank(), group.size()) if group else (0, 1)
        apart = (EMBEDDING, HEAD) if tied and not parameters.shared else ()
        return Ownership(parameters, index, of, apart)

    def reduce(self, weights: Weights, gradient: Tensor, mesh: Mesh) -> None:
        """A head beside its embedding has its values there, and adds its gradient there first."""
        gradients = weights.named(gradient)
        for name, original in weights.layout.shared.items():
            gradients[original].add_(gradients[name])
        for run in weights.own.runs:
            scatter_sum(gradient, run.cuts, mesh.sharers(self.ranks))
            add_up(gradient[run.own.start : run.own.stop], mesh.across(self.ranks))

    def shared(self, weights: Weights) -> list[Tensor]:
        gradients = weights.owned(weights.grad)
        return [gradients[name] for name in (EMBEDDING, HEAD) if name in gradients]

    def counts(self, mesh: Mesh) -> bool:
        """No other rank of its group owns the same."""
        others = mesh.across(self.ranks)
        return others is None or others.rank() == 0

    def gather(self, weights: Weights, mesh: Mesh) -> None:
        for run in weights.own.runs:
            gather_ranges(weights.value, run.cuts, mesh.sharers(self.ranks))

    def complete(self, weights: Weights, mesh: Mesh) -> Tensor:
        return self._complete(weights, weights.grad, mesh)

    def _complete(self, weights: Weights, gradient: Tensor, mesh: Mesh) -> Tensor:
        for run in weights.own.runs:
            gather_ranges(gradient, run.cuts, mesh.sharers(self.ranks))
        gradients = weights.named(gradient)
        for name, original in weights.layout.shared.items():
            gradients[name].copy_(gradients[original])
        return gradient
