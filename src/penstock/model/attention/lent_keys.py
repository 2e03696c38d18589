"""Which attention of a slice another device computes: some of its queries against earlier keys.

What is lent are keys from the beginning of a sequence. Of each row of a microbatch only the queries
of the slice's first document see keys before the slice, and only those of that document:

    keys      [ other documents ][ a a a a a a a | a a a ]
    lent      [                      ] . . . . .              positions 0 to 12, say
    computed there        [ a a a a a ]                       the rectangle of a's queries with these
"""

from typing import NamedTuple

from torch import Tensor

from penstock.model.attention.groups import document_groups
from penstock.model.attention.piece import Piece


class LentPart(NamedTuple):
    """A rectangle: queries of a slice in some rows, keys by their positions in the sequence."""

    rows: range
    queries: range
    keys: range

    def of_queries(self, tensor: Tensor) -> Tensor:
        return self._rows(tensor)[:, :, self.queries.start : self.queries.stop]

    def of_keys(self, tensor: Tensor) -> Tensor:
        return self._rows(tensor)[:, :, self.keys.start : self.keys.stop]

    def _rows(self, tensor: Tensor) -> Tensor:
        return tensor[self.rows.start : self.rows.stop]


def lent_parts(piece: Piece, positions: range) -> list[LentPart]:
    """What queries of a piece see of the keys at these positions; nothing where its documents begin
    behind them."""
    found = []
    for group in document_groups(piece):
        first = max(positions.start, piece.start - group.reach.past)
        if first < positions.stop:
            queries = range(group.reach.lengths[0])
            found.append(LentPart(group.rows, queries, range(first, positions.stop)))
    return found
