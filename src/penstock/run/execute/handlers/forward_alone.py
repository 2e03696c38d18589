"""F and N where no backward follows: compute a stage's output, or the loss."""

from typing import Any

from penstock.model.attention.piece import Piece
from penstock.model.stages.stage import Forward, Stage
from penstock.run.execute.driver import when_done
from penstock.run.program.values import Places, Values


def forward_alone(stage: Stage, piece: Piece, values: Values, reads: Places, writes: Places) -> Any:
    """The loss of the last stage stands where its backward would start."""
    x, embedded, kv, _, weight = reads
    to_next, out, loss, to_kv, _, _, _ = writes

    def keep(found: Forward) -> None:
        values[to_next] = values[out] = values[loss] = found[0]
        values[to_kv] = found[2]

    work = stage.evaluate(values[weight], piece, values[x or embedded], values[kv])
    return when_done(work, keep)
