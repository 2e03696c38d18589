"""T where no backward follows: the loss, once the statistics of all shards are there."""

from penstock.model.attention.piece import Piece
from penstock.model.stages.vocabulary_shard import VocabularyShard
from penstock.run.program.values import Places, Values


def loss_alone(
    shard: VocabularyShard, piece: Piece, values: Values, reads: Places, writes: Places
) -> None:
    """The loss stands where the logits would."""
    stat, logits, _ = reads
    values[logits] = shard.loss(piece, values[stat])
