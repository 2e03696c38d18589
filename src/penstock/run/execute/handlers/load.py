"""L: what has gone to the host comes back."""

from penstock.model.attention.piece import Piece
from penstock.run.execute.handlers.offload import HostRoom
from penstock.run.program.beginning import Beginning
from penstock.run.program.values import Places, Values


def begin_load(
    room: HostRoom, piece: Piece, values: Values, reads: Places, writes: Places
) -> Beginning:
    """Take memory for it."""
    (host,) = reads
    (back,) = writes
    moved = values[host]
    values[back] = moved.take_room()
    return Beginning(took_memory=True, let_go=moved.end)


def load(room: HostRoom, piece: Piece, values: Values, reads: Places, writes: Places) -> None:
    """Copy it."""
    (host,) = reads
    room.copy_in(values[host])
