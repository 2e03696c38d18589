"""F: compute a stage's output, and keep what its backward needs."""

from penstock.model.attention.piece import Piece
from penstock.model.stages.stage import Stage
from penstock.run.program.values import Places, Values


def forward(stage: Stage, piece: Piece, values: Values, reads: Places, writes: Places) -> None:
    """The output is the next stage's input; the last stage has none."""
    x, _, kv, _, weight = reads
    to_next, out, _, to_kv, _, act, _ = writes
    found = stage.forward(values[weight], piece, values[x], values[kv])
    values[to_next] = values[out] = found[0]
    values[act], values[to_kv] = found[1], found[2]
