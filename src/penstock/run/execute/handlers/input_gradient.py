"""I: the gradient of a stage's input; most of the weights' is put off."""

from typing import Any

from penstock.model.attention.piece import Piece
from penstock.model.stages.stage import Backward, Stage
from penstock.run.execute.driver import when_done
from penstock.run.program.values import Places, Values


def input_gradient(
    stage: Stage, piece: Piece, values: Values, reads: Places, writes: Places
) -> Any:
    """Norms, biases and embeddings are added up at once, matrices wait in the stash; what it
    started from makes room for the loss of the last stage, unless it came from the shards of the
    head."""
    act, g, from_shards, dkv, kv, _, weight = reads
    to_previous, to_shards, to_dkv, _, stash, dw = writes

    def keep(found: Backward) -> None:
        values[to_previous] = values[to_shards] = found[0]
        values[to_dkv], values[stash], values[g] = found[1:]

    work = stage.input_gradient(
        values[weight],
        values[dw],
        piece,
        values[act],
        values[g or from_shards],
        values[kv],
        values[dkv],
    )
    return when_done(work, keep)
