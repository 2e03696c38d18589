"""Attention of which other devices compute a part is that of one device, forward and backward."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from penstock.arch.attention_rule import PLAIN_ATTENTION
from penstock.arch.query_shares import share_of_queries
from penstock.data.batch import Microbatch
from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.helping import Helping
from penstock.model.attention.lending import lend_keys, lending_backward, lending_forward
from penstock.model.attention.lent_keys import LentPart, lent_parts
from penstock.model.attention.lent_messages import LentHeads
from penstock.model.attention.memory import KeyValues
from penstock.model.attention.op_loans import LentWork, OpLoans
from penstock.model.attention.piece import Piece, pieces_of
from penstock.model.attention.reach import Reach
from penstock.model.attention.sharing import sharing_backward, sharing_forward
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


Lent = list[range] | int
"""Positions whose keys are lent to some devices; or how many members share the queries."""


def split(piece: Piece, lent: Lent) -> tuple[OpLoans, list[LentWork]]:
    """What is lent of a piece, and the other ends of it."""
    here, there = [], []
    for each in shared(piece, lent) if isinstance(lent, int) else past(piece, lent):
        boxes = Box({}, {}), Box({}, {})
        here.append(LentWork(Near(*boxes), *each))
        there.append(LentWork(Near(*boxes[::-1]), *each))
    return OpLoans(tuple(here)), there


def past(piece: Piece, positions: list[range]) -> list[tuple[range, range]]:
    return [(range(piece.start, piece.end), each) for each in positions]


def shared(piece: Piece, members: int) -> list[tuple[range, range]]:
    length = piece.end - piece.start
    found = [share_of_queries(piece.start, length, n, members) for n in range(members - 1)]
    return [(queries, range(queries.stop)) for queries in found]


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
    documents: tuple[tuple[int, ...], ...], dtype: torch.dtype, lent: dict[int, Lent]
) -> Results:
    """Outputs of all slices, and their gradients; some slices lend keys or share queries."""
    memory = KeyValues(1, ROWS, KV_HEADS, sum(LENGTHS), SIZE, dtype=dtype)
    helping = Helping(([PLAIN_ATTENTION],), LentHeads(HEADS, KV_HEADS, SIZE, dtype), CPU)
    pieces, given = cut(documents), tensors(dtype)
    saved: list[AttentionSaved] = []
    for piece, (q, k, v, _) in zip(pieces, given):
        memory.write(0, piece, k, v)
        loans, there = split(piece, lent.get(piece.slice, []))
        at = SliceOfLayer(piece._replace(loans=loans) if there else piece, memory, 0)
        helpers = [helping.help("F", 0, piece, each) for each in there]
        lend_keys(at)
        forward = sharing_forward if loans.gives_queries else lending_forward
        work = forward(q, k, v, at, loans) if there else None
        out, lse = together(work, helpers) if work else attention_forward(q, k, v, at)
        saved.append(AttentionSaved(q, k, v, out, lse))
    memory.open_gradients()
    gradients: Results = []
    for piece, kept, one in reversed([*zip(pieces, saved, given)]):
        loans, there = split(piece, lent.get(piece.slice, []))
        at = SliceOfLayer(piece._replace(loans=loans) if there else piece, memory, 0)
        helpers = [helping.help("B", 0, piece, each) for each in there]
        lend_keys(at)
        backward = sharing_backward if loans.gives_queries else lending_backward
        work = backward(one.g, kept, at, loans) if there else None
        found = together(work, helpers) if work else attention_backward(one.g, kept, at)
        gradients.append([*found])
    return [[each.out for each in saved], *gradients]


LOANS: dict[str, dict[int, Lent]] = {
    "one loan": {2: [range(5)]},
    "all of the past": {3: [range(15)], 1: [range(5)]},
    "several who help": {3: [range(5), range(5, 9)], 2: [range(5)]},
    "a gang of two, first and last": {0: 2, 3: 2},
    "gangs of three and four": {1: 3, 2: 4},
    "a gang larger than its slice": {3: 5},
}


@pytest.mark.long
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
    assert _parts(piece, range(5)) == []
    assert _parts(piece, range(9)) == [LentPart(range(1), range(6), range(7, 9))]
    whole = cut(DOCUMENTS["one document"])[2]
    assert _parts(whole, range(5)) == [LentPart(range(2), range(6), range(5))]


def _parts(piece: Piece, keys: range) -> list[LentPart]:
    return lent_parts(piece, split(piece, [keys])[1][0])


def test_a_member_of_a_gang_has_the_keys_that_its_queries_see() -> None:
    piece = cut(DOCUMENTS["documents"])[1]
    _, (member,) = split(piece, 2)
    assert lent_parts(piece, member) == [
        LentPart(range(1), range(2), range(7), Reach(5, (2,))),
        LentPart(range(1, 2), range(2), range(2, 7), Reach(3, (2,))),
    ]
