"""B: both gradients of a stage in one go."""

from typing import Any

from penstock.model.attention.piece import Piece
from penstock.model.stages.stage import Backward, Stage
from penstock.run.execute.driver import when_done
from penstock.run.program.values import Places, Values


def backward(stage: Stage, piece: Piece, values: Values, reads: Places, writes: Places) -> Any:
    """The gradient of the input, and those of the weights added up; what it started from makes
    room for the loss of the last stage, unless it came from the shards of the head."""
    act, g, from_shards, dkv, kv, _, weight, _ = reads
    to_previous, to_shards, to_dkv, _, dw = writes

    def keep(found: Backward) -> None:
        values[to_previous] = values[to_shards] = found[0]
        values[to_dkv], values[g] = found[1], found[3]

    work = stage.backward(
        values[weight],
        values[dw],
        piece,
        values[act],
        values[g or from_shards],
        values[kv],
        values[dkv],
    )
    return when_done(work, keep)
