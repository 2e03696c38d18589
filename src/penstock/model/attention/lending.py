"""Attention of a slice of which other devices compute a part, as the device that lends it.

Keys and values of earlier slices leave before the layer has projected anything, queries as soon as
they are there. Meanwhile the rest is computed here; the parts are joined by log-sum-exp. In the
backward the output and the log-sum-exp of all parts go along, and with them the gradients of the
parts add up. What comes back of earlier keys is left to earlier slices, as own gradients are.

    here      keys 0-3 leave    queries leave    attention to 4-7    out, lse come: joined
    there                                        attention to 0-3
"""

from collections.abc import Callable, Iterator

from torch import Tensor

from penstock.model.attention.aten import Gradients, Output
from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.lent_keys import LentPart, lent_parts
from penstock.model.attention.lent_messages import (
    ContentsOf,
    LentHeads,
    Message,
    ask,
    keys_number,
    send_joined,
    wide,
)
from penstock.model.attention.memory import KeyValues, Relay
from penstock.model.attention.merge import merge
from penstock.model.attention.op_loans import LentWork, OpLoans
from penstock.model.attention.slice_attention import (
    SliceOfLayer,
    attention_backward,
    attention_forward,
)
from penstock.model.parallel.group import Work
from penstock.model.parallel.peer import TURN


def lend_keys(at: SliceOfLayer) -> None:
    """Send keys and values that others attend to: they are in the memory before the layer runs."""
    if at.piece.loans is not None and not at.gives_queries:
        for lent, parts in _loans(at, at.piece.loans):
            memory = _memory(at)
            both = memory.keys[at.layer], memory.values[at.layer]
            sent = [part.of_keys(each) for part in parts for each in both]
            send_joined(lent.peer, keys_number(at.layer), sent, both[0].dtype)


def lending_forward(
    q: Tensor, k: Tensor, v: Tensor, at: SliceOfLayer, loans: OpLoans
) -> Work[Output]:
    """As `attention_forward`, with the results of those who help."""
    coming = [
        (parts, _ask(lent, parts, at, _heads(q, at).output, lambda part: [part.of_queries(q)]))
        for lent, parts in _loans(at, loans)
    ]
    yield TURN
    out, lse = attention_forward(q, k, v, at)
    while coming:
        parts, message = coming.pop(0)
        for part, (other_lse, other) in zip(parts, (yield from message.arrive())):
            here = part.of_queries(lse)
            merge(part.of_queries(out), here, other, other_lse.view(here.shape))
        del message, other, other_lse  # with the memory of what came
    return out, lse


def lending_backward(
    g: Tensor, saved: AttentionSaved, at: SliceOfLayer, loans: OpLoans
) -> Work[Gradients]:
    """As `attention_backward`, with the results of those who help."""

    def sent(part: LentPart) -> list[Tensor]:
        lse = saved.lse.view(saved.lse.shape[:3]).to(wide(saved.q.dtype))
        return [part.of_queries(each) for each in (lse, saved.q, saved.out, g)]

    coming = [
        (parts, _ask(lent, parts, at, _heads(saved.q, at).gradients, sent))
        for lent, parts in _loans(at, loans)
    ]
    yield TURN
    dq, dk, dv = attention_backward(g, saved, at)
    while coming:
        # From the slice down: what is stored of a sequence is one run that ends at the slice.
        parts, message = coming.pop()
        for part, (new_q, new_k, new_v) in zip(parts, (yield from message.arrive())):
            part.of_queries(dq).add_(new_q)
            _leave(at, part, new_k, new_v)
        del message, new_q, new_k, new_v  # with the memory of what came
    return dq, dk, dv


def _loans(at: SliceOfLayer, loans: OpLoans) -> Iterator[tuple[LentWork, list[LentPart]]]:
    """Loans with what there is to compute; nothing is said about others. In a window nothing is
    lent."""
    for lent in loans.lent if at.rule.window is None else ():
        if parts := lent_parts(at.piece, lent):
            yield lent, parts


def _ask(
    lent: LentWork,
    parts: list[LentPart],
    at: SliceOfLayer,
    result: ContentsOf,
    sent: Callable[[LentPart], list[Tensor]],
) -> Message:
    """Send what the other device needs beside keys and values, and expect its result."""
    tensors = [tensor for part in parts for tensor in sent(part)]
    like = _memory(at).keys[at.layer]
    return ask(lent.peer, at.layer, [result(part) for part in parts], tensors, like)


def _leave(at: SliceOfLayer, part: LentPart, dk: Tensor, dv: Tensor) -> None:
    """Hand gradients of lent keys to earlier slices; those of all keys behind them are left."""
    past = at.piece.start - part.keys.start
    relay = Relay(_memory(at), at.layer, part.rows, at.piece, past)
    relay.leave(range(len(part.keys)), dk, dv)
    relay.gradients.settle(at.layer, part.rows, part.keys.start)


def _heads(q: Tensor, at: SliceOfLayer) -> LentHeads:
    kv_heads = _memory(at).keys[at.layer].shape[1]
    return LentHeads(q.shape[1], kv_heads, q.shape[3], q.dtype)


def _memory(at: SliceOfLayer) -> KeyValues:
    assert at.memory is not None  # a slice that lends has others before it
    return at.memory
