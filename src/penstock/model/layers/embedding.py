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
        return (yield from add_up_tokens(self.cell.tokens, own_rows(weight, self.first, tokens)))

    def backward(self, gradient: Tensor, tokens: Tensor, dx: Tensor) -> Work[None]:
        """Add the gradient of each token's vector to its row."""
        whole = yield from gather_tokens(self.cell.tokens, dx, tokens.numel())
        if self.cell.tensor is None:
            add_rows(gradient, tokens.flatten(), whole)
        else:
            add_own_rows(gradient, self.first, tokens, whole)


def own_rows(weight: Tensor, first: int, tokens: Tensor) -> Tensor:
    """Vectors of the tokens whose rows are here, which begin with that of word `first`; zeros for
    others."""
    words = tokens.flatten() - first
    inside = (words >= 0) & (words < len(weight))
    return weight[words.clamp(0, len(weight) - 1)].mul_(inside.unsqueeze(1))


def add_own_rows(gradient: Tensor, first: int, tokens: Tensor, rows: Tensor) -> None:
    """Add to the rows that are here the gradients of their tokens' vectors."""
    words = tokens.flatten() - first
    inside = (words >= 0) & (words < len(gradient))
    add_rows(gradient, words[inside], rows[inside])


def add_rows(gradient: Tensor, words: Tensor, rows: Tensor) -> None:
    """Add rows to those of some words, always in the same order."""
    if gradient.is_cuda:  # where `index_add_` adds in the order in which threads come
        gradient.index_put_((words,), rows.to(gradient.dtype), accumulate=True)
    else:
        gradient.index_add_(0, words, rows.to(gradient.dtype))
