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
FUSED_LOGITS_BYTES = 1 << 29
"""The same in bytes where fused kernels leave them in 16 bits, once: larger pieces are faster, as
the head's gradient goes through memory once for each."""
FUSED_TOKENS = 4096
"""Most tokens of such a piece: products of more are no faster."""


def tokens_at_a_time(words: int, element_bytes: int, *, fused: bool) -> int:
    """Tokens whose logits of so many words the loss holds at a time.

    >>> tokens_at_a_time(128256, 2, fused=True), tokens_at_a_time(32000, 2, fused=True)
    (2092, 4096)
    >>> tokens_at_a_time(128256, 2, fused=False), tokens_at_a_time(128256, 4, fused=True)
    (523, 523)
    """
    if fused and element_bytes < wide_bytes(element_bytes):
        return max(1, min(FUSED_LOGITS_BYTES // (words * element_bytes), FUSED_TOKENS))
    return max(1, LOGITS_AT_A_TIME // words)


@dataclass(frozen=True)
class LmHead(LayerRecord):
    """Tensor-parallel ranks share the vocabulary."""

    vocabulary: int
    hidden: int
    element_bytes: int
    cap: float | None = None
    """Bound of the logits: cap x tanh(logit / cap); None: they are not bounded."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter(HEAD_NAME, (self.vocabulary, self.hidden), axis=OUTPUTS),)

    @property
    def flops_per_logit(self) -> int:
        return 2 * self.hidden

    def logits_bytes(self, tokens: int) -> int:
        """Of a slice in the loss. Types of 16 bits are held twice without fused kernels, and in
        larger pieces with them: the larger of both is counted. With a cap, its slope is
        there too."""
        wide = wide_bytes(self.element_bytes)
        summed = 0 if self.element_bytes == wide else wide
        plain, fused = (self._piece(tokens, fused=each) for each in (False, True))
        slope = 0 if self.cap is None else wide
        held = self.element_bytes + slope
        return max(plain * (held + summed), fused * held)

    def tokens_held(self, tokens: int) -> int:
        """Tokens whose logits are there at a time, at most."""
        both = (
            tokens_at_a_time(self.vocabulary, self.element_bytes, fused=each)
            for each in (False, True)
        )
        return min(tokens, max(both))

    def _piece(self, tokens: int, *, fused: bool) -> int:
        """Logits that are there at a time."""
        most = tokens_at_a_time(self.vocabulary, self.element_bytes, fused=fused)
        return min(tokens, most) * self.vocabulary
