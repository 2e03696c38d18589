"""I: the gradient of a stage's input; most of the weights' is put off."""

from penstock.model.attention.piece import Piece
from penstock.model.stages.stage import Stage
from penstock.run.program.values import Places, Values


def input_gradient(
    stage: Stage, piece: Piece, values: Values, reads: Places, writes: Places
) -> None:
    """Norms, biases and embeddings are added up at once, matrices wait in the stash."""
    act, g, _, dkv, kv, _, weight = reads
    to_previous, _, to_dkv, _, stash, dw = writes
    values[to_previous], values[to_dkv], values[stash] = stage.input_gradient(
        values[weight], values[dw], piece, values[act], values[g], values[kv], values[dkv]
    )
