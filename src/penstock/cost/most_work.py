"""How much one op may do, so that whole numbers of 64 bits hold what is counted.

FLOPs of attention grow with the square of a sequence. Who needs them exactly asks for them as whole
numbers; times and estimates have floats, and are good for longer sequences.
"""

from collections.abc import Sequence

from penstock.arch.config import ModelConfig
from penstock.errors import ShapeError

MOST_COUNT = 2**62


def refuse_long(model: ModelConfig, layers: Sequence[int], tokens: int) -> None:
    """Refuse sequences that products with the weights of a stage, or scores of all layers in 32
    bits, are too large for."""
    scores = 4 * model.heads * model.layers * tokens**2
    _refuse(max(_products(model, layers, tokens), scores), tokens)


def refuse_inexact(model: ModelConfig, layers: Sequence[int], tokens: int) -> None:
    """Refuse sequences whose ops have more FLOPs, with attention, than can be exact."""
    attention = max(layers) * model.attending_kind.pair_flops * tokens**2
    _refuse(_products(model, layers, tokens) + attention, tokens)


def _products(model: ModelConfig, layers: Sequence[int], tokens: int) -> int:
    layer = max(kind.layer_flops for kind in model.kinds)
    return 2 * tokens * (max(layers) * layer + 2 * model.head.flops_per_token)


def _refuse(most: int, tokens: int) -> None:
    if most > MOST_COUNT:
        raise ShapeError(
            f"an op over {tokens:,} tokens would have more than {MOST_COUNT:,} FLOPs or bytes",
            hint="shorten the sequence, or put fewer layers on a stage",
        )
