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

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.errors import RunError
from penstock.model.attention.aten import Gradients, Output
from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.groups import Group, join_rows, row_groups
from penstock.model.attention.piece import Piece
from penstock.model.attention.reach import AttentionPart
from penstock.model.attention.ring_memory import KeyValueBlock, RingMemory
from penstock.model.attention.table import parts_back_end_for
from penstock.model.attention.tiled import OutputInPieces, TensorInPieces
from penstock.model.attention.zigzag import Ranges, count, ring_parts, zigzag_ranges
from penstock.model.parallel.group import Pending, RankGroup, Work


class RingSlice(NamedTuple):
    """Which attention is meant: of a layer, on a slice, with the keys of the slices before it."""

    piece: Piece
    memory: RingMemory | None
    """None where the slice is the whole sequence."""
    layer: int

    @property
    def bounds(self) -> list[tuple[int, int]]:
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
    ring = _Ring(q, at, group)
    outputs = [OutputInPieces(q.shape[2]) for _ in ring.groups]
    block = at.block(k, v, ring.tokens(0))
    for step in range(group.size):
        coming = ring.pass_keys(block, step)
        for rows, output in zip(ring.groups, outputs):
            keys, values = map(rows.of, block.by_head())
            ring.back_end.attend(rows.of(q), keys, values, ring.parts(rows, step), output)
        block = yield from coming.arrive()
    if not ring.queries:
        return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=_accurate(q))
    out, lse = zip(*((output.out.tensor, output.lse.tensor) for output in outputs))
    return join_rows(out), join_rows(lse)


def ring_backward(
    g: Tensor, saved: AttentionSaved, at: RingSlice, group: RankGroup
) -> Work[Gradients]:
    """Gradients of the rank's queries, keys and values of the slice, complete: keys and values have
    those from the queries of all ranks, and what later slices left.

    `saved` is what the forward was given and what it gave.
    """
    ring = _Ring(saved.q, at, group)
    backward = _RingBackward(g, saved, ring)
    block = at.block(saved.k, saved.v, ring.tokens(0))
    coming = ring.pass_keys(block, 0)
    own = backward.of_block(block, 0)
    following = _Coming(own.cut(0, 0), None)
    for step in range(1, group.size):
        block = yield from coming.arrive()
        coming = ring.pass_keys(block, step)
        new = backward.of_block(block, step)
        new.add_at_end((yield from following.arrive()))
        following = ring.pass_on(new, step + 1)
    own.add_at_end((yield from following.arrive()))
    dk, dv = map(_by_token, at.settle(own, count(ring.queries)).by_head())
    return backward.dq, dk, dv


class _Coming(NamedTuple):
    """A block on its way; one that waits for nothing is here."""

    block: KeyValueBlock
    pending: Pending | None

    def arrive(self) -> Work[KeyValueBlock]:
        if self.pending is not None:
            yield self.pending
        return self.block


class _Ring:
    """Whose keys come to a rank at which step, and what its queries see of them."""

    def __init__(self, q: Tensor, at: RingSlice, group: RankGroup) -> None:
        piece, bounds = at.piece, at.bounds
        self.group, self.groups = group, row_groups(piece)
        self.queries = zigzag_ranges(piece.start, piece.end, group.index, group.size)
        self._documents = piece.documents
        self._bounds = bounds
        self._first = piece.start - max(rows.reach.past for rows in self.groups)
        shortest = min((end - start) // (2 * group.size) for start, end in bounds)
        self.back_end = parts_back_end_for(q, piece._replace(start=0, end=shortest))
        if q.shape[2] != count(self.queries):
            raise RunError(
                f"rank {group.index} of a ring of {group.size} is given {q.shape[2]} queries of "
                f"slice {piece.slice}, and has {count(self.queries)} of its positions "
                f"{piece.start} to {piece.end}",
                hint="deal the tokens of a slice by zigzag_ranges",
            )

    def keys(self, step: int) -> Ranges:
        """The positions of the keys that are here at a step; none lie before all documents that
        the slice has a token of."""
        rank = (self.group.index - step) % self.group.size
        return tuple(
            range(max(span.start, self._first), span.stop)
            for start, end in self._bounds
            for span in zigzag_ranges(start, end, rank, self.group.size)
            if span.stop > self._first
        )

    def tokens(self, step: int) -> int:
        return count(self.keys(step))

    def parts(self, rows: Group, step: int) -> Iterator[AttentionPart]:
        """What is to be computed in some rows at a step."""
        documents = self._documents[rows.rows.start]
        return ring_parts(self.queries, self.keys(step), documents, self.back_end.square)

    def pass_keys(self, block: KeyValueBlock, step: int) -> _Coming:
        """Send the keys and values of this step on, and receive those of the next; after the last
        step they stay."""
        last = step + 1 == self.group.size
        return _Coming(block, None) if last else self.pass_on(block, step + 1)

    def pass_on(self, block: KeyValueBlock, step: int) -> _Coming:
        """Send a block on, and receive one for the keys of that step."""
        tokens = self.tokens(step)
        received, pending = self.group.pass_on(block, [(tokens, *x.shape[1:]) for x in block])
        return _Coming(KeyValueBlock(*received), pending)


class _RingBackward:
    """The gradients that a rank's queries give, block by block."""

    def __init__(self, g: Tensor, saved: AttentionSaved, ring: _Ring) -> None:
        self._g = g if g.stride(-1) == 1 else g.contiguous()
        self._saved, self._ring = saved, ring
        self._dq = [TensorInPieces(saved.q.shape[2]) for _ in ring.groups]

    @property
    def dq(self) -> Tensor:
        """Those of the queries, once all blocks were here."""
        if not self._ring.queries:
            return torch.empty_like(self._saved.q)
        return join_rows([dq.tensor for dq in self._dq])

    def of_block(self, block: KeyValueBlock, step: int) -> KeyValueBlock:
        """Those of a block's keys and values."""
        found = block.zeros()
        for rows, dq in zip(self._ring.groups, self._dq):
            keys, values = map(rows.of, block.by_head())
            dk, dv = map(rows.of, found.by_head())
            whole = [rows.of(x) for x in (self._saved.q, self._saved.out, self._saved.lse)]
            q, out, lse = whole
            saved = AttentionSaved(q, keys, values, out, lse)
            for part in self._ring.back_end.blocks(self._ring.parts(rows, step)):
                new_q, new_k, new_v = self._ring.back_end.gradients(rows.of(self._g), saved, part)
                dq.store(part.queries, new_q) if part.fresh else dq.add(part.queries, new_q)
                dk[:, :, part.keys.start : part.keys.stop].add_(new_k)
                dv[:, :, part.keys.start : part.keys.stop].add_(new_v)
        return found


def _by_token(gradient: Tensor) -> Tensor:
    """[rows, heads, tokens, size], laid token by token in every row."""
    return gradient.transpose(1, 2).contiguous().transpose(1, 2)


def _accurate(q: Tensor) -> torch.dtype:
    """The type in which log-sum-exps are."""
    return torch.promote_types(q.dtype, torch.float32)
