"""I: the gradient of a stage's input; most of the weights' is put off."""

from penstock.model.attention.piece import Piece
from penstock.model.stages.stage import Stage
from penstock.run.program.values import Places, Values


def input_gradient(
    stage: Stage, piece: Piece, values: Values, reads: Places, writes: Places
) -> None:
    """Norms, biases and embeddings are added up at once, matrices wait in the stash; what it
    started from makes room for the loss of the last stage."""
    act, g, _, dkv, kv, _, weight = reads
    to_previous, _, to_dkv, _, stash, dw = writes
    values[to_previous], values[to_dkv], values[stash], values[g] = stage.input_gradient(
        values[weight], values[dw], piece, values[act], values[g], values[kv], values[dkv]
    )
