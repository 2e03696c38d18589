"""What attention needs beside weights: how positions turn, and the memory of a sequence."""

from collections.abc import Callable, Sequence
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
from penstock.model.parallel.group import RankGroup


class SequenceContext:
    """The surroundings of some layers' attention, for sequences up to a length."""

    def __init__(
        self,
        config: ModelConfig,
        layers: Sequence[int],
        length: int,
        like: Tensor,
        cell: Cell = SINGLE_RANK,
    ) -> None:
        """`config` has the heads of this rank's matrices, `layers` are numbers of the model's,
        `like` has the type and the device of what is computed."""
        attending = config.attending(layers)
        self.config, self.cell, self.layers = config, cell, len(attending)
        self.numbers = [len(config.attending(layers[:number])) for number in range(len(layers))]
        """Of attentions in front of each layer: keys and values are kept of these alone."""
        self.rules = [config.attention_rule(layer) for layer in layers]
        self.query_scale = config.score_scale
        self.ring = cell.ring.size if cell.ring else 1
        self.dtype, self.device = like.dtype, like.device
        turned = [config.with_rope_of(layer) for layer in layers]
        distinct = list(dict.fromkeys(turned))
        self.tables = [_tables(each, length, like) for each in distinct]
        self.table_of = [distinct.index(each) for each in turned]

    def memory(self, piece: Piece, kv: Any) -> Any:
        """The keys and values of the sequence, made with its first slice; in a ring those of a
        rank's own tokens."""
        if piece.whole or kv is not None or not self.layers:
            return kv
        tokens = most_tokens(piece.length, piece.slices, self.ring)
        heads = _heads_in_attention(self.config, piece.exchanging(self.cell.ulysses))
        size = (self.layers, piece.rows, heads, tokens, self.config.head_size)
        kind = KeyValues if self.ring == 1 else RingMemory
        return kind(*size, dtype=self.dtype, device=self.device)

    def of_slice(
        self,
        piece: Piece,
        memory: KeyValues | None,
        *,
        written: bool,
        at: Tensor | None = None,
    ) -> Callable[[int], SliceContext]:
        """What each layer is told about a slice, by the number of the layer. `at` are positions
        [rows, tokens], where these are not those of all tokens of the slice."""
        tables = [
            [_rows(table, piece.positions) if at is None else table[at] for table in both]
            for both in self.tables
        ]

        def of_layer(layer: int) -> SliceContext:
            rule = self.rules[layer].within(piece.end)
            cos, sin = tables[self.table_of[layer]]
            at = SliceOfLayer(piece, memory, self.numbers[layer], rule)
            return SliceContext(at, cos, sin, written, self.query_scale)

        return of_layer


def _heads_in_attention(config: ModelConfig, ranks: RankGroup | None) -> int:
    """Key/value heads that a rank attends with, where it exchanges with these."""
    if ranks is None:
        return config.kv_heads
    return len(deal_heads(config.heads, config.kv_heads, ranks.index, ranks.size).keys)


def _tables(config: ModelConfig, length: int, like: Tensor) -> list[Tensor]:
    """Cosines and sines of all positions, [positions, 1, turned_size]."""
    both = rope_tables(config, range(length), like.dtype, like.device)
    return [table.unsqueeze(1) for table in both]


def _rows(table: Tensor, positions: tuple[range, ...]) -> Tensor:
    rows = [table[each.start : each.stop] for each in positions]
    return rows[0] if len(rows) == 1 else torch.cat(rows)
