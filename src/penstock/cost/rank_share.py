"""What one rank of a cell has: its part of the model, and its tokens of every slice.

A slice is shared out twice. Ranks of the sequence axes have some of its tokens each; in attention a
rank meets all tokens of its place in the ring, with fewer heads. Ranks of the tensor axis have all
tokens of their place inside a block, with a part of its matrices, and between blocks their share of
them, or all.

    held        tokens between blocks: inputs and outputs of norms, residuals
    whole       tokens inside a block: inputs and outputs of matrices
    attended    tokens inside attention
    handed      tokens that go to the next stage
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import NamedTuple

from penstock.arch.attention_rule import seen_half_pairs
from penstock.arch.cell_shape import FIRST_PLACE, CellPlace, CellShape
from penstock.arch.config import ModelConfig
from penstock.arch.dealing import deal, deal_heads


class RankTokens(NamedTuple):
    """Tokens of a slice that a rank has."""

    held: int
    whole: int
    attended: int
    handed: int


@dataclass(frozen=True)
class RankShare:
    """A rank of a cell, by its place."""

    model: ModelConfig
    cell: CellShape
    place: CellPlace = FIRST_PLACE

    @cached_property
    def part(self) -> ModelConfig:
        """The model with the sizes of the rank's matrices."""
        shared = self.cell.tensor > 1
        return self.model.share(self.place.tensor, self.cell.tensor) if shared else self.model

    @cached_property
    def attended(self) -> ModelConfig:
        """The same with the heads that the rank attends with."""
        part = self.part
        if self.cell.ulysses == 1:
            return part
        return _attending_with(part, self.place.ulysses, self.cell.ulysses)

    def of_kind(self, kind: ModelConfig) -> "RankShare":
        """The same rank, of a model whose layers are all of one kind."""
        return self if kind is self.model else replace(self, model=kind)

    @property
    def scattered(self) -> bool:
        """Whether tensor ranks hold their share of the tokens between blocks."""
        return self.cell.tensor > 1 and self.cell.norms == "scattered"

    def tokens(self, count: int) -> RankTokens:
        """What the rank has of a slice of so many tokens.

        >>> from penstock.arch.presets import MODELS
        >>> RankShare(MODELS["tiny"], CellShape(tensor=2, ulysses=2)).tokens(16)
        RankTokens(held=4, whole=8, attended=16, handed=4)
        """
        attended = sum(map(len, self.chunks(count)))
        whole = len(deal(attended, self.place.ulysses, self.cell.ulysses))
        handed = len(deal(whole, self.place.tensor, self.cell.tensor))
        return RankTokens(handed if self.scattered else whole, whole, attended, handed)

    def chunks(self, count: int) -> list[range]:
        """The positions that its place in the ring has of a slice: a chunk from the front and one
        from the back, so that every rank has as many query-key pairs as the others."""
        ranks = self.cell.ring
        if ranks == 1:
            return [range(count)]
        return [deal(count, number, 2 * ranks) for number in self._numbers(ranks)]

    def _numbers(self, ranks: int) -> tuple[int, int]:
        return self.place.ring, 2 * ranks - 1 - self.place.ring

    def has_gap(self, count: int) -> bool:
        """Whether its tokens of a slice do not all follow each other."""
        early, late = ([*self.chunks(count), range(0)])[:2]
        own = deal(len(early) + len(late), self.place.ulysses, self.cell.ulysses)
        return early.stop < late.start and own.start < len(early) < own.stop

    def half_pairs(self, start: int, count: int, window: int | None = None) -> int:
        """Twice the query-key pairs of its queries of a slice that starts there; every query meets
        all tokens before it and half of itself, or as many as a window has."""
        spans = [(start + each.start, start + each.stop) for each in self.chunks(count)]
        ends = [[seen_half_pairs(place, window) for place in span] for span in spans]
        return sum(last - first for first, last in ends)

    def keys_met(self, lengths: Sequence[int], window: int | None = None) -> int:
        """Keys that its place in the ring has of some slices, as far as a query of the last one
        sees them."""
        start, first = sum(lengths[:-1]), 0
        if window is not None and window < start + lengths[-1]:
            first = max(0, start - window + 1)
        spans = [
            (begin + each.start, begin + each.stop)
            for begin, count in zip(accumulate(lengths, initial=0), lengths)
            for each in self.chunks(count)
        ]
        return sum(max(end - max(begin, first), 0) for begin, end in spans)


@lru_cache(maxsize=1024)
def _attending_with(part: ModelConfig, index: int, ranks: int) -> ModelConfig:
    """A model with the heads that one of so many ranks attends with."""
    own = deal_heads(part.heads, part.kv_heads, index, ranks)
    return replace(part, heads=len(own.queries), kv_heads=len(own.keys))
