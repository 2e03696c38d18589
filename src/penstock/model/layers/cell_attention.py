"""Attention of a slice whose tokens several ranks share.

Where ranks exchange tokens for heads (Ulysses), attention itself is that of one rank with fewer
heads: the keys and values of earlier slices stay as they were exchanged, so each slice moves its
own tokens only.
"""

from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.dealing import deal_sizes
from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.piece import Piece
from penstock.model.attention.slice_attention import attention_backward
from penstock.model.layers.attend import SliceContext, attend, attend_backward
from penstock.model.layers.qkv_projection import Heads
from penstock.model.parallel.cell import Cell
from penstock.model.parallel.group import Work
from penstock.model.parallel.ulysses import HeadExchange


class CellAttention:
    """From rotated heads to the output of attention, and back."""

    def __init__(self, config: ModelConfig, cell: Cell) -> None:
        """`config` has the heads of this rank's matrices."""
        self.exchange = None
        if cell.ulysses is not None:
            self.exchange = HeadExchange(cell.ulysses, config.heads, config.kv_heads)

    def forward(self, heads: Heads, context: SliceContext) -> Work[tuple[Tensor, AttentionSaved]]:
        """The output [rows x tokens, heads x head_size], and what the backward needs."""
        if self.exchange is None:
            return attend(heads, context)
        counts = self._counts(context.at.piece)
        own = yield from self.exchange.to_heads(heads, counts)
        del heads
        _, saved = attend(own, context)
        return (yield from self.exchange.to_tokens(saved.out, counts)), saved

    def backward(self, d_out: Tensor, saved: AttentionSaved, context: SliceContext) -> Work[Heads]:
        """The gradients of rotated heads."""
        if self.exchange is None:
            return attend_backward(d_out, saved, context)
        piece = context.at.piece
        counts = self._counts(piece)
        g = yield from self.exchange.output_gradient_to_heads(d_out, piece.rows, counts)
        d = Heads(*attention_backward(g, saved, context.at))
        return (yield from self.exchange.gradients_to_tokens(d, counts))

    def _counts(self, piece: Piece) -> tuple[int, ...]:
        assert self.exchange is not None
        return deal_sizes(piece.end - piece.start, self.exchange.group.size)
