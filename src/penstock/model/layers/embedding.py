"""The embedding: a row of a matrix for each token, from the rank that has the row; some models
multiply it by a number."""

import torch
from torch import Tensor

from penstock.model.parallel.cell import SINGLE_RANK, Cell
from penstock.model.parallel.group import Work
from penstock.model.parallel.tokens import add_up_tokens, gather_tokens


class TokenEmbedding:
    """Looks tokens up, each in the share of the vocabulary in which its row is."""

    def __init__(self, cell: Cell = SINGLE_RANK, first: int = 0, scale: float = 1.0) -> None:
        """`first` is the first word that this rank has, `scale` what rows are multiplied by."""
        self.cell, self.first, self.scale = cell, first, scale

    def forward(self, weight: Tensor, tokens: Tensor) -> Work[Tensor]:
        """[rows, tokens] -> what is held of [rows x tokens, hidden]"""
        if self.cell.tensor is None:
            return scale_rows(weight[tokens.flatten()], self.scale)
        own = own_rows(weight, self.first, tokens)
        return scale_rows((yield from add_up_tokens(self.cell.tokens, own)), self.scale)

    def backward(self, gradient: Tensor, tokens: Tensor, dx: Tensor) -> Work[None]:
        """Add the gradient of each token's vector to its row, unless rows are frozen."""
        if not len(gradient):
            return
        whole = yield from gather_tokens(self.cell.tokens, dx, tokens.numel())
        whole = scaled_gradient(whole, self.scale)
        if self.cell.tensor is None:
            add_rows(gradient, tokens.flatten(), whole)
        else:
            add_own_rows(gradient, self.first, tokens, whole)


def scale_rows(rows: Tensor, scale: float) -> Tensor:
    """Rows of an embedding, multiplied where they lie."""
    return rows if scale == 1 else rows.mul_(_in_type(scale, rows.dtype))


def scaled_gradient(d: Tensor, scale: float) -> Tensor:
    """The gradient of rows, of that of what they were multiplied to."""
    return d if scale == 1 else d * _in_type(scale, d.dtype)


def _in_type(scale: float, dtype: torch.dtype) -> float:
    """The number as the type of the weights has it: checkpoints were trained with its rounding."""
    return float(torch.tensor(scale, dtype=dtype))


def own_rows(weight: Tensor, first: int, tokens: Tensor) -> Tensor:
    """Vectors of the tokens whose rows are here, which begin with that of word `first`; zeros for
    others."""
    words = tokens.flatten() - first
    inside = (words >= 0) & (words < len(weight))
    return weight[words.clamp(0, len(weight) - 1)].mul_(inside.unsqueeze(1))


def add_own_rows(gradient: Tensor, first: int, tokens: Tensor, rows: Tensor) -> None:
    """Add to the rows that are here the gradients of their tokens' vectors; nothing where rows are
    frozen."""
    if not len(gradient):
        return
    words = tokens.flatten() - first
    inside = (words >= 0) & (words < len(gradient))
    add_rows(gradient, words[inside], rows[inside])


def add_rows(gradient: Tensor, words: Tensor, rows: Tensor) -> None:
    """Add rows to those of some words, always in the same order."""
    if gradient.is_cuda:  # where `index_add_` adds in the order in which threads come
        gradient.index_put_((words,), rows.to(gradient.dtype), accumulate=True)
    else:
        gradient.index_add_(0, words, rows.to(gradient.dtype))
