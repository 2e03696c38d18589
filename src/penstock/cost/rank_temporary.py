"""What an op of a rank of a cell needs only while it runs.

A rank that waits for others has what it sends and what it receives beside what it computes with, so
an op is at its highest in other moments than on a device by itself. These are the moments of the
layer in which most is alive: the last one, in a forward with everything kept, in a backward with
nothing let go yet. They follow `model/layers` line by line; all numbers are bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.arch.layers.lm_head import tokens_at_a_time
from penstock.arch.layers.record import wide_bytes
from penstock.cost.rank_attention import AttentionMoments
from penstock.cost.rank_share import RankShare


@dataclass(frozen=True)
class RankMoments:
    """The moments of one slice in a layer, from the sizes of the tensors that come and go."""

    share: RankShare
    row: int
    """A tensor of hidden width, of all tokens inside a block."""
    own: int
    """The same of the tokens held between blocks."""
    ffn: int
    queries: int
    qkv: int
    q_inside: int
    """Queries in attention, where ranks may have other tokens and heads."""
    qkv_inside: int
    attended: int
    """The most that attention needs beside the gradient of its output."""
    left: int
    """Gradients of keys and values of earlier slices, which its backward is the first to leave."""
    turns: int
    """Cosines and sines of tokens that do not follow each other."""

    @classmethod
    def of(cls, share: RankShare, count: int, keys: int, left: int = 0) -> "RankMoments":
        """Of a slice of so many tokens; `keys` are those of one place in the ring, of all slices up
        to it, and `left` those of earlier ones that it is the first to leave gradients for."""
        tokens = share.tokens(count)
        part, inside, size = share.part, share.attended, share.model.element_bytes
        queries, q_inside = (model.attention.query_width * size for model in (part, inside))
        return cls(
            share,
            row=tokens.whole * part.boundary_bytes,
            own=tokens.held * part.boundary_bytes,
            ffn=tokens.whole * part.ffn_per_token * size,
            queries=tokens.whole * queries,
            qkv=tokens.whole * (queries + part.attending_kind.kv_bytes),
            q_inside=tokens.attended * q_inside,
            qkv_inside=tokens.attended * (q_inside + inside.attending_kind.kv_bytes),
            attended=AttentionMoments(share, tokens.attended, keys, left).most(),
            left=left * inside.attending_kind.kv_bytes * part.attends,
            turns=2 * tokens.whole * part.turned_size * size * share.has_gap(count),
        )

    @property
    def gathered(self) -> int:
        """All tokens of what is held, where that is not all."""
        return self.row if self.share.scattered else 0

    @property
    def summed(self) -> int:
        """A part of a sum over ranks, and where it is scattered what lands and what it becomes."""
        return self.row + (self.row + self.own if self.share.scattered else 0)

    @property
    def normed(self) -> int:
        """The backward of a norm: the gradient it is given, and its products."""
        wide = wide_bytes(self.share.model.element_bytes)
        return self.own + 3 * self.own * wide // self.share.model.element_bytes

    def forward(self, handed: int) -> int:
        """The last sum of a layer, or its output and what of it is `handed` on."""
        output = self.row + (handed if self.share.cell.tensor > 1 else 0)
        return self.turns + (self.summed if self.share.scattered else output)

    def backward(self, *, waiting: bool) -> int:
        """The most of a layer's backward beside the gradient of its output; weight
        gradients may be `waiting` for a W."""
        put_off = waiting or self.share.cell.tensor == 1
        attention = self._attention(put_off) if self.share.part.attends else ()
        return self.turns + max(*self._mlp(put_off), *attention)

    def _mlp(self, put_off: bool) -> Iterator[int]:
        inwards = 2 * self.gathered + 2 * self.ffn
        yield inwards + self.ffn
        yield inwards + self.summed
        yield inwards * put_off + self.normed

    def _attention(self, put_off: bool) -> Iterator[int]:
        behind = self.own + (2 * self.gathered + 2 * self.ffn) * put_off
        around = behind + 2 * self.gathered + self.queries
        yield around + self._inside()
        around, behind = around + self.left, behind + self.left
        yield around + 2 * self.qkv
        yield around + self.qkv + self.summed
        if self.share.part.qk_norm:
            size = self.share.model.element_bytes
            yield around + self.qkv + 3 * self.queries * wide_bytes(size) // size
        yield behind + (2 * self.gathered + self.qkv) * put_off + self.normed

    def _inside(self) -> int:
        """Attention, and the exchanges around it: each has parts, what is sent and what lands."""
        if self.share.cell.ulysses == 1:
            return self.attended
        return max(3 * self.queries, self.q_inside + self.attended, 3 * self.qkv_inside)

    def loss(self, tokens: int) -> int:
        """The backward of the loss: the normed input, all tokens of it, and logits of own words."""
        adapters = self.share.part.head_adapter_bytes(tokens)
        return self.own + self.gathered + split_logits_bytes(self.share, tokens) + adapters


def split_logits_bytes(share: RankShare, tokens: int) -> int:
    """Logits of own words that are there at a time. They are summed up in 32 bits at least, so
    types of 16 bits are there twice; where kernels could be fused, pieces are larger."""
    if share.cell.tensor == 1:
        return share.part.head.logits_bytes(tokens)
    size, words = share.model.element_bytes, share.part.vocabulary
    summed = 0 if size == wide_bytes(size) else wide_bytes(size)
    most = max(tokens_at_a_time(words, size, fused=each) for each in (False, True))
    return min(tokens, most) * words * (size + summed)
