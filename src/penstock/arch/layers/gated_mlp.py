"""The gated MLP (SwiGLU, or GeGLU with GELU): down(silu(gate(x)) x up(x)), h hidden, f ffn."""

from dataclasses import dataclass
from functools import cached_property

from penstock.arch.layers.parameter import INPUTS, OUTPUTS, InitialValue, Parameter
from penstock.arch.layers.record import LayerRecord, wide_bytes
from penstock.errors import ShapeError

SILU, GELU_TANH = "silu", "gelu_tanh"
ACTIVATIONS = (SILU, GELU_TANH)
"""Functions that a gate may have."""


@dataclass(frozen=True)
class GatedMlp(LayerRecord):
    """Three matrices; tensor-parallel ranks share the f elements inside."""

    hidden: int
    ffn: int
    element_bytes: int

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        inwards, back = (self.ffn, self.hidden), (self.hidden, self.ffn)
        return (
            Parameter("mlp.gate_proj.weight", inwards, axis=OUTPUTS),
            Parameter("mlp.up_proj.weight", inwards, axis=OUTPUTS),
            Parameter("mlp.down_proj.weight", back, InitialValue.NORMAL_TO_RESIDUAL, axis=INPUTS),
        )

    @property
    def saved_bytes(self) -> int:
        """One f for each matrix: outputs of the first ones, input of the last."""
        return len(self.parameters) * self.ffn * self.element_bytes

    @property
    def stash_bytes(self) -> int:
        """Inputs of the matrices, h + f, and gradients of their outputs: h, and f for each but the
        last."""
        return (2 * self.hidden + len(self.parameters) * self.ffn) * self.element_bytes

    @property
    def backward_bytes(self) -> int:
        """f elements for each matrix and h more, gradients inside, and 3 h wide ones, the products
        of the norm in front of it, which is passed while those are still there."""
        return self.fused_backward_bytes + 3 * self.hidden * wide_bytes(self.element_bytes)

    @property
    def fused_backward_bytes(self) -> int:
        """The gradients alone."""
        return (len(self.parameters) * self.ffn + self.hidden) * self.element_bytes

    @property
    def waiting_bytes(self) -> int:
        """f for each matrix but the last: gradients of their outputs, which wait for the weight
        gradient."""
        return (len(self.parameters) - 1) * self.ffn * self.element_bytes


class PlainMlp(GatedMlp):
    """An MLP without a gate, as older models have it: two matrices. It is estimated, not run."""

    def refuse_running(self) -> None:
        raise ShapeError(
            "a model with a plain MLP (gated is False) can be estimated, but not run",
            hint="layers that run have a gated MLP (SwiGLU): leave gated at True",
        )

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        return super().parameters[1:]
