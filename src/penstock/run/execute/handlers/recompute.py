"""R: compute again what a forward that kept its input alone would have kept."""

from typing import Any

from penstock.model.attention.piece import Piece
from penstock.model.stages.stage import Stage
from penstock.run.execute.driver import when_done
from penstock.run.program.values import Places, Values


def recompute(stage: Stage, piece: Piece, values: Values, reads: Places, writes: Places) -> Any:
    """The output is not needed a second time."""
    ckpt, kv, weight = reads
    act, _ = writes

    def keep(found: Any) -> None:
        values[act] = found

    return when_done(stage.recompute(values[weight], piece, values[ckpt], values[kv]), keep)
