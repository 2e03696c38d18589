"""S: the logits of the words that a device has, and their softmax statistics."""

from typing import Any

from penstock.model.attention.piece import Piece
from penstock.model.stages.vocabulary_shard import FirstPass, VocabularyShard
from penstock.run.execute.driver import when_done
from penstock.run.program.calls import DROPPED
from penstock.run.program.values import Places, Values


def logits_statistics(
    shard: VocabularyShard, piece: Piece, values: Values, reads: Places, writes: Places
) -> Any:
    """Where a backward starts from this pass, it also has a part of the output's gradient, which
    the statistics of all shards complete."""
    out, weight = reads
    stat, logits, gpart = writes

    def keep(found: FirstPass) -> None:
        values[stat], values[logits], values[gpart] = found

    first_pass = shard.first_pass if gpart == DROPPED else shard.first_pass_with_gradient
    return when_done(first_pass(values[weight], piece, values[out]), keep)
