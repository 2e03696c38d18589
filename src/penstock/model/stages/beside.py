"""What travels between attention and the stages around it: features, and behind them what goes past
attention, flat in one tensor. The two need not have the same number of tokens."""

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.model.attention.piece import Piece
from penstock.model.parallel.cell import Cell
from penstock.model.parallel.group import Work
from penstock.model.parallel.tokens import wait_for


def attention_width(config: ModelConfig) -> int:
    """Features of the output of attention."""
    return config.heads * config.head_size


def join_beside(features: Tensor, handed: Tensor) -> Tensor:
    """Features of all tokens of a rank, and behind them what goes past attention."""
    return torch.cat((features.flatten(), handed.flatten()))


def split_beside(x: Tensor | None, piece: Piece, width: int) -> tuple[Tensor, Tensor]:
    """Features [tokens, width], and what went past attention, flat."""
    assert x is not None  # attention stands between two stages
    count = piece.tokens.numel()
    return x[: count * width].view(count, width), x[count * width :]


def taken_over(cell: Cell, handed: Tensor, hidden: int, piece: Piece) -> Work[Tensor]:
    """What a rank holds [tokens, hidden], of what another stage handed on, flat."""
    rows = handed.view(-1, hidden)
    held, pending = cell.tokens.take_over(rows, piece.tokens.numel())
    yield from wait_for(pending)
    return held
