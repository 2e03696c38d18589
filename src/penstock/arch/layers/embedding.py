"""The embedding: a row of h elements for each of V tokens."""

from dataclasses import dataclass

from penstock.arch.layers.parameter import OUTPUTS, Parameter
from penstock.arch.layers.record import LayerRecord

EMBEDDING_NAME = "model.embed_tokens.weight"


@dataclass(frozen=True)
class Embedding(LayerRecord):
    """Tensor-parallel ranks share the vocabulary."""

    vocabulary: int
    hidden: int
    element_bytes: int

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter(EMBEDDING_NAME, (self.vocabulary, self.hidden), axis=OUTPUTS),)

    @property
    def flops_per_token(self) -> int:
        """A row is copied, and nothing is multiplied."""
        return 0

    @property
    def row_bytes(self) -> int:
        """One token's vector."""
        return self.hidden * self.element_bytes
