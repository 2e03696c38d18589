"""How a step ends for one stage: its gradient reduced, its norm taken, its weights updated.

The norm is a sum over the parameters of all devices. Each device writes the squares of its own into
a list that has a place for every parameter of the model, and the lists are added up over devices:
all other entries are zero, so the sum is exact, and adding it up in the order of the model gives
the same norm however the model is spread. Where ranks own ranges, a parameter that the end of a
range cuts has squares of two ranks, and its sum is rounded otherwise.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from penstock.arch.ownership import OwnedPart
from penstock.arch.parameter_layout import ParameterPart
from penstock.arch.parameters import HEAD
from penstock.errors import RunError
from penstock.model.kernels.choice import fusible
from penstock.model.stages.weights import Weights
from penstock.run.comm.collective import add_up
from penstock.run.comm.mesh import Mesh
from penstock.run.step.early_copy import EarlyCopy
from penstock.run.step.optimizer import StageOptimizer, clip_factor
from penstock.run.step.outcome import Totals
from penstock.run.step.sharding import Sharding

NORM_PART = 1 << 22
"""Elements whose norm is taken at a time: 32 MiB in 64 bits."""


@dataclass
class Rate:
    """What the optimizer is told anew in every step."""

    learning_rate: float = 0.0
    scale: float = 1.0
    """Weight of one label in the loss."""


@dataclass(frozen=True, eq=False)
class StageEnd:
    """What a device keeps of a stage whose weights it holds."""

    weights: Weights
    mesh: Mesh
    names: Mapping[str, int]
    """The place of every parameter along the model."""
    tied: bool
    """Whether the embedding and the head of the model are one weight."""
    optimizer: StageOptimizer
    rate: Rate
    clip: float
    losses: Callable[[], Sequence[Tensor]]
    """Losses that this stage has met in the step; none but the last stage has some."""
    sharding: Sharding
    gradient: Tensor
    """What this rank has added up of the whole stage's gradient."""
    parted: frozenset[str] = frozenset()
    """Sums of which tensor ranks that hold the same parameter have only parts."""
    early: EarlyCopy | None = None
    """Where this stage is updated before the norm of the whole model is known."""

    def reduce(self) -> None:
        """Add up the gradient over all ranks that have parts of it: of parameters that several
        ranks of a cell hold, and then over copies of the weights."""
        for holders, parts in self._parted.items():
            found = [self.gradient[part.offset : part.stop] for part in parts]
            total = torch.cat(found)
            add_up(total, self.mesh.holders(holders))
            for part, new in zip(found, torch.split(total, [len(part) for part in found])):
                part.copy_(new)
        self.sharding.reduce(self.weights, self.gradient, self.mesh)

    def shared_gradient(self) -> Tensor | None:
        """The gradient of the weight that embedding and head share.

        The two have separate gradients everywhere, so that their sum is the same however the model
        is spread; a stage that has both adds them up here.
        """
        shared = self._shared()
        if not shared:
            return None
        for other in shared[1:]:
            shared[0].add_(other)
        return shared[0]

    def share(self, total: Tensor) -> None:
        """Take over the sum of both gradients."""
        for gradient in self._shared():
            if gradient.data_ptr() != total.data_ptr():
                gradient.copy_(total)

    def _shared(self) -> list[Tensor]:
        return self.sharding.shared(self.weights) if self.tied else []

    def squares(self) -> Tensor:
        """The loss of the step so far, and the square of the gradient norm of what is owned of each
        parameter, at its place in the model, in 64 bits. Copies of a weight that lives elsewhere do
        not count."""
        found = torch.zeros(
            1 + len(self.names), dtype=torch.float64, device=self.weights.grad.device
        )
        for loss in self.losses():
            found[0] += loss
        if self._counted:
            found[self._places] = self._square_sums()
        return found.cpu()  # at once: each number by itself would make the host wait for the GPU

    @cached_property
    def _counted(self) -> dict[str, OwnedPart]:
        """Parameters whose squares this stage has to count."""
        parts = self.weights.own.parts
        own = {
            name: each
            for name, each in parts.items()
            if each.part.holders.start == self.mesh.tensor and self._counts(each.part)
        }
        return {name: part for name, part in own.items() if not (self.tied and name == HEAD)}

    def _counts(self, part: ParameterPart) -> bool:
        """Whether this rank counts a part, of all that have the same."""
        if part.dealt_over > 1:
            return self.mesh.counts_dealt(part.dealt_over)
        return self.sharding.counts(self.mesh)

    @cached_property
    def _parted(self) -> dict[tuple[range, ...], list[ParameterPart]]:
        """Parameters whose gradient several ranks of the cell have parts of, by who these are."""
        found: dict[tuple[range, ...], list[ParameterPart]] = {}
        for part in self.weights.layout.parts.values():
            if part.is_parted(self.parted):
                found.setdefault(part.among, []).append(part)
        return found

    @cached_property
    def _places(self) -> Tensor:
        """Where their squares stand."""
        places = [1 + self.names[name] for name in self._counted]
        return torch.tensor(places, device=self.weights.grad.device)

    @cached_property
    def _blocks(self) -> Any:
        from penstock.model.kernels.adamw import Blocks  # deferred: needs Triton

        counted, grad = self._counted, self.weights.grad
        if len(grad) == self.weights.own.elements:  # has only what is owned
            counted = {
                name: part._replace(offset=part.kept, stop=part.kept + part.elements)
                for name, part in counted.items()
            }
        return Blocks.of(counted, grad.device)

    def _square_sums(self) -> Tensor:
        """The sum of squares of the gradient of what is owned of each parameter."""
        if fusible(self.weights.grad):
            from penstock.model.kernels.adamw import fused_squares  # deferred: needs Triton

            return fused_squares(self.weights.grad, self._blocks)
        grads = self.weights.owned(self.weights.grad)
        return torch.stack([square_sum(grads[name]) for name in self._counted])

    def hand_over(self) -> None:
        """Let the optimizer have the gradient, which nobody adds to any more."""
        self.optimizer.take_gradient()

    def update(self, vector: Tensor) -> None:
        """Clip by the norm of the whole model, let the optimizer update what is owned, and compute
        with what all owners have updated."""
        totals = Totals.of(vector)
        refuse_broken(totals, self.rate.scale)
        factor = clip_factor(totals.norm, self.clip)
        self.optimizer.update(self.rate.learning_rate, factor)
        self.sharding.gather(self.weights, self.mesh)

    def update_early(self, own: Tensor) -> None:
        """Update by the gradient as it is, unless what this rank counts of loss and norm already
        says that it is wrong: then so does the whole. Others gather in any case."""
        assert self.early is not None, "the program of an engine without room for early updates"
        totals, rate = Totals.of(own), self.rate
        if totals.is_number(rate.scale) and clip_factor(totals.norm, self.clip) == 1:
            self.early.take()
            self.optimizer.update(rate.learning_rate, 1.0)
        self.sharding.gather(self.weights, self.mesh)

    def confirm(self, totals: Totals, rate: Rate) -> None:
        """Leave an early update as it is, or put it back and make the one that all ranks know to
        be right, with the rate of that step; where there is none, the weights are as before."""
        assert self.early is not None, "the program of an engine without room for early updates"
        factor = clip_factor(totals.norm, self.clip)
        if totals.is_number(rate.scale) and factor == 1:
            self.early.drop()
            return
        self.early.put_back()
        if totals.is_number(rate.scale):
            self.optimizer.update(rate.learning_rate, factor)
        else:
            self.weights.publish()
        self.sharding.gather(self.weights, self.mesh)


def square_sum(grad: Tensor) -> Tensor:
    """The sum of squares in 64 bits, part by part: torch makes a copy in 64 bits of what it
    reduces, and that of a whole embedding may be the largest tensor of a run."""
    parts = torch.split(grad.reshape(-1), NORM_PART)
    norms = [torch.linalg.vector_norm(part, dtype=torch.float64).square() for part in parts]
    return torch.stack(norms).sum()


def refuse_broken(totals: Totals, scale: float) -> None:
    """Refuse to update by what is no number."""
    if not totals.is_number(scale):
        raise RunError(
            f"the loss is {totals.loss * scale} and the norm of the gradient {totals.norm}",
            hint="lower the learning rate or clip the gradient; the weights are those before "
            "this step",
        )
