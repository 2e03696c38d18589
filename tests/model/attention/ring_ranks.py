"""The attention of a case on the ranks of a ring, put together again."""

from typing import NamedTuple

import torch
from torch import Tensor

from model.attention.dense import Case, Gradients, dense, relative
from model.parallel.threads import ThreadGroup, run_ranks
from penstock.arch.dealing import most_tokens
from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.piece import Piece
from penstock.model.attention.ring import RingSlice, ring_backward, ring_forward
from penstock.model.attention.ring_memory import RingMemory
from penstock.model.attention.zigzag import zigzag_ranges
from penstock.model.parallel.group import RankGroup, Work


class RankResult(NamedTuple):
    """What a rank finds for its tokens."""

    places: Tensor
    out: Tensor
    gradients: Gradients
    group: ThreadGroup


class RingRank:
    """One rank's forward and backward of a case, slice by slice."""

    def __init__(self, case: Case, group: RankGroup) -> None:
        self.case, self.group, self.pieces = case, group, case.pieces()
        self.memory = None if len(case.lengths) == 1 else self.new_memory()

    def new_memory(self) -> RingMemory:
        case = self.case
        tokens = most_tokens(case.length, len(case.lengths), self.group.size)
        sizes = (1, case.rows, case.kv_heads, tokens, case.size)
        return RingMemory(*sizes, dtype=case.dtype, device=case.device)

    def places(self, piece: Piece) -> list[int]:
        """The positions of the slice that the rank has."""
        dealt = zigzag_ranges(piece.start, piece.end, self.group.index, self.group.size)
        return [place for span in dealt for place in span]

    def own(self, tensor: Tensor, piece: Piece) -> Tensor:
        """What the rank has of a tensor, token by token in memory."""
        return tensor.transpose(1, 2)[:, self.places(piece)].transpose(1, 2)

    def forward(self) -> Work[list[AttentionSaved]]:
        """All slices, from the first to the last."""
        saved = []
        for piece in self.pieces:
            q, k, v, _ = (self.own(x, piece) for x in self.case.inputs())
            if self.memory is not None:
                self.memory.write(0, piece, k, v)
                k, v = self.memory.own(0, piece)
            out, lse = yield from ring_forward(q, k, v, self.at(piece), self.group)
            saved.append(AttentionSaved(q, k, v, out, lse))
            self.between()
        return saved

    def backward(self, saved: list[AttentionSaved]) -> Work[list[Gradients]]:
        """All slices, from the last to the first; gradients in the order of the slices."""
        if self.memory is not None:
            self.memory.open_gradients()
        found = []
        for piece in reversed(self.pieces):
            g = self.own(self.case.inputs()[3], piece)
            found.append(
                (yield from ring_backward(g, saved[piece.slice], self.at(piece), self.group))
            )
            self.between()
        return found[::-1]

    def between(self) -> None:
        """Called after each slice, forward and backward."""

    def at(self, piece: Piece) -> RingSlice:
        return RingSlice(piece, self.memory, 0)


def rank_work(rank: RingRank, group: ThreadGroup) -> Work[RankResult]:
    """Forward and backward, and what they find."""
    saved = yield from rank.forward()
    gradients = yield from rank.backward(saved)
    places = torch.tensor([place for piece in rank.pieces for place in rank.places(piece)]).long()
    dq, dk, dv = (torch.cat(each, 2) for each in zip(*gradients))
    return RankResult(places, torch.cat([each.out for each in saved], 2), (dq, dk, dv), group)


def ring_of(case: Case, ranks: int, kind: type[RingRank] = RingRank) -> list[RankResult]:
    """What all ranks find."""
    return run_ranks(ranks, lambda group: rank_work(kind(case, group), group))


def whole(results: list[RankResult]) -> tuple[Tensor, Gradients]:
    """Output and gradients of all tokens, in the order of their positions."""
    order = torch.cat([result.places for result in results]).argsort()
    out, dq, dk, dv = (
        torch.cat(each, 2)[:, :, order]
        for each in zip(*((result.out, *result.gradients) for result in results))
    )
    return out, (dq, dk, dv)


def ring_errors(case: Case, results: list[RankResult]) -> list[float]:
    """Errors of the output and of the gradients of queries, keys and values."""
    out, gradients = dense(case)
    ours, our_gradients = whole(results)
    return [relative(*pair) for pair in [(ours, out), *zip(our_gradients, gradients)]]
