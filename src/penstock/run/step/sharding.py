"""How ranks that hold the same stage share the work of its optimizer.

    none        every rank adds up the whole gradient and updates everything
    optimizer   every rank owns a range of the stage: the sum of the gradient goes to the owner, who
                updates it, and then the new values go to all

The second moves as much, since a sum for all is a sum for owners and a gather, and values that are
computed with may be narrower than gradients. It keeps main weights and moments once, not in every
replica. The gradient that embedding and head of a tied model share is dealt apart
(arch/ownership.py): a rank owns the same elements of it in both stages, so that the sum over both
is again taken range by range, before the norm.
"""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from penstock.arch.ownership import Ownership
from penstock.arch.parameter_layout import ParameterLayout
from penstock.arch.parameters import EMBEDDING, HEAD
from penstock.errors import RunError, nearest
from penstock.model.stages.weights import Weights
from penstock.run.comm.collective import add_up
from penstock.run.comm.dealt_ranges import gather_ranges, scatter_sum
from penstock.run.comm.mesh import Mesh


class Sharding(Protocol):
    """What the end of a step asks, stage by stage."""

    def ownership(self, parameters: ParameterLayout, mesh: Mesh, *, tied: bool) -> Ownership:
        """What this rank owns of a stage; `tied` where embedding and head of the model are one."""
        ...

    def reduce(self, weights: Weights, mesh: Mesh) -> None:
        """Add up the gradient over the ranks that hold the same stage, at least what is owned."""
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

    def complete(self, weights: Weights, mesh: Mesh) -> None:
        """Give all ranks the whole gradient, once it is reduced and shared."""
        ...


class Replicated:
    """Every rank does everything."""

    def ownership(self, parameters: ParameterLayout, mesh: Mesh, *, tied: bool) -> Ownership:
        return Ownership(parameters)

    def reduce(self, weights: Weights, mesh: Mesh) -> None:
        """What several tensor ranks hold is added up apart. The order of a sum of three and more
        depends on where an element lies in the buffer, and tensor ranks that share the other
        parameters unevenly have it at different places: they would drift apart bit by bit."""
        held = _held_by_several(weights) if mesh.copies and mesh.copies.size() > 2 else []
        apart = torch.cat(held) if held else None
        add_up(weights.grad, mesh.copies)
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

    def complete(self, weights: Weights, mesh: Mesh) -> None:
        return None


def _held_by_several(weights: Weights) -> list[Tensor]:
    """Gradients of parameters of which some tensor ranks hold the same part; as long, and in the
    same order, on all tensor ranks."""
    return [
        weights.grad[part.offset : part.stop]
        for part in weights.layout.parts.values()
        if any(len(holders) > 1 for holders in part.among)
    ]


class OptimizerShards:
    """Every rank updates what it owns."""

    def ownership(self, parameters: ParameterLayout, mesh: Mesh, *, tied: bool) -> Ownership:
        group = mesh.copies
        index, of = (group.rank(), group.size()) if group else (0, 1)
        apart = (EMBEDDING, HEAD) if tied and not parameters.shared else ()
        return Ownership(parameters, index, of, apart)

    def reduce(self, weights: Weights, mesh: Mesh) -> None:
        """A head beside its embedding has its values there, and adds its gradient there first."""
        gradients = weights.named(weights.grad)
        for name, original in weights.layout.shared.items():
            gradients[original].add_(gradients[name])
        for run in weights.own.runs:
            scatter_sum(weights.grad, run.cuts, mesh.copies)

    def shared(self, weights: Weights) -> list[Tensor]:
        gradients = weights.owned(weights.grad)
        return [gradients[name] for name in (EMBEDDING, HEAD) if name in gradients]

    def counts(self, mesh: Mesh) -> bool:
        """No other rank owns the same."""
        return True

    def gather(self, weights: Weights, mesh: Mesh) -> None:
        for run in weights.own.runs:
            gather_ranges(weights.value, run.cuts, mesh.copies)

    def complete(self, weights: Weights, mesh: Mesh) -> None:
        for run in weights.own.runs:
            gather_ranges(weights.grad, run.cuts, mesh.copies)
        gradients = weights.named(weights.grad)
        for name, original in weights.layout.shared.items():
            gradients[name].copy_(gradients[original])


SHARDINGS: Mapping[str, Sharding] = {"none": Replicated(), "optimizer": OptimizerShards()}


def sharding_named(name: str) -> Sharding:
    """The sharding that a configuration names."""
    if name not in SHARDINGS:
        raise RunError(f"there is no sharding {name!r}", hint=nearest(name, [*SHARDINGS]))
    return SHARDINGS[name]
