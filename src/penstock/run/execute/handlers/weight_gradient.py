"""W: the gradients of a stage's weights that were put off."""

from penstock.model.attention.piece import Piece
from penstock.model.stages.stage import Stage
from penstock.run.program.values import Places, Values


def weight_gradient(
    stage: Stage, piece: Piece, values: Values, reads: Places, writes: Places
) -> None:
    """What the stash holds is multiplied and added up."""
    stash, _ = reads
    (dw,) = writes
    stage.weight_gradient(values[dw], piece, values[stash])
