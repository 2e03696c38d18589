"""The output layer and its loss: h V weights, of whose logits only some are there at a time.

All of it is the work of the backward, which computes each logit once and adds the weight gradient
there and then: keeping the gradient of all logits would cost more memory than the layers do. So its
forward keeps nothing, and nothing of it waits for a weight gradient.
"""

from dataclasses import dataclass

from penstock.arch.layers.parameter import OUTPUTS, Parameter
from penstock.arch.layers.record import LayerRecord, wide_bytes

HEAD_NAME = "lm_head.weight"
LOGITS_AT_A_TIME = 1 << 26
"""Logits that the loss holds at a time, for the sake of memory."""
FUSED_LOGITS_BYTES = 1 << 30
"""The same in bytes where fused kernels leave them in 16 bits, once: larger pieces are faster, as
the head's gradient goes through memory once for each."""


@dataclass(frozen=True)
class LmHead(LayerRecord):
    """Tensor-parallel ranks share the vocabulary."""

    vocabulary: int
    hidden: int
    element_bytes: int

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter(HEAD_NAME, (self.vocabulary, self.hidden), axis=OUTPUTS),)

    @property
    def flops_per_logit(self) -> int:
        return 2 * self.hidden

    def logits_bytes(self, tokens: int) -> int:
        """Of a slice in the loss. Types of 16 bits are held twice without fused kernels, and in
        larger pieces with them: the larger of both is counted."""
        logits, wide = tokens * self.vocabulary, wide_bytes(self.element_bytes)
        if self.element_bytes == wide:
            return min(logits, LOGITS_AT_A_TIME) * wide
        return min(logits * (wide + self.element_bytes), FUSED_LOGITS_BYTES)
