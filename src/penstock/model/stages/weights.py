"""The flat buffers of a stage: what it computes with, and the gradients it adds up.

A stage's parameters lie in a fixed order in one buffer of each kind, so that reductions over
replicas and the optimizer work on whole buffers; a parameter by name is a view. A head that is tied
to the embedding of the same stage is a view of it, and has a gradient of its own.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from penstock.arch.parameter_layout import ParameterLayout


@dataclass(frozen=True, eq=False)
class Weights:
    """Flat buffers of one stage. `main` is what the optimizer updates, `value` what is computed
    with: the same memory where both have one type."""

    layout: ParameterLayout
    main: Tensor
    value: Tensor
    grad: Tensor

    @classmethod
    def empty(
        cls, layout: ParameterLayout, *, dtype: torch.dtype, main: torch.dtype, device: torch.device
    ) -> "Weights":
        """Buffers for the parameters of a layout."""
        kept = torch.zeros(layout.stored, dtype=main, device=device)
        value = kept if dtype == main else torch.zeros_like(kept, dtype=dtype)
        return cls(layout, kept, value, kept.new_zeros(layout.elements))

    def named(self, flat: Tensor) -> dict[str, Tensor]:
        """The parameters of a buffer by name, as views."""
        return {
            name: flat[part.offset : part.stop].view(part.local_shape)
            for name, part in self.layout.parts_in(len(flat)).items()
        }

    def publish(self) -> None:
        """Compute with what the optimizer has made of the weights."""
        if self.value is not self.main:
            self.value.copy_(self.main)
