"""What attention needs beside weights: how positions turn, and the memory of a sequence."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.dealing import deal_heads, most_tokens
from penstock.model.attention.memory import KeyValues
from penstock.model.attention.piece import Piece
from penstock.model.attention.ring_memory import RingMemory
from penstock.model.attention.slice_attention import SliceOfLayer
from penstock.model.layers.attend import SliceContext
from penstock.model.layers.rope import rope_tables
from penstock.model.parallel.cell import SINGLE_RANK, Cell


class SequenceContext:
    """The surroundings of some layers' attention, for sequences up to a length."""

    def __init__(
        self, config: ModelConfig, layers: int, length: int, like: Tensor, cell: Cell = SINGLE_RANK
    ) -> None:
        """`config` has the heads of this rank's matrices, `like` the type and the device of what
        is computed."""
        self.layers, self.head_size = layers, config.head_size
        self.ring = cell.ring.size if cell.ring else 1
        self.kv_heads = _heads_in_attention(config, cell)
        self.dtype, self.device = like.dtype, like.device
        cos, sin = rope_tables(config, range(length), like.dtype, like.device)
        self.cos, self.sin = cos.unsqueeze(1), sin.unsqueeze(1)

    def memory(self, piece: Piece, kv: Any) -> Any:
        """The keys and values of the sequence, made with its first slice; in a ring those of a
        rank's own tokens."""
        if piece.whole or kv is not None or not self.layers:
            return kv
        tokens = most_tokens(piece.length, piece.slices, self.ring)
        size = (self.layers, piece.rows, self.kv_heads, tokens, self.head_size)
        kind = KeyValues if self.ring == 1 else RingMemory
        return kind(*size, dtype=self.dtype, device=self.device)

    def of_slice(
        self, piece: Piece, memory: KeyValues | None, *, written: bool
    ) -> Callable[[int], SliceContext]:
        """What each layer is told about a slice, by the number of the layer."""
        cos, sin = (_rows(table, piece.positions) for table in (self.cos, self.sin))
        return lambda layer: SliceContext(SliceOfLayer(piece, memory, layer), cos, sin, written)


def _heads_in_attention(config: ModelConfig, cell: Cell) -> int:
    """Key/value heads that a rank attends with."""
    if cell.ulysses is None:
        return config.kv_heads
    ranks = cell.ulysses
    return len(deal_heads(config.heads, config.kv_heads, ranks.index, ranks.size).keys)


def _rows(table: Tensor, positions: tuple[range, ...]) -> Tensor:
    rows = [table[each.start : each.stop] for each in positions]
    return rows[0] if len(rows) == 1 else torch.cat(rows)
