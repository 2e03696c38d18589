"""Attention of a slice whose queries the members of a gang share, as the member at home.

Each of the others has some consecutive queries, with all the keys that these see; the last queries
are kept here. So every query is computed by one device, and nothing has to be joined but rows. In
the backward each member returns the gradients of its queries and of all the keys that they see,
which add up: those of the slice's own keys here, those of earlier keys in what earlier slices take.

    here      k, v, q of queries 0-5 leave    queries 6-9        out, lse of 0-5 come
    there                                     queries 0-5
"""

from collections.abc import Callable

from torch import Tensor

from penstock.arch.attention_rule import PLAIN_ATTENTION, AttentionRule
from penstock.model.attention.aten import Gradients, Output
from penstock.model.attention.back_end import AttentionSaved, Leave
from penstock.model.attention.groups import document_groups
from penstock.model.attention.lent_keys import LentPart, cut_piece, lent_parts, own_parts
from penstock.model.attention.lent_messages import (
    Contents,
    LentHeads,
    Message,
    ask,
    keys_number,
    send_joined,
    wide,
)
from penstock.model.attention.memory import Relay
from penstock.model.attention.op_loans import OpLoans
from penstock.model.attention.piece import Piece
from penstock.model.attention.slice_attention import SliceOfLayer, attention_forward
from penstock.model.attention.table import back_end_for
from penstock.model.parallel.group import Work


def sharing_forward(
    q: Tensor, k: Tensor, v: Tensor, at: SliceOfLayer, loans: OpLoans
) -> Work[Output]:
    """As `attention_forward`, with the queries that other members of the gang attend with."""
    coming = _ask(at, loans, (q, k, v), LentHeads.output, lambda part: [part.of_queries(q)])
    kept = range(loans.given_to, at.piece.end)
    here, first = at._replace(piece=cut_piece(at.piece, kept)), kept.start - at.piece.start
    new, new_lse = attention_forward(q[:, :, first:], k, v, here)
    out, lse = _of_length(q.shape[2], new), new_lse.new_empty(*q.shape[:3], *new_lse.shape[3:])
    out[:, :, first:], lse[:, :, first:] = new, new_lse
    del new, new_lse
    while coming:
        parts, message = coming.pop(0)
        for part, (other_lse, other) in zip(parts, (yield from message.arrive())):
            part.of_queries(out).copy_(other)
            part.of_queries(lse.view(q.shape[:3])).copy_(other_lse)
        del message, other, other_lse  # with the memory of what came
    return out, lse


def sharing_backward(
    g: Tensor, saved: AttentionSaved, at: SliceOfLayer, loans: OpLoans
) -> Work[Gradients]:
    """As `attention_backward`, with the queries that other members of the gang attended with."""
    g = g if g.stride(-1) == 1 else g.contiguous()

    def sent(part: LentPart) -> list[Tensor]:
        lse = saved.lse.view(saved.lse.shape[:3]).to(wide(saved.q.dtype))
        return [part.of_queries(each) for each in (lse, saved.q, saved.out, g)]

    coming = _ask(at, loans, saved[:3], LentHeads.gradients, sent)
    total = _SharedGradients(saved, at)
    for part in own_parts(at.piece, range(loans.given_to, at.piece.end)):
        own, leave = _own(part, g, saved, at), total.leaves(part)
        total.add(part, share_gradients(*own, part, at.piece, leave, at.rule))
        del own
    while coming:
        parts, message = coming.pop(0)
        for part, (new_q, new_k, new_v) in zip(parts, (yield from message.arrive())):
            total.leaves(part)(part.keys, new_k, new_v)
            total.add(part, new_q)
        del message, new_q, new_k, new_v  # with the memory of what came
    return total.dq, total.dk, total.dv


def share_gradients(
    g: Tensor,
    saved: AttentionSaved,
    part: LentPart,
    piece: Piece,
    leave: Leave,
    rule: AttentionRule = PLAIN_ATTENTION,
) -> Tensor:
    """The gradient of some queries of a piece; those of the keys that they see are left, by their
    positions in the sequence. `g` and `saved` have these queries and keys alone."""
    assert part.reach is not None
    first, here = part.keys.start, cut_piece(piece, part.positions(piece))

    def left(keys: range, dk: Tensor, dv: Tensor) -> None:
        leave(range(first + keys.start, first + keys.stop), dk, dv)

    dq, dk, dv = back_end_for(saved.q, here, rule).backward(g, saved, part.reach, left)
    leave(range(here.start, here.end), dk, dv)
    return dq


class _SharedGradients:
    """Gradients of a slice's queries, keys and values, to which every member of a gang adds."""

    def __init__(self, saved: AttentionSaved, at: SliceOfLayer) -> None:
        self._at, tokens = at, saved.q.shape[2]
        self.dq = _of_length(tokens, saved.q)
        self.dk, self.dv = (_of_length(tokens, each).zero_() for each in (saved.k, saved.v))
        """Those of the slice's own keys and values, with what later slices left."""
        if at.memory is not None:
            for rows, _ in document_groups(at.piece):
                here = slice(rows.start, rows.stop)
                self._relay(rows, at.piece.start).take(self.dk[here], self.dv[here])

    def leaves(self, part: LentPart) -> Leave:
        """Adds gradients of the part's keys: to the slice's own, or to what earlier slices take."""
        start, rows = self._at.piece.start, slice(part.rows.start, part.rows.stop)

        def leave(keys: range, dk: Tensor, dv: Tensor) -> None:
            past = max(min(start, keys.stop) - keys.start, 0)
            if past:
                relay = self._relay(part.rows, keys.start)
                relay.leave(range(past), dk[:, :, :past], dv[:, :, :past])
            if past < len(keys):
                here = slice(keys.start + past - start, keys.stop - start)
                for total, new in ((self.dk, dk), (self.dv, dv)):
                    total[rows, :, here].add_(new[:, :, past:])

        return leave

    def add(self, part: LentPart, dq: Tensor) -> None:
        """Put the gradient of a part's queries, once those of all its keys are left."""
        part.of_queries(self.dq).copy_(dq)
        if part.keys.start < self._at.piece.start:
            gradients = self._relay(part.rows, part.keys.start).gradients
            gradients.settle(self._at.layer, part.rows, part.keys.start)

    def _relay(self, rows: range, first: int) -> Relay:
        assert self._at.memory is not None  # a whole sequence has nothing before it
        piece = self._at.piece
        return Relay(self._at.memory, self._at.layer, rows, piece, piece.start - first)


def _ask(
    at: SliceOfLayer,
    loans: OpLoans,
    heads: tuple[Tensor, Tensor, Tensor],
    result: Callable[[LentHeads, LentPart], Contents],
    sent: Callable[[LentPart], list[Tensor]],
) -> list[tuple[list[LentPart], Message]]:
    """Send what the other members need, keys and values first, and expect their results."""
    q, k, v = heads
    both, sizes = at.keys_and_values(k, v), LentHeads(q.shape[1], k.shape[1], q.shape[3], q.dtype)
    found = []
    for lent in loans.lent:
        if parts := lent_parts(at.piece, lent):
            keys = [part.of_keys(each) for part in parts for each in both]
            send_joined(lent.peer, keys_number(at.layer), keys, q.dtype)
            expected = [result(sizes, part) for part in parts]
            tensors = [tensor for part in parts for tensor in sent(part)]
            found.append((parts, ask(lent.peer, at.layer, expected, tensors, both[0])))
    return found


def _own(
    part: LentPart, g: Tensor, saved: AttentionSaved, at: SliceOfLayer
) -> tuple[Tensor, AttentionSaved]:
    """What a backward of some queries works with."""
    q, out = (part.of_queries(each) for each in (saved.q, saved.out))
    k, v = (part.of_keys(each) for each in at.keys_and_values(saved.k, saved.v))
    lse = part.of_queries(saved.lse).contiguous()
    return part.of_queries(g), AttentionSaved(q, k, v, out, lse)


def _of_length(tokens: int, like: Tensor) -> Tensor:
    """Room for so many tokens, which lie one after the other in memory."""
    rows, heads, _, size = like.shape
    return like.new_empty(rows, tokens, heads, size).transpose(1, 2)
