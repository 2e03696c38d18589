"""B: both gradients of a stage in one go."""

from typing import Any

from penstock.model.attention.piece import Piece
from penstock.model.stages.stage import Backward, Stage
from penstock.run.execute.driver import when_done
from penstock.run.program.values import Places, Values


def backward(stage: Stage, piece: Piece, values: Values, reads: Places, writes: Places) -> Any:
    """The gradient of the input, and those of the weights added up; what it started from makes
    room for the loss of the last stage."""
    act, g, _, dkv, kv, _, weight, _ = reads
    to_previous, _, to_dkv, _, dw = writes

    def keep(found: Backward) -> None:
        values[to_previous], values[to_dkv], _, values[g] = found

    work = stage.backward(
        values[weight], values[dw], piece, values[act], values[g], values[kv], values[dkv]
    )
    return when_done(work, keep)
