"""The flat buffers of a stage: what it computes with, and the gradients it adds up.

A stage's parameters lie in a fixed order in one buffer of each kind, so that reductions over
replicas and the optimizer work on whole buffers; a parameter by name is a view. A head that is tied
to the embedding of the same stage is a view of it, and has a gradient of its own. Of what the
optimizer updates, a rank may own a part; then others update the rest. What is frozen has one buffer
more, of values in the type that is computed in.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from penstock.arch.ownership import OwnedPart, OwnedRun, Ownership
from penstock.arch.parameter_layout import ParameterLayout


@dataclass(frozen=True, eq=False)
class Weights:
    """Flat buffers of one stage. `main` is what the optimizer updates, `value` what is computed
    with: the same memory where both have one type. Otherwise `main` has what the rank owns."""

    layout: ParameterLayout
    main: Tensor
    value: Tensor
    grad: Tensor
    own: Ownership
    frozen: Tensor
    """Values that are not trained; of all the stage, or of what the rank owns of it."""

    @classmethod
    def empty(
        cls,
        layout: ParameterLayout,
        *,
        dtype: torch.dtype,
        main: torch.dtype,
        device: torch.device,
        own: Ownership | None = None,
    ) -> "Weights":
        """Buffers for the parameters of a layout, all of them owned unless something else is
        said."""
        own = own or Ownership(layout)
        value = torch.zeros(layout.stored, dtype=dtype, device=device)
        kept = value if dtype == main else value.new_zeros(own.elements, dtype=main)
        grad = kept.new_zeros(layout.elements)
        return cls(layout, kept, value, grad, own, _frozen(layout, value))

    @classmethod
    def sharded(
        cls, own: Ownership, *, dtype: torch.dtype, main: torch.dtype, device: torch.device
    ) -> "Weights":
        """Buffers for what is owned alone, of values and gradients too."""
        value = torch.zeros(own.elements, dtype=dtype, device=device)
        kept = value if dtype == main else value.new_zeros(own.elements, dtype=main)
        frozen = value.new_zeros(own.frozen.elements if own.frozen else 0)
        return cls(own.layout, kept, value, torch.zeros_like(kept), own, frozen)

    def pinned(self) -> "Weights":
        """The same buffers in memory of the host that a GPU copies from and to by itself; main
        weights that are not computed with stay as they are, since they are not copied."""
        value = self.value.pin_memory()
        main = value if self.main is self.value else self.main
        return replace(self, main=main, value=value, grad=self.grad.pin_memory())

    def computed_on(self, device: torch.device, layout: ParameterLayout) -> "Weights":
        """The same main weights, with values and gradients of their own on a device, and what of a
        layout is frozen, which nobody updates."""
        value = torch.zeros_like(self.value, device=device)
        grad, own = torch.zeros_like(self.grad, device=device), Ownership(layout)
        frozen = _frozen(layout, value)
        return replace(self, layout=layout, value=value, grad=grad, own=own, frozen=frozen)

    def with_whole_gradient(self) -> "Weights":
        """The same with room for the gradient of the whole stage."""
        return replace(self, grad=self.grad.new_zeros(self.layout.elements))

    @property
    def has_whole_gradient(self) -> bool:
        return len(self.grad) == self.layout.elements

    def named(self, flat: Tensor) -> dict[str, Tensor]:
        """The parameters of a buffer of the whole stage by name, as views."""
        return {
            name: flat[part.offset : part.stop].view(part.local_shape)
            for name, part in self.layout.parts_in(len(flat)).items()
        }

    def frozen_entries(self) -> dict[str, tuple[OwnedPart, Tensor]]:
        """What this rank has of each parameter that is not trained: which part, and its values as
        a flat view. A tied head beside its embedding has none of its own."""
        own = self.own.frozen
        if own is None:
            return {}
        if len(self.frozen) != own.elements:
            own = Ownership(own.layout)  # all of the stage
        return {
            name: (part, self.frozen[part.kept : part.kept + part.elements])
            for name, part in own.parts.items()
        }

    def frozen_values(self) -> dict[str, Tensor]:
        """What this rank has of each parameter that is not trained, flat."""
        return {name: values for name, (_, values) in self.frozen_entries().items()}

    def owned(self, flat: Tensor) -> dict[str, Tensor]:
        """What this rank owns of each parameter, as flat views of a buffer of the whole stage, or
        of one that has only what is owned."""
        return {
            name: flat[self.own.slice_in(len(flat), owned)]
            for name, owned in self.own.parts.items()
        }

    def owned_run(self, flat: Tensor, run: OwnedRun) -> Tensor:
        """What this rank owns of a run, as a view."""
        return flat[self.own.range_in(len(flat), run)]

    def publish(self) -> None:
        """Compute with what the optimizer has made of the weights that this rank owns."""
        if self.value is not self.main:
            for run in self.own.runs:
                self.owned_run(self.value, run).copy_(self.owned_run(self.main, run))


def _frozen(layout: ParameterLayout, like: Tensor) -> Tensor:
    """Room for all values of a stage that are not trained."""
    return like.new_zeros(layout.frozen.stored if layout.frozen else 0)
