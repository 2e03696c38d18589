"""Tokens in the order of their experts: one row for each token and each expert that it goes to.

    chosen          [[2, 0], [0, 1], [2, 1]]     three tokens, two experts for each
    rows            token 0  1  | 1  2  | 0  2
    of expert             0  0  | 1  1  | 2  2

No row is dropped, however unequal the experts are. Back again, the rows of a token are added up in
the order in which it chose its experts: the same bits whatever the others do.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class ExpertRows(NamedTuple):
    """The rows of a slice."""

    order: Tensor
    """For each row the number of its choice, of all choices of all tokens [rows]."""
    ends: Tensor
    """One behind the last row of each expert [experts], in 32 bits, as grouped products take it."""

    def of_tokens(self, x: Tensor) -> Tensor:
        """The row of each choice, of what every token has [tokens, ...]."""
        return x[self.order // self._choices(len(x))]

    def of_choices(self, weights: Tensor) -> Tensor:
        """The row of each choice, of what every choice has [tokens, per_token]."""
        return weights.flatten()[self.order]

    def to_choices(self, rows: Tensor, like: Tensor) -> Tensor:
        """What rows [rows] have, by choice as `like` [tokens, per_token]."""
        return torch.empty_like(like).flatten().index_copy_(0, self.order, rows).view_as(like)

    def add_up(self, rows: Tensor, tokens: int) -> Tensor:
        """The sum of each token's rows [tokens, ...]."""
        by_choice = rows[self._places()]  # a copy to places takes twice as long on a GPU
        return by_choice.view(tokens, self._choices(tokens), *rows.shape[1:]).sum(1)

    def _places(self) -> Tensor:
        """The row of each choice, as a number."""
        numbers = torch.arange(len(self.order), device=self.order.device)
        return torch.empty_like(self.order).index_copy_(0, self.order, numbers)

    def _choices(self, tokens: int) -> int:
        return max(len(self.order) // max(tokens, 1), 1)


def rows_by_expert(chosen: Tensor, experts: int) -> ExpertRows:
    """The rows of tokens that chose these experts [tokens, per_token]."""
    flat = chosen.flatten()
    return ExpertRows(flat.argsort(stable=True), count_choices(flat, experts).cumsum(0).int())


def count_choices(chosen: Tensor, experts: int) -> Tensor:
    """How many choices fell on each expert [experts]."""
    flat = chosen.flatten()
    # bincount would wait for a GPU, to learn how many there are
    return flat.new_zeros(experts).scatter_add_(0, flat, torch.ones_like(flat))
