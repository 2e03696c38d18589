"""What the op of a slice has to do with loans of attention work."""

from typing import NamedTuple

from penstock.model.parallel.peer import Peer


class LentKeys(NamedTuple):
    """Keys and values before a slice that another device attends to."""

    peer: Peer
    positions: range


class OpLoans(NamedTuple):
    """An op that lends, or one that helps others in turn with its own work."""

    lent: tuple[LentKeys, ...] = ()
    """One behind the other, from the beginning of the sequence."""

    @property
    def kept_from(self) -> int:
        """The first position whose keys are attended to here."""
        return self.lent[-1].positions.stop if self.lent else 0
