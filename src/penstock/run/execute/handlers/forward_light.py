"""N: compute a stage's output, and keep only its input."""

from penstock.model.attention.piece import Piece
from penstock.model.stages.stage import Stage
from penstock.run.program.values import Places, Values


def forward_light(
    stage: Stage, piece: Piece, values: Values, reads: Places, writes: Places
) -> None:
    """What the backward needs is computed again, from the input that is kept."""
    x, _, kv, _, weight = reads
    to_next, out, _, to_kv, _, ckpt, _ = writes
    found = stage.forward_light(values[weight], piece, values[x], values[kv])
    values[to_next] = values[out] = found[0]
    values[ckpt], values[to_kv] = found[1], found[2]
