"""Attention of another device's queries to its keys, computed for it layer by layer.

Both ends know the slice, its documents and the keys that are lent, so nothing but tensors has to
be told. The messages of the next layer may arrive while this one is computed.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.arch.attention_rule import AttentionRule
from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.lent_keys import LentPart, cut_piece, lent_parts
from penstock.model.attention.lent_messages import (
    Contents,
    LentHeads,
    Message,
    join_tensors,
    keys_number,
    queries_number,
    result_number,
    wide,
)
from penstock.model.attention.op_loans import LentWork
from penstock.model.attention.piece import Piece
from penstock.model.attention.reach import AttentionPart
from penstock.model.attention.sharing import share_gradients
from penstock.model.attention.table import back_end_for, parts_back_end_for
from penstock.model.attention.tiled import TensorInPieces, Tiled
from penstock.model.parallel.group import Work


class _Asked(NamedTuple):
    """Whose attention is computed."""

    piece: Piece
    rule: AttentionRule


class _Pass(NamedTuple):
    """What is done in one direction through the layers."""

    order: Callable[[range], Iterable[int]]
    asked: Callable[[LentHeads, LentPart], Contents]
    """What comes beside keys and values."""
    compute: Callable[[LentPart, _Asked, list[Tensor], list[Tensor]], list[Tensor]]
    """The result of one part of a piece, of what came and of keys and values."""


def _output(part: LentPart, of: _Asked, asked: list[Tensor], both: list[Tensor]) -> list[Tensor]:
    (q,), (k, v) = asked, both
    if part.reach is None:
        out, lse = _kernel(part, of, asked).ahead(q, k, v, False)
    else:
        here = cut_piece(of.piece, part.positions(of.piece))
        out, lse = back_end_for(q, here, of.rule).forward(q, k, v, part.reach)
    return [lse.reshape(q.shape[:3]).to(wide(q.dtype)), out]


def _gradients(part: LentPart, of: _Asked, asked: list[Tensor], both: list[Tensor]) -> list[Tensor]:
    (lse, q, out, g), (k, v) = asked, both
    saved = AttentionSaved(q, k, v, out, lse)
    if part.reach is None:
        return _of_rectangle(_kernel(part, of, asked), g, saved)
    dk, dv = (TensorInPieces(len(part.keys)) for _ in both)

    def store(keys: range, new_k: Tensor, new_v: Tensor) -> None:
        here = range(keys.start - part.keys.start, keys.stop - part.keys.start)
        dk.store(here, new_k)
        dv.store(here, new_v)

    dq = share_gradients(g, saved, part, of.piece, store, of.rule)
    return [dq, dk.tensor, dv.tensor]


def _of_rectangle(back_end: Tiled, g: Tensor, saved: AttentionSaved) -> list[Tensor]:
    q, k, v, *_ = saved
    dq, dk, dv = (TensorInPieces(each.shape[2]) for each in (q, k, v))
    rectangle = AttentionPart(range(q.shape[2]), range(k.shape[2]), causal=False, fresh=True)
    for block in back_end.blocks([rectangle]):
        new_q, new_k, new_v = back_end.gradients(g, saved, block)
        dq.store(block.queries, new_q) if block.fresh else dq.add(block.queries, new_q)
        dk.store(block.keys, new_k)
        dv.store(block.keys, new_v)
        del new_q, new_k, new_v  # before the next ones are there
    return [dq.tensor, dk.tensor, dv.tensor]


_FORWARD = _Pass(iter, LentHeads.queries, _output)
_BACKWARD = _Pass(reversed, LentHeads.output_gradient, _gradients)

_PASSES = {**dict.fromkeys("FNR", _FORWARD), **dict.fromkeys("BI", _BACKWARD)}
"""By the kind of the op that lends."""


class Helping(NamedTuple):
    """What a rank knows to help any op: the attention of the layers of each stage, and which heads
    there are at its place in every cell."""

    layers: Sequence[Sequence[AttentionRule]]
    heads: LentHeads
    device: torch.device

    def help(self, kind: str, stage: int, piece: Piece, lent: LentWork) -> Work[None]:
        """Compute what an op of that kind and stage lends, which works on that piece."""
        parts, way = lent_parts(piece, lent), _PASSES.get(kind)
        if way is None:  # weight gradients have no attention
            return
        rules = [rule.within(piece.end) for rule in self.layers[stage]]
        lending = [layer for layer in way.order(range(len(rules))) if rules[layer].window is None]
        order = lending if parts else []
        coming = [self._expect(lent, layer, parts, way) for layer in order[:1]]
        for turn, layer in enumerate(order):
            yield BothMessages(*coming[0])
            arrived = coming.pop()
            coming += [self._expect(lent, n, parts, way) for n in order[turn + 1 :][:1]]
            keys, asked = (message.tensors() for message in arrived)
            del arrived
            result: list[Tensor] = []
            for part in parts:
                result += way.compute(part, _Asked(piece, rules[layer]), asked.pop(0), keys.pop(0))
            lent.peer.send(result_number(layer), join_tensors(result, self.heads.dtype))
            del result, keys, asked

    def _expect(
        self, lent: LentWork, layer: int, parts: Sequence[LentPart], way: _Pass
    ) -> tuple[Message, Message]:
        """The messages of a layer, in the order in which they are sent."""
        like = torch.empty(0, dtype=self.heads.dtype, device=self.device)
        kinds = (
            (keys_number(layer), [self.heads.keys(part) for part in parts]),
            (queries_number(layer), [way.asked(self.heads, part) for part in parts]),
        )
        keys, asked = (Message.expected(lent.peer, number, like, each) for number, each in kinds)
        return keys, asked


class BothMessages:
    """Two messages, waited for together; then it holds nothing."""

    def __init__(self, first: Message, second: Message) -> None:
        self._pending = [first.pending, second.pending]

    def wait(self) -> None:
        while self._pending:
            self._pending.pop(0).wait()


def _kernel(part: LentPart, of: _Asked, asked: list[Tensor]) -> Tiled:
    """The back end for a rectangle, which has no documents in it."""
    keys, queries = len(part.keys), len(part.queries)
    rectangle = of.piece._replace(start=keys, end=keys + queries, documents=((0,),))
    return parts_back_end_for(asked[-1], rectangle, of.rule)
