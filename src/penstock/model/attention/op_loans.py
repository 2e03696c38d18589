"""What the op of a slice has to do with attention that devices share."""

from typing import NamedTuple

from penstock.model.parallel.peer import Peer


class LentWork(NamedTuple):
    """Attention of a slice's queries that another device computes, by positions in the sequence."""

    peer: Peer
    queries: range
    keys: range
    """Those of some earlier slices, or all up to the queries' own."""

    @property
    def has_own_keys(self) -> bool:
        """Whether keys of the slice itself go along: then each query has all its keys there."""
        return self.keys.stop > self.queries.start or not self.queries


class OpLoans(NamedTuple):
    """An op that lends, or one that helps others in turn with its own work."""

    lent: tuple[LentWork, ...] = ()
    """One behind the other, from the beginning of the sequence; or of the slice, where queries are
    given away with all their keys."""

    @property
    def kept_from(self) -> int:
        """The first position whose keys are attended to here."""
        return self.lent[-1].keys.stop if self.lent else 0

    @property
    def gives_queries(self) -> bool:
        """Whether some queries are attended to by others alone."""
        return any(lent.has_own_keys for lent in self.lent)

    @property
    def given_to(self) -> int:
        """The first position whose query is attended to here, where others have those before."""
        return self.lent[-1].queries.stop
