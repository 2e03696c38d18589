"""The output layer and its loss: h V weights, of whose logits only some are there at a time.

Its forward keeps one log-sum-exp per token. Its backward makes the logits again and adds the weight
gradient at once, because keeping the gradient of all logits would cost more memory than the layers
do: nothing of it waits for a weight gradient.
"""

from dataclasses import dataclass

from penstock.arch.layers.parameter import OUTPUTS, Parameter
from penstock.arch.layers.record import LSE_BYTES, LayerRecord, wide_bytes

HEAD_NAME = "lm_head.weight"
LOGITS_AT_A_TIME = 1 << 26
"""Logits that the loss holds at a time, for the sake of memory."""
FUSED_LOGITS_BYTES = 1 << 30
"""The same in bytes where fused kernels leave them in 16 bits, once: larger pieces are faster."""


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

    @property
    def saved_bytes(self) -> int:
        return LSE_BYTES

    def logits_bytes(self, tokens: int) -> int:
        """Of a slice in the forward or the backward of the loss. Types of 16 bits are held twice
        without fused kernels, and in larger pieces with them: the larger of both is counted."""
        logits, wide = tokens * self.vocabulary, wide_bytes(self.element_bytes)
        if self.element_bytes == wide:
            return min(logits, LOGITS_AT_A_TIME) * wide
        return min(logits * (wide + self.element_bytes), FUSED_LOGITS_BYTES)
