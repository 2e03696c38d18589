"""Which attention of a slice another device computes: some of its queries against some keys.

A loan has keys from the beginning of a sequence. Of each row of a microbatch only the queries of
the slice's first document see keys before the slice, and only those of that document:

    keys        [ b b b b b b b b ][ a a a a a a a ] | [ a a a ]      documents b and a
    lent        [ . . . . . . . . . . . . . ]        |                some slices
    computed                       [ a a a a ]       |                with the queries of a

A member of a gang has some of the queries, with all the keys that they see: a slice of its own.
"""

from typing import NamedTuple

from torch import Tensor

from penstock.model.attention.groups import document_groups
from penstock.model.attention.op_loans import LentWork
from penstock.model.attention.piece import Piece
from penstock.model.attention.reach import Reach


class LentPart(NamedTuple):
    """Queries of a slice in some rows, and keys by their positions in the sequence."""

    rows: range
    queries: range
    keys: range
    reach: Reach | None = None
    """What each query sees of the keys, where the last ones are its own; None: all of them."""

    def of_queries(self, tensor: Tensor) -> Tensor:
        return self._rows(tensor)[:, :, self.queries.start : self.queries.stop]

    def of_keys(self, tensor: Tensor) -> Tensor:
        return self._rows(tensor)[:, :, self.keys.start : self.keys.stop]

    def positions(self, piece: Piece) -> range:
        """Where the queries stand in the sequence."""
        return range(piece.start + self.queries.start, piece.start + self.queries.stop)

    def _rows(self, tensor: Tensor) -> Tensor:
        return tensor[self.rows.start : self.rows.stop]


def lent_parts(piece: Piece, lent: LentWork) -> list[LentPart]:
    """What is lent of a piece's attention; nothing where there are no queries."""
    if lent.has_own_keys:
        return own_parts(piece, lent.queries)
    return _earlier_parts(piece, lent.keys)


def own_parts(piece: Piece, queries: range) -> list[LentPart]:
    """What queries at these positions of a piece see: keys of their documents up to their own."""
    if not queries:
        return []
    here = range(queries.start - piece.start, queries.stop - piece.start)
    return [
        LentPart(rows, here, range(queries.start - reach.past, queries.stop), reach)
        for rows, reach in document_groups(cut_piece(piece, queries))
    ]


def _earlier_parts(piece: Piece, positions: range) -> list[LentPart]:
    """What queries of a piece see of the keys at these positions, which end before it; nothing
    where its documents begin behind them."""
    found = []
    for rows, reach in document_groups(piece):
        first = max(positions.start, piece.start - reach.past)
        if first < positions.stop:
            found.append(LentPart(rows, range(reach.lengths[0]), range(first, positions.stop)))
    return found


def cut_piece(piece: Piece, positions: range) -> Piece:
    """A piece of a piece, for whoever asks about what its queries see: as if it were a slice."""
    return piece._replace(start=positions.start, end=positions.stop, loans=None)
