"""What stages tell each other about brackets that are open between them, beside activations.

What went into a bracket is needed where it closes, often several stages on. It goes along with the
messages from stage to stage, and its gradient comes back with the gradients: so it works in every
schedule, and no op and no edge is new. Outermost bracket first:

    x of the next stage        y | x of each bracket        | kept tokens and their weights
    g of the stage before     dy | dx of each bracket       | nothing, and d weights

Where a bracket closes on the device that it opened on, x and dx stay there (local_brackets.py).
Kept tokens are whole numbers of as many bytes as the weights, which are in 32 bits at least.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.model.attention.piece import Piece
from penstock.model.layers.subsample import precise
from penstock.model.parallel.tokens import TokenShares

_INTEGERS = {4: torch.int32, 8: torch.int64}


class OpenBracket(NamedTuple):
    """What is carried from a bracket that opens to the one that closes it."""

    x: Tensor
    """In front of it, as this rank holds it [tokens, hidden]"""
    kept: Tensor
    """[rows, kept]"""
    weights: Tensor
    """[rows, kept]"""


class BracketGradient(NamedTuple):
    """The way back: what the bracket that opened is given."""

    x: Tensor
    weights: Tensor


def level_tokens(piece: Piece, level: int) -> int:
    """Tokens of a slice that get to a level, of all rows."""
    if level == 0:
        return piece.tokens.numel()
    assert piece.levels is not None  # what has a fixed number travels, nothing else
    span = piece.levels.spans[level - 1]
    return piece.rows * (span.end - span.start)


class CarriedLevels:
    """Over one boundary between stages, on a rank."""

    def __init__(
        self, hidden: int, dtype: torch.dtype, tokens: TokenShares, travels: Sequence[bool]
    ) -> None:
        """`travels` says of each bracket that is open there whether what went into it does."""
        self.hidden, self.tokens, self.travels = hidden, tokens, travels
        self.wide = precise(dtype)
        self.words = self.wide.itemsize // dtype.itemsize
        """Elements of a message that one kept token, or one weight, takes."""

    def elements(self, piece: Piece) -> int:
        return sum(self._sizes(piece))

    def joined(self, rows: Tensor, brackets: Sequence[OpenBracket]) -> Tensor:
        """The message to the next stage."""
        handed = [self.tokens.hand_on(each.x) for each in brackets]
        numbers = [
            part
            for each in brackets
            for part in (each.kept.to(_INTEGERS[self.wide.itemsize]), each.weights)
        ]
        return self._joined([rows, *handed], numbers)

    def joined_gradients(self, rows: Tensor, brackets: Sequence[BracketGradient]) -> Tensor:
        """The message to the stage before."""
        handed = [self.tokens.hand_on(each.x) for each in brackets]
        numbers = [
            part for each in brackets for part in (torch.zeros_like(each.weights), each.weights)
        ]
        return self._joined([rows, *handed], numbers)

    def split(self, piece: Piece, message: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """The rows of a message, those of each open bracket, and its numbers as weights. What
        layers keep is copied, or it would keep the whole message."""
        parts = torch.split(message, self._sizes(piece))
        rows = [
            part.view(part.numel() // self.hidden, self.hidden)
            for part in parts[: len(self.travels) + 1]
        ]
        numbers = [part.clone().view(self.wide).view(piece.rows, -1) for part in parts[len(rows) :]]
        return rows[0].clone(), rows[1:], numbers

    def opened(self, numbers: Tensor) -> Tensor:
        """Kept tokens, of numbers that look like weights."""
        return numbers.view(_INTEGERS[self.wide.itemsize]).long()

    def _joined(self, rows: Sequence[Tensor], numbers: Sequence[Tensor]) -> Tensor:
        dtype = rows[0].dtype
        flat = [part.flatten() for part in rows]
        return torch.cat([*flat, *(part.contiguous().flatten().view(dtype) for part in numbers)])

    def _sizes(self, piece: Piece) -> list[int]:
        counts = [level_tokens(piece, level) for level in range(len(self.travels) + 1)]
        past = [count * travels for count, travels in zip(counts, self.travels)]
        handed = [self.tokens.handed(count) * self.hidden for count in (counts[-1], *past)]
        return [*handed, *(self.words * count for count in counts[1:] for _ in range(2))]


def carried_over(
    config: ModelConfig,
    boundary: int,
    dtype: torch.dtype,
    tokens: TokenShares,
    local: frozenset[int],
) -> CarriedLevels | None:
    """What goes over the boundary in front of a layer, where some pairs are `local`; None where no
    bracket is open there."""
    around = () if config.subsampling is None else config.subsampling.around(boundary)
    travels = [pair.number not in local for pair in around]
    return CarriedLevels(config.hidden, dtype, tokens, travels) if around else None
