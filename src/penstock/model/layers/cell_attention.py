"""Attention of a slice whose tokens several ranks share.

Where ranks exchange tokens for heads (Ulysses), attention itself is that of one rank with fewer
heads: the keys and values of earlier slices stay as they were exchanged, so each slice moves its
own tokens only. Where ranks form a ring, keys and values go round. With both, the exchange is
around the ring. Where another device helps, each rank lends to the one at its own place there.
"""

from typing import Any

from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.dealing import deal_sizes
from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.heads import Heads
from penstock.model.attention.lending import lending_backward
from penstock.model.attention.piece import Piece
from penstock.model.attention.positions import ring_positions
from penstock.model.attention.ring import RingSlice, ring_backward, ring_forward
from penstock.model.attention.sharing import sharing_backward
from penstock.model.attention.slice_attention import attention_backward
from penstock.model.attention.ulysses import HeadExchange
from penstock.model.layers.attend import (
    SliceContext,
    attend,
    attend_backward,
    attend_in_turn,
    flatten_heads,
    gradient_by_head,
    placed_heads,
)
from penstock.model.parallel.cell import Cell
from penstock.model.parallel.group import RankGroup, Work


class CellAttention:
    """From rotated heads to the output of attention, and back."""

    def __init__(self, config: ModelConfig, cell: Cell) -> None:
        """`config` has the heads of this rank's matrices."""
        self.config, self.cell = config, cell
        self._exchanges: dict[int, HeadExchange] = {}
        """By the ranks of a group: a rank is in one of each size."""

    def forward(self, heads: Heads, context: SliceContext) -> Work[tuple[Tensor, AttentionSaved]]:
        """The output [rows x tokens, heads x head_size], and what the backward needs."""
        if (exchange := self._exchange(context.at.piece)) is None:
            return (yield from self._inside(heads, context))
        counts = self._counts(context.at.piece, exchange.group)
        # A name here would keep what was exchanged while others are waited for.
        passed = [heads]
        del heads
        passed = [(yield from exchange.to_heads(passed.pop(), counts))]
        _, saved = yield from self._inside(passed.pop(), context)
        return (yield from exchange.to_tokens(saved.out, counts)), saved

    def restored(
        self, heads: Heads, out: Tensor, lse: Tensor, context: SliceContext
    ) -> Work[AttentionSaved]:
        """What the backward needs, of the output that was kept: nothing attends again."""
        passed = [heads]
        del heads
        if (exchange := self._exchange(context.at.piece)) is not None:
            counts = self._counts(context.at.piece, exchange.group)
            passed = [(yield from exchange.to_heads(passed.pop(), counts))]
        return AttentionSaved(*self._placed(passed.pop(), context), out, lse)

    def backward(self, d_out: Tensor, saved: AttentionSaved, context: SliceContext) -> Work[Heads]:
        """The gradients of rotated heads."""
        piece = context.at.piece
        if (exchange := self._exchange(piece)) is None:
            if self.cell.ring is None and piece.loans is None:
                return attend_backward(d_out, saved, context)
            return (
                yield from self._inside_backward(gradient_by_head(d_out, saved), saved, context)
            )
        counts = self._counts(piece, exchange.group)
        by_head = [(yield from exchange.output_gradient_to_heads(d_out, piece.rows, counts))]
        d = [(yield from self._inside_backward(by_head.pop(), saved, context))]
        return (yield from exchange.gradients_to_tokens(d.pop(), counts))

    def _exchange(self, piece: Piece) -> HeadExchange | None:
        """The exchange among the ranks that share a piece; None where a rank has it to itself."""
        group = piece.exchanging(self.cell.ulysses)
        if group is None:
            return None
        if group.size not in self._exchanges:
            heads = self.config.heads, self.config.kv_heads
            self._exchanges[group.size] = HeadExchange(group, *heads)
        return self._exchanges[group.size]

    def _inside(self, heads: Heads, context: SliceContext) -> Work[tuple[Tensor, AttentionSaved]]:
        """Attention with the heads that a rank has, once exchanged."""
        loans = context.at.piece.loans
        if self.cell.ring is None:
            if loans is None:
                return attend(heads, context)
            return (yield from attend_in_turn(heads, context, loans))
        q, k, v = self._placed(heads, context)
        out, lse = yield from ring_forward(q, k, v, _of_ring(context), self.cell.ring)
        return flatten_heads(out), AttentionSaved(q, k, v, out, lse)

    def _placed(self, heads: Heads, context: SliceContext) -> Heads:
        """Heads, with keys and values where they stay."""
        if self.cell.ring is None:
            return placed_heads(heads, context)
        at = _of_ring(context)
        if at.memory is None:
            return heads
        if not context.written:
            at.memory.write(at.layer, at.piece, heads.k, heads.v)
        return Heads(heads.q, *at.memory.own(at.layer, at.piece))

    def _inside_backward(
        self, g: Tensor, saved: AttentionSaved, context: SliceContext
    ) -> Work[Heads]:
        loans = context.at.piece.loans
        if self.cell.ring is None:
            if loans is None:
                return Heads(*attention_backward(g, saved, context.at))
            together = sharing_backward if context.at.gives_queries else lending_backward
            return Heads(*(yield from together(g, saved, context.at, loans)))
        return Heads(*(yield from ring_backward(g, saved, _of_ring(context), self.cell.ring)))

    def _counts(self, piece: Piece, group: RankGroup) -> tuple[int, ...]:
        """Tokens of each rank that exchanges."""
        there = ring_positions(piece.start, piece.end, self.cell)
        return deal_sizes(sum(map(len, there)), group.size)


def _of_ring(context: SliceContext) -> RingSlice:
    memory: Any = context.at.memory  # made by the stage, for the ring that it is in
    return RingSlice(context.at.piece, memory, context.at.layer, context.at.rule)
