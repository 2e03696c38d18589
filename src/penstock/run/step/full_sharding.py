"""Fully sharded weights: a rank keeps its range of each stage, and whole stages come and go.

What is kept is the range of values, main weights, moments and reduced gradient. Whole values exist
in a few buffers that the stages of a device use in turn: `G` fills one, ops read it until another
stage needs it. Gradients are added up in buffers of the same kind, which are zero whenever a stage
begins to use them. `Z` adds what is in one to the range that is kept, and leaves the buffer zero: a
stage that has to leave its buffer to another is reduced more than once in a step. A stage that
never leaves its gradient buffer keeps the range there, and has no other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from penstock.arch.ownership import Ownership
from penstock.model.stages.stage import Viewing
from penstock.model.stages.weights import Weights
from penstock.run.comm.dealt_ranges import gather_ranges
from penstock.run.comm.mesh import Mesh
from penstock.run.program.rotation import Rotation, in_buffer
from penstock.run.program.sharded_schedule import TWO_BUFFERS, BufferCounts
from penstock.run.step.sharding import OptimizerShards

OWN = -1
"""Stands for the gradient that a stage has to itself where buffers are numbered."""


@dataclass(frozen=True)
class FullShards(OptimizerShards):
    """Every rank has what it owns, and nothing else between steps."""

    buffers: BufferCounts | None = TWO_BUFFERS

    def empty(
        self, own: Ownership, *, dtype: torch.dtype, main: torch.dtype, device: torch.device
    ) -> Weights:
        return Weights.sharded(own, dtype=dtype, main=main, device=device)

    def reduce(self, weights: Weights, gradient: Tensor, mesh: Mesh) -> None:
        """Also where a rank is alone: what another buffer has left is added to."""
        super().reduce(weights, gradient, mesh)
        if gradient is weights.grad:
            return  # the buffer of no other stage
        for run in weights.own.runs:
            weights.owned_run(weights.grad, run).add_(gradient[run.own.start : run.own.stop])
        gradient.zero_()

    def gather(self, weights: Weights, mesh: Mesh) -> None:
        """The gather of the next step brings the new values."""
        return

    def fetch(self, weights: Weights, whole: Tensor, mesh: Mesh) -> None:
        """Fill a buffer with the values of a stage."""
        for run in weights.own.runs:
            whole[run.own.start : run.own.stop].copy_(weights.owned_run(weights.value, run))
            gather_ranges(whole, run.cuts, mesh.sharers(self.ranks))
        frozen, own = whole[weights.layout.stored :], weights.own.frozen
        for run in own.runs if own else ():
            frozen[run.own.start : run.own.stop].copy_(
                weights.frozen[run.kept.start : run.kept.stop]
            )
            gather_ranges(frozen, run.cuts, mesh.sharers(self.ranks))

    def complete(self, weights: Weights, mesh: Mesh) -> Tensor:
        if weights.has_whole_gradient:
            return super().complete(weights, mesh)
        whole = weights.grad.new_zeros(weights.layout.elements)
        for run in weights.own.runs:
            whole[run.own.start : run.own.stop].copy_(weights.owned_run(weights.grad, run))
        return self._complete(weights, whole, mesh)

    def held(self, weights: Weights) -> dict[str, Tensor]:
        return weights.owned(weights.value) | weights.frozen_values()

    def copies(self, mesh: Mesh) -> ProcessGroup | None:
        return mesh.across(self.ranks)


@dataclass(frozen=True, eq=False)
class StageGather:
    """A stage and the buffer that one of its gathers fills."""

    sharding: FullShards
    weights: Weights
    whole: Tensor
    mesh: Mesh

    def gather(self) -> None:
        self.sharding.fetch(self.weights, self.whole, self.mesh)


class BufferPool:
    """The buffers of a device, each as large as the largest stage that uses it."""

    def __init__(self, stages: Mapping[int, Viewing], weights: Mapping[int, Weights]) -> None:
        self._stages, self._weights = stages, weights
        self.flat: dict[str, list[Tensor]] = {"weight": [], "dw": []}
        """By the name of what they hold; those of gradients are zero where no stage uses them."""
        self._views: dict[tuple[str, int, int], Any] = {}

    def grow(self, rotation: Rotation) -> None:
        """Have room for what a program uses, at least."""
        for name, buffers in self.flat.items():
            for number, users in enumerate(rotation.users(name)):
                rotating = (s for s in users if not self._keeps(rotation, name, s))
                elements = max((self._elements(name, s) for s in rotating), default=0)
                if number < len(buffers):
                    _lengthen(buffers[number], elements)
                else:
                    buffers.append(self._like(name).new_zeros(elements))

    def part(self, rotation: Rotation, name: str, stage: int, buffer: int) -> Tensor:
        """As much of a buffer as a stage needs, or the gradient that it has to itself."""
        if self._keeps(rotation, name, stage):
            return self._weights[stage].grad
        return self.flat[name][buffer][: self._elements(name, stage)]

    def homes(self, rotation: Rotation) -> dict[tuple[str, int], Any]:
        """What ops of a program find in their places: views, made once for a stage and buffer."""
        return {
            (in_buffer(name, buffer), stage): self._view(rotation, name, stage, buffer)
            for name in self.flat
            for stage, buffer in rotation.uses(name)
        }

    def _view(self, rotation: Rotation, name: str, stage: int, buffer: int) -> Any:
        key = (name, stage, OWN if self._keeps(rotation, name, stage) else buffer)
        if key not in self._views:
            part, layout = self.part(rotation, name, stage, buffer), self._weights[stage].layout
            frozen = part[layout.stored :] if name == "weight" else None
            trained = part[: layout.stored] if name == "weight" else part
            self._views[key] = self._stages[stage].views(trained, frozen)
        return self._views[key]

    def _keeps(self, rotation: Rotation, name: str, stage: int) -> bool:
        """Whether a stage has the buffer of its weights instead of one of these."""
        staying = name == "dw" and stage in rotation.staying
        return staying and self._weights[stage].has_whole_gradient

    def _like(self, name: str) -> Tensor:
        some = next(iter(self._weights.values()))
        return some.value if name == "weight" else some.grad

    def _elements(self, name: str, stage: int) -> int:
        layout = self._weights[stage].layout
        if name == "dw":
            return layout.elements
        return layout.stored + (layout.frozen.stored if layout.frozen else 0)

    def clear(self) -> None:
        """Give back the memory."""
        self._views.clear()
        for buffers in self.flat.values():
            buffers.clear()


def _lengthen(flat: Tensor, elements: int) -> None:
    """Have at least so many elements, the new ones zero; views of the others stay what they are."""
    before = len(flat)
    if before < elements:
        flat.resize_(elements)[before:].zero_()
