"""S where no backward follows: the softmax statistics of the words that a device has."""

from typing import Any

from penstock.model.attention.piece import Piece
from penstock.model.stages.vocabulary_shard import FirstPass, VocabularyShard
from penstock.run.execute.driver import when_done
from penstock.run.program.values import Places, Values


def statistics_alone(
    shard: VocabularyShard, piece: Piece, values: Values, reads: Places, writes: Places
) -> Any:
    """The logits are not kept."""
    out, weight = reads
    stat, _, _ = writes

    def keep(found: FirstPass) -> None:
        values[stat] = found[0]

    return when_done(shard.first_pass(values[weight], piece, values[out]), keep)
