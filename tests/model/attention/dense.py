"""Attention as its definition has it, and the same through slices."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from penstock.arch.attention_rule import AttentionRule
from penstock.data.batch import Microbatch
from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.memory import KeyValues
from penstock.model.attention.piece import Piece, pieces_of
from penstock.model.attention.slice_attention import (
    SliceOfLayer,
    attention_backward,
    attention_forward,
)

Gradients = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Case:
    """A small attention: one tuple of document starts per row."""

    lengths: tuple[int, ...]
    documents: tuple[tuple[int, ...], ...] = ((0,),)
    heads: int = 2
    kv_heads: int = 1
    size: int = 4
    dtype: torch.dtype = torch.float64
    device: str = "cpu"
    window: int | None = None

    @property
    def rows(self) -> int:
        return len(self.documents)

    @property
    def length(self) -> int:
        return sum(self.lengths)

    def tensor(self, heads: int, seed: int) -> Tensor:
        """Random numbers that lie token by token, as projections leave them."""
        generator = torch.Generator().manual_seed(seed)
        shape = (self.rows, self.length, heads, self.size)
        plain = torch.randn(shape, generator=generator, dtype=torch.float64)
        return plain.to(self.device, self.dtype).transpose(1, 2)

    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q, k, v and the gradient of the output."""
        heads = (self.heads, self.kv_heads, self.kv_heads, self.heads)
        q, k, v, g = (self.tensor(count, seed) for seed, count in enumerate(heads))
        return q, k, v, g

    def pieces(self) -> tuple[Piece, ...]:
        tokens = torch.zeros(self.rows, self.length, dtype=torch.long)
        microbatch = Microbatch(tokens, tokens, self.documents)
        return pieces_of(0, microbatch, self.lengths, 1.0)

    def memory(self, layers: int = 1) -> KeyValues:
        sizes = (layers, self.rows, self.kv_heads, self.length, self.size)
        return KeyValues(*sizes, dtype=self.dtype, device=self.device)


def visible(case: Case) -> Tensor:
    """[rows, queries, keys]: whether a key is in the query's document, not after it, and in its
    window."""
    document = torch.zeros(case.rows, case.length, dtype=torch.long)
    for row, starts in enumerate(case.documents):
        document[row, list(starts)] = 1
    document = document.cumsum(1)
    same = document[:, :, None] == document[:, None, :]
    before = torch.ones(case.length, case.length, dtype=torch.bool).tril()
    return same & before & ~before.tril(-(case.window or case.length))


def dense(case: Case) -> tuple[Tensor, Gradients]:
    """Output and gradients of the softmax over a masked square, in float64."""
    *inputs, g = (tensor.detach().cpu().double() for tensor in case.inputs())
    q, k, v = (tensor.requires_grad_() for tensor in inputs)
    group = case.heads // case.kv_heads
    scores = q @ k.repeat_interleave(group, 1).mT / case.size**0.5
    scores = scores.masked_fill(~visible(case)[:, None], -torch.inf)
    out = scores.softmax(-1) @ v.repeat_interleave(group, 1)
    dq, dk, dv = torch.autograd.grad(out, (q, k, v), g)
    return out.detach(), (dq, dk, dv)


class Sliced:
    """The forward and the backward of a case, slice by slice."""

    def __init__(self, case: Case) -> None:
        self.case, self.pieces = case, case.pieces()
        self.memory = None if len(case.lengths) == 1 else case.memory()
        *tensors, self.g = case.inputs()
        self.inputs = [[_cut(tensor, piece) for tensor in tensors] for piece in self.pieces]
        self.saved = [self.forward(piece) for piece in self.pieces]

    def forward(self, piece: Piece) -> AttentionSaved:
        """Write the slice's keys and values to the memory and attend to all up to it."""
        q, k, v = self.inputs[piece.slice]
        if self.memory is not None:
            self.memory.write(0, piece, k, v)
        return self.again(piece, q, k, v)

    def again(self, piece: Piece, q: Tensor, k: Tensor, v: Tensor) -> AttentionSaved:
        """Attend with the keys and values that the memory already has."""
        return AttentionSaved(q, k, v, *attention_forward(q, k, v, self._at(piece)))

    def backward(self, piece: Piece, g: Tensor) -> Gradients:
        """Gradients of one slice's queries, keys and values."""
        return attention_backward(g, self.saved[piece.slice], self._at(piece))

    def _at(self, piece: Piece) -> SliceOfLayer:
        return SliceOfLayer(piece, self.memory, 0, AttentionRule(self.case.window))

    @property
    def out(self) -> Tensor:
        return torch.cat([saved.out for saved in self.saved], 2)

    def gradients(self, between: Callable[[KeyValues], object] = lambda memory: None) -> Gradients:
        """Of queries, keys and values of the whole sequence, from the last slice to the first;
        `between` is called after each."""
        if self.memory is not None:
            self.memory.open_gradients()
        found: list[Gradients] = []
        for piece in reversed(self.pieces):
            found.append(self.backward(piece, _cut(self.g, piece)))
            if self.memory is not None:
                between(self.memory)
        dq, dk, dv = (torch.cat(each, 2) for each in zip(*found[::-1]))
        return dq, dk, dv


def _cut(tensor: Tensor, piece: Piece) -> Tensor:
    return tensor[:, :, piece.start : piece.end]


def error(case: Case) -> float:
    """Largest error of outputs and gradients."""
    out, gradients = dense(case)
    sliced = Sliced(case)
    pairs = [(sliced.out, out), *zip(sliced.gradients(), gradients)]
    return max(relative(ours, exact) for ours, exact in pairs)


def relative(ours: Tensor, exact: Tensor) -> float:
    """Largest error, relative to the largest value where that is above 1: inputs are about 1."""
    scale = max(float(exact.abs().max()), 1.0)
    return float((ours.cpu().double() - exact).abs().max()) / scale


def cuts(ends: Sequence[int]) -> tuple[int, ...]:
    """Lengths of pieces that end at these positions."""
    return tuple(end - start for start, end in zip((0, *ends), ends))


def starts(lengths: Sequence[int]) -> tuple[int, ...]:
    """Positions at which pieces of these lengths begin."""
    return (0, *tuple(accumulate(lengths))[:-1])
