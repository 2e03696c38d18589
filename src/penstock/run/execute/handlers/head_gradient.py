"""T: the gradient of the words that a device has in the head, once all statistics are there."""

from penstock.model.attention.piece import Piece
from penstock.model.stages.vocabulary_shard import VocabularyShard
from penstock.run.program.calls import DROPPED
from penstock.run.program.values import Places, Values


def head_gradient(
    shard: VocabularyShard, piece: Piece, values: Values, reads: Places, writes: Places
) -> None:
    """Where a backward starts from this pass, it also has a part of the output's gradient. What it
    started from makes room for the loss."""
    stat, logits, weight = reads
    gpart, dw = writes
    d_logits = shard.second_pass(values[dw], piece, values[logits], values[stat])
    if gpart != DROPPED:
        values[gpart] = shard.output_gradient(values[weight], d_logits)
    values[logits] = shard.loss(piece, values[stat])
