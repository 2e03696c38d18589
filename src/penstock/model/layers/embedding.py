"""The embedding: a row of a matrix for each token, from the rank that has the row."""

from torch import Tensor

from penstock.model.parallel.cell import SINGLE_RANK, Cell
from penstock.model.parallel.group import Work
from penstock.model.parallel.tokens import add_up_tokens, gather_tokens


class TokenEmbedding:
    """Looks tokens up, each in the share of the vocabulary in which its row is."""

    def __init__(self, cell: Cell = SINGLE_RANK, first: int = 0) -> None:
        """`first` is the first word that this rank has."""
        self.cell, self.first = cell, first

    def forward(self, weight: Tensor, tokens: Tensor) -> Work[Tensor]:
        """[rows, tokens] -> what is held of [rows x tokens, hidden]"""
        if self.cell.tensor is None:
            return weight[tokens.flatten()]
        words = tokens.flatten() - self.first
        inside = (words >= 0) & (words < len(weight))
        part = weight[words.clamp(0, len(weight) - 1)].mul_(inside.unsqueeze(1))
        return (yield from add_up_tokens(self.cell.tokens, part))

    def backward(self, gradient: Tensor, tokens: Tensor, dx: Tensor) -> Work[None]:
        """Add the gradient of each token's vector to its row."""
        whole = yield from gather_tokens(self.cell.tokens, dx, tokens.numel())
        words = tokens.flatten() - self.first
        if self.cell.tensor is not None:
            inside = (words >= 0) & (words < len(gradient))
            words, whole = words[inside], whole[inside]
        add_rows(gradient, words, whole)


def add_rows(gradient: Tensor, words: Tensor, rows: Tensor) -> None:
    """Add rows to those of some words, always in the same order."""
    if gradient.is_cuda:  # where `index_add_` adds in the order in which threads come
        gradient.index_put_((words,), rows.to(gradient.dtype), accumulate=True)
    else:
        gradient.index_add_(0, words, rows.to(gradient.dtype))
