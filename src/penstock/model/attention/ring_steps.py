"""What happens to a rank of a ring step by step: whose keys come, and what is computed of them."""

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from penstock.arch.attention_rule import PLAIN_ATTENTION, AttentionRule
from penstock.errors import RunError
from penstock.model.attention.groups import Group, row_groups
from penstock.model.attention.piece import Piece
from penstock.model.attention.reach import AttentionPart
from penstock.model.attention.ring_memory import KeyValueBlock
from penstock.model.attention.table import parts_back_end_for
from penstock.model.attention.zigzag import (
    Ranges,
    count,
    ring_parts,
    ring_window_parts,
    zigzag_ranges,
)
from penstock.model.parallel.group import Pending, RankGroup, Work

Bounds = list[tuple[int, int]]
"""Where slices begin and end."""


class Coming(NamedTuple):
    """A block on its way; one that waits for nothing is here."""

    block: KeyValueBlock
    pending: Pending | None

    def arrive(self) -> Work[KeyValueBlock]:
        if self.pending is not None:
            yield self.pending
        return self.block


class RingSteps:
    """Whose keys come to a rank at which step, and what its queries see of them."""

    def __init__(
        self,
        q: Tensor,
        piece: Piece,
        bounds: Bounds,
        group: RankGroup,
        rule: AttentionRule = PLAIN_ATTENTION,
    ) -> None:
        """`bounds` are those of the slices up to this one."""
        self.group, self.window = group, rule.window
        self.groups = row_groups(piece, rule.window)
        self.queries = zigzag_ranges(piece.start, piece.end, group.index, group.size)
        _check_dealt(q.shape[2], self.queries, piece, group)
        self._documents = piece.documents
        first = piece.start - max(rows.reach.past for rows in self.groups)
        self._keys = [_keys_of(bounds, first, group, step) for step in range(group.size)]
        shortest = min((end - start) // (2 * group.size) for start, end in bounds)
        self.back_end = parts_back_end_for(q, piece._replace(start=0, end=shortest), rule)

    def tokens(self, step: int) -> int:
        """How many keys are here at a step; after the last one they are home again."""
        return count(self._keys[step % self.group.size])

    def parts(self, rows: Group, step: int) -> Iterator[AttentionPart]:
        """What is to be computed in some rows at a step."""
        documents = self._documents[rows.rows.start]
        keys, square = self._keys[step], self.back_end.square
        if self.window is None:
            return ring_parts(self.queries, keys, documents, square)
        return ring_window_parts(self.queries, keys, documents, self.window, square)

    def pass_keys(self, block: KeyValueBlock, step: int) -> Coming:
        """Send the keys and values of this step on, and receive those of the next; after the last
        step none come."""
        last = step + 1 == self.group.size
        return Coming(block.none(), None) if last else self.pass_on(block, step + 1)

    def pass_on(self, block: KeyValueBlock, step: int) -> Coming:
        """Send a block on, and receive one for the keys of that step."""
        tokens = self.tokens(step)
        received, pending = self.group.pass_on(block, [(tokens, *x.shape[1:]) for x in block])
        return Coming(KeyValueBlock(*received), pending)


def _keys_of(bounds: Bounds, first: int, group: RankGroup, step: int) -> Ranges:
    """The positions of the keys that come to a rank at a step, from the first in any row's reach:
    those before it are not sent."""
    rank = (group.index - step) % group.size
    return tuple(
        range(max(span.start, first), span.stop)
        for start, end in bounds
        for span in zigzag_ranges(start, end, rank, group.size)
        if span.stop > first
    )


def _check_dealt(tokens: int, queries: Ranges, piece: Piece, group: RankGroup) -> None:
    if tokens != count(queries):
        raise RunError(
            f"rank {group.index} of a ring of {group.size} is given {tokens} queries of slice "
            f"{piece.slice}, and has {count(queries)} of its positions "
            f"{piece.start} to {piece.end}",
            hint="deal the tokens of a slice by zigzag_ranges",
        )
