"""How large a model is: what one token and one query-key pair cost in one layer.

Everything a cost model needs of a Llama-style transformer follows from nine numbers: FLOPs (2 per
multiply-add), bytes that a forward saves, bytes that wait for the weight gradient. The formulas are
stated once here, per token and per layer; cost/transformer.py applies them to ops.

    h hidden, f ffn, a heads, g kv_heads, d head_size, V vocabulary, x = 3 gated MLP, 2 plain
"""

from dataclasses import dataclass, fields

from penstock.errors import ShapeError, nearest

LSE_BYTES = 4
"""The log-sum-exp of a softmax is kept in 32 bits, whatever the activations are in."""


@dataclass(frozen=True)
class ModelConfig:
    """A Llama-style model: pre-norm, no biases, rotary positions, grouped-query attention."""

    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    gated: bool = True
    """Whether the MLP has a gate: three matrices instead of two."""
    tied: bool = False
    """Whether embedding and head are one matrix; it saves parameters, not FLOPs."""
    element_bytes: int = 2
    """Bytes of one activation; keys, values and boundaries are in it too."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or (value < 1 and field.name not in ("gated", "tied")):
                raise ShapeError(f"{field.name} is {value}", hint="give a whole number above 0")
        if self.heads % self.kv_heads:
            raise ShapeError(
                f"{self.heads} heads cannot share {self.kv_heads} key/value heads evenly",
                hint="kv_heads must divide heads",
            )

    @property
    def mlp_matrices(self) -> int:
        return 3 if self.gated else 2

    @property
    def layer_weights(self) -> int:
        """Elements of one layer's matrices: 2 h a d (Q and output) + 2 h g d (K, V) + x h f."""
        attention = 2 * self.hidden * self.head_size * (self.heads + self.kv_heads)
        return attention + self.mlp_matrices * self.hidden * self.ffn

    @property
    def parameters(self) -> int:
        """Elements of the whole model: matrices, two norms per layer and a last one, embeddings."""
        embeddings = 1 if self.tied else 2
        norms = (2 * self.layers + 1) * self.hidden
        return self.layers * self.layer_weights + norms + embeddings * self.head_weights

    @property
    def head_weights(self) -> int:
        """Elements of the output layer, h V."""
        return self.hidden * self.vocabulary

    @property
    def flops_per_token(self) -> int:
        """Forward FLOPs of one token in all weights: 2 per weight, head included."""
        return 2 * (self.layers * self.layer_weights + self.head_weights)

    @property
    def pair_flops(self) -> int:
        """Forward FLOPs of one query-key pair in one layer: scores 2 a d, weighted sum 2 a d."""
        return 4 * self.heads * self.head_size

    @property
    def flops_per_pair(self) -> int:
        """Forward FLOPs of one query-key pair in all layers."""
        return self.layers * self.pair_flops

    @property
    def boundary_bytes(self) -> int:
        """Bytes of one token between two stages: h elements."""
        return self.hidden * self.element_bytes

    @property
    def kv_bytes(self) -> int:
        """Bytes of one token's keys and values in one layer: 2 g d elements."""
        return 2 * self.kv_heads * self.head_size * self.element_bytes

    @property
    def saved_bytes(self) -> int:
        """Bytes that one token's forward saves in one layer, keys and values apart.

        4 h (inputs and outputs of both norms) + 2 a d (queries, attention output) + x f (outputs of
        the first MLP matrices, input of the last) elements, and one log-sum-exp per head.
        """
        heads = 2 * self.heads * self.head_size
        elements = 4 * self.hidden + heads + self.mlp_matrices * self.ffn
        return elements * self.element_bytes + LSE_BYTES * self.heads

    @property
    def stash_bytes(self) -> int:
        """Bytes that one token's weight gradient waits for in one layer.

        Inputs of the matrices: 2 h + a d + f elements. Gradients of their outputs: (a + 2 g) d for
        Q, K, V, h for the attention output, (x - 1) f and h in the MLP.
        """
        heads = (2 * self.heads + 2 * self.kv_heads) * self.head_size
        elements = 4 * self.hidden + heads + self.mlp_matrices * self.ffn
        return elements * self.element_bytes


MODELS: dict[str, ModelConfig] = {
    "tiny": ModelConfig(4, 64, 192, 4, 2, 16, 256),
    "llama-7b": ModelConfig(32, 4096, 11008, 32, 32, 128, 32000),
    "llama3.2-1b": ModelConfig(16, 2048, 8192, 32, 8, 64, 128256, tied=True),
    "llama3-8b": ModelConfig(32, 4096, 14336, 32, 8, 128, 128256),
    "llama3-70b": ModelConfig(80, 8192, 28672, 64, 8, 128, 128256),
}
"""Published configurations by name, and one that fits a test."""


def model(name: str) -> ModelConfig:
    """The model of that name.

    >>> model("llama-7b").parameters
    6738415616
    """
    if name not in MODELS:
        raise ShapeError(f"no model is called {name!r}", hint=nearest(name, list(MODELS)))
    return MODELS[name]
