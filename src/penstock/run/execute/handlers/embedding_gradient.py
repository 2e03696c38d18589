"""D: the gradient of the words that a device has in the embedding."""

from typing import Any

from penstock.model.attention.piece import Piece
from penstock.model.stages.vocabulary_shard import VocabularyShard
from penstock.run.program.values import Places, Values


def embedding_gradient(
    shard: VocabularyShard, piece: Piece, values: Values, reads: Places, writes: Places
) -> Any:
    """The gradient of the model's input is added to the rows of own words."""
    (gin,) = reads
    (dw,) = writes
    return shard.embed_backward(values[dw], piece, values[gin])
