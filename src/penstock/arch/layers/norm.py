"""RMSNorm: it keeps its input and its output, and sums up in 32 bits at least."""

from dataclasses import dataclass

from penstock.arch.layers.parameter import InitialValue, Parameter
from penstock.arch.layers.record import LayerRecord, wide_bytes

BEFORE, AFTER, BOTH = "before", "after", "both"
NORM_PLACES = (BEFORE, AFTER, BOTH)
"""Where the norms of a layer stand, beside attention and MLP."""


def norm_start(adds_one: bool) -> InitialValue:
    """What the weight of a norm starts as, so that it multiplies by 1."""
    return InitialValue.ZEROS if adds_one else InitialValue.ONES


@dataclass(frozen=True)
class Norm(LayerRecord):
    """A norm of `hidden` elements, called `name`."""

    name: str
    hidden: int
    element_bytes: int
    kept: int = 2
    """Tensors of h elements that it keeps of each token: its input and its output."""
    adds_one: bool = False
    """Whether it multiplies by 1 + its weight."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        name, shape = f"{self.name}.weight", (self.hidden,)
        return (Parameter(name, shape, norm_start(self.adds_one), adds_over="tokens"),)

    @property
    def saved_bytes(self) -> int:
        """Its input and its output, 2 h elements; behind a block whose norm in front keeps what it
        gives, its input alone."""
        return self.kept * self.hidden * self.element_bytes

    @property
    def backward_bytes(self) -> int:
        """Its three products, 3 h wide elements."""
        return 3 * self.hidden * wide_bytes(self.element_bytes)

    @property
    def fused_backward_bytes(self) -> int:
        """Gradients of its output and of its input, 2 h elements."""
        return 2 * self.hidden * self.element_bytes
