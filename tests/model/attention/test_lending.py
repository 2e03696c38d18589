"""Attention of which other devices compute a part is that of one device, forward and backward."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from penstock.data.batch import Microbatch
from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.helping import Helping
from penstock.model.attention.lending import lend_keys, lending_backward, lending_forward
from penstock.model.attention.lent_keys import LentPart, lent_parts
from penstock.model.attention.lent_messages import LentHeads
from penstock.model.attention.memory import KeyValues
from penstock.model.attention.op_loans import LentKeys, OpLoans
from penstock.model.attention.piece import Piece, pieces_of
from penstock.model.attention.slice_attention import (
    SliceOfLayer,
    attention_backward,
    attention_forward,
)
from penstock.model.parallel.group import Work

pytestmark = pytest.mark.torch

CPU = torch.device("cpu")
ROWS, HEADS, KV_HEADS, SIZE = 2, 4, 2, 8
LENGTHS = (5, 4, 6, 3)
DOCUMENTS = {
    "one document": ((0,), (0,)),
    "documents": ((0, 7), (0, 2, 9, 16)),
    "nothing to lend": ((0, 15), (0, 15)),
}


class Box(NamedTuple):
    """Messages of one way, by their number."""

    sent: dict[int, Tensor]
    awaited: dict[int, Tensor]

    def deliver(self) -> None:
        for number in self.sent.keys() & self.awaited.keys():
            self.awaited.pop(number).copy_(self.sent.pop(number))


class Arrival(NamedTuple):
    box: Box
    number: int

    def wait(self) -> None:
        self.box.deliver()
        assert self.number not in self.box.awaited, "nobody has sent it"


class Near(NamedTuple):
    """The other end of a loan in the same process."""

    out: Box
    home: Box

    def send(self, number: int, flat: Tensor) -> None:
        self.out.sent[number] = flat.clone()

    def receive(self, number: int, flat: Tensor) -> Arrival:
        self.home.awaited[number] = flat.fill_(float("nan"))
        return Arrival(self.home, number)


def together(heavy: Work[object], helpers: list[Work[None]]) -> object:
    """Both sides of loans: helpers expect messages, then all take turns."""
    waiting = [(work, pending) for work in helpers if (pending := next(work, None))]
    try:
        pending = next(heavy)
        while True:
            for work, arrival in waiting[:]:
                arrival.wait()
                waiting.remove((work, arrival))
                if following := next(work, None):
                    waiting.append((work, following))
            pending.wait()
            pending = heavy.send(None)
    except StopIteration as end:
        assert not waiting
        return end.value


def cut(documents: tuple[tuple[int, ...], ...]) -> tuple[Piece, ...]:
    words = torch.zeros(ROWS, sum(LENGTHS), dtype=torch.int64)
    return pieces_of(0, Microbatch(words, words, documents), LENGTHS, 1.0)


def split(positions: list[range]) -> tuple[OpLoans, list[LentKeys]]:
    """Loans of some positions, and the other ends of them."""
    here, there = [], []
    for each in positions:
        boxes = Box({}, {}), Box({}, {})
        here.append(LentKeys(Near(*boxes), each))
        there.append(LentKeys(Near(*boxes[::-1]), each))
    return OpLoans(tuple(here)), there


class Tensors(NamedTuple):
    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor


def tensors(dtype: torch.dtype) -> list[Tensors]:
    numbers = torch.Generator().manual_seed(3)

    def heads(count: int, tokens: int) -> Tensor:
        by_token = torch.randn(ROWS, tokens, count, SIZE, generator=numbers, dtype=torch.float64)
        return by_token.to(dtype).transpose(1, 2)

    counts = HEADS, KV_HEADS, KV_HEADS, HEADS
    return [Tensors(*(heads(count, n) for count in counts)) for n in LENGTHS]


Results = list[list[Tensor]]


def computed(
    documents: tuple[tuple[int, ...], ...], dtype: torch.dtype, lent: dict[int, list[range]]
) -> Results:
    """Outputs of all slices, and their gradients; some slices lend keys at some positions."""
    memory = KeyValues(1, ROWS, KV_HEADS, sum(LENGTHS), SIZE, dtype=dtype)
    helping = Helping((1,), LentHeads(HEADS, KV_HEADS, SIZE, dtype), CPU)
    pieces, given = cut(documents), tensors(dtype)
    saved: list[AttentionSaved] = []
    for piece, (q, k, v, _) in zip(pieces, given):
        memory.write(0, piece, k, v)
        loans, there = split(lent.get(piece.slice, []))
        at = SliceOfLayer(piece._replace(loans=loans) if there else piece, memory, 0)
        helpers = [helping.help("F", 0, piece, each) for each in there]
        lend_keys(at)
        work = lending_forward(q, k, v, at, loans) if there else None
        out, lse = together(work, helpers) if work else attention_forward(q, k, v, at)
        saved.append(AttentionSaved(q, k, v, out, lse))
    memory.open_gradients()
    gradients: Results = []
    for piece, kept, one in reversed([*zip(pieces, saved, given)]):
        loans, there = split(lent.get(piece.slice, []))
        at = SliceOfLayer(piece._replace(loans=loans) if there else piece, memory, 0)
        helpers = [helping.help("B", 0, piece, each) for each in there]
        lend_keys(at)
        work = lending_backward(one.g, kept, at, loans) if there else None
        found = together(work, helpers) if work else attention_backward(one.g, kept, at)
        gradients.append([*found])
    return [[each.out for each in saved], *gradients]


LOANS = {
    "one loan": {2: [range(5)]},
    "all of the past": {3: [range(15)], 1: [range(5)]},
    "several who help": {3: [range(5), range(5, 9)], 2: [range(5)]},
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("documents", DOCUMENTS)
@pytest.mark.parametrize("loans", LOANS)
def test_lent_attention_is_that_of_one_device(
    loans: str, documents: str, dtype: torch.dtype
) -> None:
    close = {torch.float64: 1e-14, torch.float32: 1e-5, torch.bfloat16: 0.06}[dtype]
    right = computed(DOCUMENTS[documents], dtype, {})
    found = computed(DOCUMENTS[documents], dtype, LOANS[loans])
    for expected, slices in zip(right, found, strict=True):
        for one, other in zip(expected, slices, strict=True):
            torch.testing.assert_close(other, one, atol=close, rtol=close)


def test_only_the_first_document_of_a_slice_has_keys_to_lend() -> None:
    piece = cut(DOCUMENTS["documents"])[2]
    assert lent_parts(piece, range(5)) == []
    assert lent_parts(piece, range(9)) == [LentPart(range(1), range(6), range(7, 9))]
    whole = cut(DOCUMENTS["one document"])[2]
    assert lent_parts(whole, range(5)) == [LentPart(range(2), range(6), range(5))]
