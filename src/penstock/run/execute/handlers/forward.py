"""F: compute a stage's output, and keep what its backward needs."""

from typing import Any

from penstock.model.attention.piece import Piece
from penstock.model.stages.stage import Forward, Stage
from penstock.run.execute.driver import when_done
from penstock.run.program.values import Places, Values


def forward(stage: Stage, piece: Piece, values: Values, reads: Places, writes: Places) -> Any:
    """The output is the next stage's input, or goes to the shards of the head; a last stage that
    has the head has none. The first stage may get its input from the shards of the embedding."""
    x, embedded, kv, _, weight = reads
    to_next, out, _, to_kv, _, act, _ = writes

    def keep(found: Forward) -> None:
        values[to_next] = values[out] = found[0]
        values[act], values[to_kv] = found[1], found[2]

    return when_done(stage.forward(values[weight], piece, values[x or embedded], values[kv]), keep)
