"""What the ranks of a cell send each other: the collectives that the layers of an op start.

Tensor-parallel ranks gather tokens in front of matrices that are split by outputs and add up behind
those that are split by inputs, so what a block sends follows from its record. Around attention the
ranks of a slice exchange tokens for heads (Ulysses), or pass keys and values round (ring).

    n tokens of h elements inside a block, of which a rank holds n / t between blocks

    gather        a rank sends its part to each of the others     (t - 1) n h / t
    scatter_sum   all parts but its own to their owners           (t - 1) n h / t
    add_up        a sum that is scattered, and gathered again     2 (t - 1) n h / t
    exchange      to each of the others what it lacks
    pass_on       all that is here to the next rank

The names are those of `RankGroup` (model/parallel/group.py), whose calls are counted by a test.
Bytes are for sequences of one document; a ring leaves out keys that no query of a slice can see.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

from penstock.arch.cell_shape import CellPlace
from penstock.arch.dealing import HeadShare, deal_heads
from penstock.arch.layers.attention import PROJECTION, Attention
from penstock.arch.layers.expert_mlp import ExpertMlp
from penstock.arch.layers.lm_head import tokens_at_a_time
from penstock.arch.layers.parameter import INPUTS, OUTPUTS
from penstock.arch.layers.record import LayerRecord, wide_bytes
from penstock.cost.rank_share import RankShare, RankTokens

CellAxis = Literal["tensor", "ulysses", "ring"]
FORWARD_KINDS, BACKWARD_KINDS = "FNR", "BI"
GATHERING_KINDS = "SD"
"""Passes over a shard of the vocabulary that need all tokens of what a stage hands on."""
CELL_AXES: tuple[CellAxis, ...] = ("tensor", "ulysses", "ring")
CollectiveName = Literal["gather", "scatter_sum", "add_up", "take_largest", "exchange", "pass_on"]


class Beside(NamedTuple):
    """FLOPs that a rank computes between the start of a collective and the wait for it."""

    linear: int = 0
    attention: Fraction = Fraction(0)
    attention_backward: Fraction = Fraction(0)


NOTHING_BESIDE = Beside()


class Collective(NamedTuple):
    """Calls that a rank makes with others along an axis of its cell."""

    name: CollectiveName
    axis: CellAxis
    sent: Fraction
    """Bytes that leave the rank."""
    beside: Beside = NOTHING_BESIDE
    calls: int = 1
    times: int = 1
    """How often all of this happens in an op: once for each layer."""


SlicePart = tuple[Collective, ...]
"""What is sent in a part of an op."""


@lru_cache(maxsize=1024)
def slice_collectives(
    share: RankShare, lengths: tuple[int, ...], window: int | None = None
) -> "SliceCollectives":
    """Those of one slice: ops of all stages ask for the same."""
    return SliceCollectives(share, lengths, window)


@dataclass(frozen=True)
class SliceCollectives:
    """What a rank sends in the ops of one slice; `lengths` are those of all slices up to it."""

    share: RankShare
    lengths: tuple[int, ...]
    window: int | None = None
    """Keys that a query sees, in layers with a sliding window."""

    @cached_property
    def forward_of_layer(self) -> SlicePart:
        """What `layer_forward` yields."""
        return tuple(self.layer_forward())

    @cached_property
    def backward_of_layer(self) -> SlicePart:
        """What `layer_backward` yields for a B."""
        return tuple(self.layer_backward("B"))

    @cached_property
    def input_gradient_of_layer(self) -> SlicePart:
        """The same for an I."""
        return tuple(self.layer_backward("I"))

    @property
    def nothing(self) -> SlicePart:
        """What is sent where there is nothing to send."""
        return ()

    def layer_forward(self) -> Iterator[Collective]:
        """A layer's forward, record by record."""
        for record in self.share.part.layer_records:
            if record.weights_along(OUTPUTS):
                yield from self._gather()
            if isinstance(record.kind, Attention):
                yield from self._projection_norms(record.kind)
                yield from self._attention_forward()
            if record.weights_along(INPUTS):
                yield from self._add_up()

    def layer_backward(self, kind: str) -> Iterator[Collective]:
        """A layer's backward. While the gradient of a block's input is added up, a B computes the
        weight gradients of the block; an I leaves them to a W."""
        for record in reversed(self.share.part.layer_records):
            if record.weights_along(INPUTS):
                yield from self._gather()
            if record.weights_along(OUTPUTS):
                yield from self._gather(self._while_input_is_gathered(record))
            if isinstance(record.kind, Attention):
                yield from self._attention_backward()
                yield from self._projection_norms(record.kind)
            if record.weights_along(OUTPUTS):
                products = record.weight_flops * self.tokens.whole
                yield from self._add_up(Beside(linear=products * (kind == "B")))

    def _projection_norms(self, record: Attention) -> Iterator[Collective]:
        """Norms of queries and keys over all heads: a number for each token and each of them."""
        if self.share.cell.tensor > 1 and record.qk_norm and record.norm_over == PROJECTION:
            size = 2 * self.tokens.whole * wide_bytes(self.share.model.element_bytes)
            yield Collective("add_up", "tensor", self._summed(size))

    @cached_property
    def embedding_forward(self) -> SlicePart:
        """Rows of the vocabulary come from the rank that has them."""
        return tuple(self._add_up())

    @cached_property
    def embedding_backward(self) -> SlicePart:
        return tuple(self._gather())

    @cached_property
    def loss_backward(self) -> SlicePart:
        """The head and its loss: two small sums for each token, in 32 bits at least."""
        return tuple(self._loss_backward())

    def _loss_backward(self) -> Iterator[Collective]:
        yield from self._gather()
        if self.share.cell.tensor > 1:
            number = self._summed(self.tokens.whole * wide_bytes(self.share.model.element_bytes))
            pieces = self._pieces_of_logits
            yield Collective("take_largest", "tensor", number, calls=pieces)
            yield Collective("add_up", "tensor", 2 * number, calls=pieces)
        yield from self._add_up()

    @cached_property
    def to_shard(self) -> SlicePart:
        """Each tensor rank was sent its share of the tokens, and has words of its own: all tokens
        meet them. What shards give is brought together by collectives of all devices."""
        return (self._gather_of(self.tokens.handed),) if self.share.cell.tensor > 1 else ()

    @cached_property
    def from_other_stage(self) -> SlicePart:
        """Each tensor rank was sent its share of the tokens; where it holds all, they gather."""
        if self.share.cell.tensor > 1 and not self.share.scattered:
            return (self._gather_of(self.tokens.handed),)
        return ()

    @cached_property
    def tokens(self) -> RankTokens:
        return self.share.tokens(self.lengths[-1])

    def _gather(self, beside: Beside = NOTHING_BESIDE) -> Iterator[Collective]:
        """All tokens, where a rank holds its share of them."""
        if self.share.scattered:
            yield self._gather_of(self.tokens.held, beside)

    def _gather_of(self, held: int, beside: Beside = NOTHING_BESIDE) -> Collective:
        others = self.share.cell.tensor - 1
        return Collective("gather", "tensor", Fraction(others * held * self._row), beside)

    def _add_up(self, beside: Beside = NOTHING_BESIDE) -> Iterator[Collective]:
        """What is held of a sum over ranks."""
        if self.share.scattered:
            others = self.tokens.whole - self.tokens.held
            yield Collective("scatter_sum", "tensor", Fraction(others * self._row), beside)
        elif self.share.cell.tensor > 1:
            sent = self._summed(self.tokens.whole * self._row)
            yield Collective("add_up", "tensor", sent, beside)

    def _summed(self, size: int) -> Fraction:
        ranks = self.share.cell.tensor
        return Fraction(2 * (ranks - 1) * size, ranks)

    @property
    def _row(self) -> int:
        """Bytes of a token between blocks."""
        return self.share.model.boundary_bytes

    @property
    def _pieces_of_logits(self) -> int:
        """How often the head has logits of some tokens."""
        words, size = self.share.part.vocabulary, self.share.model.element_bytes
        return -(-self.tokens.whole // tokens_at_a_time(words, size, fused=True))

    def _while_input_is_gathered(self, record: LayerRecord) -> Beside:
        """What the backward of a block computes before it needs the block's input again."""
        if isinstance(record.kind, Attention):
            return Beside(attention_backward=2 * self._pair_flops)
        if isinstance(record, ExpertMlp):
            return NOTHING_BESIDE
        return Beside(linear=2 * record.weights_along(INPUTS) * self.tokens.whole)

    @property
    def _pair_flops(self) -> Fraction:
        """Of the forward of attention."""
        start = sum(self.lengths[:-1])
        pairs = Fraction(self.share.half_pairs(start, self.lengths[-1], self.window), 2)
        return pairs * self.share.attended.attending_kind.pair_flops

    def _attention_forward(self) -> Iterator[Collective]:
        yield from self._to_heads("queries", "keys", "keys")
        yield from self._ring_forward()
        yield from self._to_tokens("queries")

    def _attention_backward(self) -> Iterator[Collective]:
        yield from self._to_heads("queries")
        yield from self._ring_backward()
        yield from self._to_tokens("queries", "keys", "keys")

    def _to_heads(self, *tensors: str) -> Iterator[Collective]:
        """Own tokens, to each of the others with its heads."""
        if self.share.cell.ulysses == 1:
            return
        widths, here = self._widths(tensors), self.share.place.ulysses
        yield from self._exchange(self.tokens.whole * (sum(widths) - widths[here]))

    def _to_tokens(self, *tensors: str) -> Iterator[Collective]:
        """Own heads, to each of the others of its tokens."""
        if self.share.cell.ulysses == 1:
            return
        others = self.tokens.attended - self.tokens.whole
        yield from self._exchange(others * self._widths(tensors)[self.share.place.ulysses])

    def _widths(self, tensors: tuple[str, ...]) -> list[int]:
        """Heads of some tensors that each rank has in attention."""
        part, ranks = self.share.part, self.share.cell.ulysses
        heads = _dealt_heads(part.heads, part.kv_heads, ranks)
        return [sum(len(getattr(each, tensor)) for tensor in tensors) for each in heads]

    def _exchange(self, heads: int) -> Iterator[Collective]:
        size = self.share.model.head_size * self.share.model.element_bytes
        yield Collective("exchange", "ulysses", Fraction(heads * size))

    def _ring_forward(self) -> Iterator[Collective]:
        """Each block is passed on while it is computed with; the last one stays."""
        ranks = self.share.cell.ring
        block = Beside(attention=self._pair_flops / ranks)
        for step in range(ranks - 1):
            yield Collective("pass_on", "ring", self._keys(step), block)

    def _ring_backward(self) -> Iterator[Collective]:
        """Beside the block of a step: the keys of that step, and the gradients of the one before;
        the gradients of the last step come home beside nothing. Own keys have theirs at home."""
        ranks = self.share.cell.ring
        block = Beside(attention_backward=2 * self._pair_flops / ranks)
        for step in range(ranks if ranks > 1 else 0):
            passed = [self._keys(step)] * (step < ranks - 1) + [self._keys(step - 1)] * (step > 1)
            if passed:
                sent = sum(passed, Fraction(0))
                yield Collective("pass_on", "ring", sent, block, len(passed))
        if ranks > 1:
            yield Collective("pass_on", "ring", self._keys(ranks - 1))

    def _keys(self, step: int) -> Fraction:
        """Bytes of the keys and values that are here at a step: those of another place, of all
        slices so far."""
        return self._keys_of_place[(self.share.place.ring - step) % self.share.cell.ring]

    @cached_property
    def _keys_of_place(self) -> list[Fraction]:
        """The same of each place of the ring."""
        tensor, ulysses, _ = self.share.place
        places = (CellPlace(tensor, ulysses, ring) for ring in range(self.share.cell.ring))
        owners = (RankShare(self.share.model, self.share.cell, place) for place in places)
        tokens = (each.keys_met(self.lengths, self.window) for each in owners)
        return [Fraction(count * self.share.attended.kv_bytes) for count in tokens]


@lru_cache(maxsize=256)
def _dealt_heads(heads: int, kv_heads: int, ranks: int) -> list[HeadShare]:
    return [deal_heads(heads, kv_heads, rank, ranks) for rank in range(ranks)]
