"""E: a device's part of the embedding, the vectors of the words that it has."""

from penstock.model.attention.piece import Piece
from penstock.model.stages.vocabulary_shard import VocabularyShard
from penstock.run.program.values import Places, Values


def embed_shard(
    shard: VocabularyShard, piece: Piece, values: Values, reads: Places, writes: Places
) -> None:
    """A collective adds up the parts of all devices, for the first stage."""
    (weight,) = reads
    (partial,) = writes
    values[partial] = shard.embed(values[weight], piece)
