"""Attention of one slice whose tokens several ranks share: keys and values go round.

No rank has room for all keys of a long sequence. Each keeps the queries of its own tokens, and the
keys and values of all ranks come by, one block after the other; what the queries see of each block
is joined by log-sum-exp, as parts of an attention are. While a block is worked on the next one is
on its way, so a ring costs no time as long as a block takes longer to compute than to send.

    step        0  1  2  3
    rank 0      0  3  2  1        whose keys and values are where: 4 ranks,
    rank 1      1  0  3  2        each step passes them on to the rank below
    rank 2      2  1  0  3
    rank 3      3  2  1  0

In the backward keys and values go round once more. The gradients of a block begin at the first rank
that it comes to, follow it and grow at every rank; one more pass brings them home. The owner adds
its own and, from the last slice to the first, what later slices left.

Tensors are [rows, heads, tokens, head_size]; a rank's tokens are its ranges of `zigzag_ranges`, one
behind the other.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from penstock.arch.attention_rule import PLAIN_ATTENTION, AttentionRule
from penstock.errors import RunError
from penstock.model.attention.aten import Gradients, Output
from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.groups import join_rows
from penstock.model.attention.piece import Piece
from penstock.model.attention.ring_memory import KeyValueBlock, RingMemory
from penstock.model.attention.ring_steps import Bounds, Coming, RingSteps
from penstock.model.attention.tiled import OutputInPieces, TensorInPieces
from penstock.model.attention.zigzag import count
from penstock.model.parallel.group import RankGroup, Work


class RingSlice(NamedTuple):
    """Which attention is meant: of a layer, on a slice, with the keys of the slices before it."""

    piece: Piece
    memory: RingMemory | None
    """None where the slice is the whole sequence."""
    layer: int
    rule: AttentionRule = PLAIN_ATTENTION

    @property
    def bounds(self) -> Bounds:
        """Where the slices up to this one begin and end."""
        if self.memory is not None:
            return [(kept.start, kept.end) for kept in self.memory.kept(self.piece)]
        if not self.piece.whole:
            raise RunError(
                f"slice {self.piece.slice} of microbatch {self.piece.mb} has no memory of the "
                "slices before it",
                hint="give the RingMemory of its microbatch",
            )
        return [(self.piece.start, self.piece.end)]

    def block(self, k: Tensor, v: Tensor, tokens: int) -> KeyValueBlock:
        """The last tokens that the rank has; `k` and `v` are the slice's own."""
        if self.memory is None:
            return KeyValueBlock.of(k, v)
        return self.memory.last(self.layer, self.piece, tokens)

    def settle(self, new: KeyValueBlock, own: int) -> KeyValueBlock:
        """The slice's own gradients with what later slices left; those before it are left."""
        if self.memory is None:
            return new
        if self.memory.gradients is None:
            raise RunError(
                f"slice {self.piece.slice} of microbatch {self.piece.mb} has nowhere to leave "
                f"the gradients of its keys and values in layer {self.layer}",
                hint="call open_gradients() before the backward of the microbatch's last slice",
            )
        return self.memory.gradients.settle(self.layer, new, own)


def ring_forward(q: Tensor, k: Tensor, v: Tensor, at: RingSlice, group: RankGroup) -> Work[Output]:
    """Output and log-sum-exp of the rank's queries.

    Where there is a memory it has the rank's keys and values of the slice already, and those given
    are not read.
    """
    if at.piece.start == at.piece.end:  # of a group with fewer tokens than slices, or of no group
        return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=_accurate(q))
    ring = RingSteps(q, at.piece, at.bounds, group, at.rule)
    outputs = [OutputInPieces(q.shape[2], _accurate(q)) for _ in ring.groups]
    block = at.block(k, v, ring.tokens(0))
    for step in range(group.size):
        coming = ring.pass_keys(block, step)
        for rows, output in zip(ring.groups, outputs):
            keys, values = map(rows.of, block.by_head())
            ring.back_end.attend(rows.of(q), keys, values, ring.parts(rows, step), output)
        block = yield from coming.arrive()
    if not ring.queries:
        return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=_accurate(q))
    out = join_rows([output.out.tensor for output in outputs]).to(q.dtype)
    return out, join_rows([output.lse.tensor for output in outputs])


def ring_backward(
    g: Tensor, saved: AttentionSaved, at: RingSlice, group: RankGroup
) -> Work[Gradients]:
    """Gradients of the rank's queries, keys and values of the slice, complete: keys and values have
    those from the queries of all ranks, and what later slices left.

    `saved` is what the forward was given and what it gave.
    """
    if at.piece.start == at.piece.end:
        return torch.empty_like(saved.q), torch.empty_like(saved.k), torch.empty_like(saved.v)
    ring = RingSteps(saved.q, at.piece, at.bounds, group, at.rule)
    backward = _RingBackward(g, saved, ring)
    block = at.block(saved.k, saved.v, ring.tokens(0))
    coming = ring.pass_keys(block, 0)
    own = backward.of_block(block, 0)
    following = Coming(own.none(), None)
    for step in range(1, group.size):
        block = yield from coming.arrive()
        coming = ring.pass_keys(block, step)
        new = backward.of_block(block, step)
        del block  # keys that were here are not needed while gradients go on
        new.add_at_end((yield from following.arrive()))
        del following
        following = ring.pass_on(new, step + 1)
        del new
    own.add_at_end((yield from following.arrive()))
    del following
    dk, dv = map(_by_token, at.settle(own, count(ring.queries)).by_head())
    return backward.dq, dk, dv


class _RingBackward:
    """The gradients that a rank's queries give, block by block."""

    def __init__(self, g: Tensor, saved: AttentionSaved, ring: RingSteps) -> None:
        self._g = g if g.stride(-1) == 1 else g.contiguous()
        self._saved, self._ring = saved, ring
        self._dq = [TensorInPieces(saved.q.shape[2]) for _ in ring.groups]

    @property
    def dq(self) -> Tensor:
        """Those of the queries, once all blocks were here."""
        if not self._ring.queries:
            return torch.empty_like(self._saved.q)
        return join_rows([dq.tensor for dq in self._dq]).to(self._saved.q.dtype)

    def of_block(self, block: KeyValueBlock, step: int) -> KeyValueBlock:
        """Those of a block's keys and values."""
        found, back_end = block.zeros(), self._ring.back_end
        for rows, dq in zip(self._ring.groups, self._dq):
            keys, values = map(rows.of, block.by_head())
            q, out, lse = map(rows.of, (self._saved.q, self._saved.out, self._saved.lse))
            saved = AttentionSaved(q, keys, values, out, lse)
            for part in back_end.blocks(self._ring.parts(rows, step)):
                new_q, *new = back_end.gradients(rows.of(self._g), saved, part)
                new_q = new_q.to(_accurate(q))
                dq.store(part.queries, new_q) if part.fresh else dq.add(part.queries, new_q)
                for into, gradient in zip(map(rows.of, found.by_head()), new):
                    into[:, :, part.keys.start : part.keys.stop].add_(gradient)
                    del gradient
                del new_q, new  # before the next ones are there
        return found


def _by_token(gradient: Tensor) -> Tensor:
    """[rows, heads, tokens, size], laid token by token in every row."""
    return gradient.transpose(1, 2).contiguous().transpose(1, 2)


def _accurate(q: Tensor) -> torch.dtype:
    """The type in which blocks are joined: in 16 bits every block would round what was there."""
    return torch.promote_types(q.dtype, torch.float32)
