"""N: compute a stage's output, and keep only its input."""

from typing import Any

from penstock.model.attention.piece import Piece
from penstock.model.stages.stage import Forward, Stage
from penstock.run.execute.driver import when_done
from penstock.run.program.values import Places, Values


def forward_light(stage: Stage, piece: Piece, values: Values, reads: Places, writes: Places) -> Any:
    """What the backward needs is computed again, from the input that is kept."""
    x, embedded, kv, _, weight = reads
    to_next, out, _, to_kv, _, ckpt, _ = writes

    def keep(found: Forward) -> None:
        values[to_next] = values[out] = found[0]
        values[ckpt], values[to_kv] = found[1], found[2]

    work = stage.forward_light(values[weight], piece, values[x or embedded], values[kv])
    return when_done(work, keep)
