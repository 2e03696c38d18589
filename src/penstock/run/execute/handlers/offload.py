"""O: a share of what a forward saved goes to the host."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from penstock.core.ops import Op
from penstock.model.attention.piece import Piece
from penstock.model.stages.saved_tensors import SavedStorages
from penstock.run.host.moved import MovedActivation
from penstock.run.host.tier import HostTier
from penstock.run.program.beginning import Beginning
from penstock.run.program.values import Places, Values


class HostRoom(NamedTuple):
    """What O and L work with: where activations wait, and how much of one moves."""

    tier: HostTier
    share: Fraction

    @classmethod
    def of(cls, tier: HostTier, shares: Mapping[Op, Fraction], op: Op) -> "HostRoom":
        """For a copy; all of an activation moves where nothing else is said."""
        return cls(tier, shares.get(op, Fraction(1)))

    def choose(self, saved: Any, piece: Piece) -> MovedActivation:
        """What moves of an activation, with room for it on the host."""
        return MovedActivation(SavedStorages.of(saved, piece), self.share, self.tier)

    def copy_out(self, moved: MovedActivation) -> None:
        moved.copy_out()

    def copy_in(self, moved: MovedActivation) -> None:
        moved.copy_in()


def begin_offload(
    room: HostRoom, piece: Piece, values: Values, reads: Places, writes: Places
) -> Beginning:
    """Choose what moves. The device's memory is the copy's until that has ended."""
    act, _ = reads
    (host,) = writes
    moved = room.choose(values[act], piece)
    values[act], values[host] = None, moved
    return Beginning(took_memory=moved.is_split, let_go=moved.let_go)


def offload(room: HostRoom, piece: Piece, values: Values, reads: Places, writes: Places) -> None:
    """Copy it."""
    (host,) = writes
    room.copy_out(values[host])
