"""Which attention of a slice another device computes: some of its queries against earlier keys.

What is lent are keys from the beginning of a sequence. Of each row of a microbatch only the queries
of the slice's first document see keys before the slice, and only those of that document:

    keys        [ b b b b b b b b ][ a a a a a a a ] | [ a a a ]      documents b and a
    lent        [ . . . . . . . . . . . . . ]        |                some slices
    computed                       [ a a a a ]       |                with the queries of a
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
