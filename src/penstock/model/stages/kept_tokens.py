"""What layers inside of brackets see of a slice: its kept tokens, and the memory of their like."""

from typing import Any

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.subsampling import Pair, Subsampling
from penstock.model.attention.piece import Piece
from penstock.model.layers.attend import SliceContext
from penstock.model.parallel.cell import Cell
from penstock.model.stages.context import SequenceContext
from penstock.model.stages.level_memory import LevelMemory, kept_documents
from penstock.model.stages.subsampled_values import KeptTokens

OUTSIDE = -1
"""The region of layers that see all tokens; others have the number of their pair."""


class KeptRegions:
    """The layers of a stage by the bracket that they are in."""

    def __init__(
        self, config: ModelConfig, layers: range, length: int, like: Tensor, cell: Cell
    ) -> None:
        assert config.subsampling is not None
        self.subsampling: Subsampling = config.subsampling
        inside = {layer: self.subsampling.inside(layer) for layer in layers}
        self.levels = {_region(pair): pair.level if pair else 0 for pair in inside.values()}
        own: dict[int, list[int]] = {}
        for layer, pair in inside.items():
            own.setdefault(_region(pair), []).append(layer)
        self.places = {layer: place for each in own.values() for place, layer in enumerate(each)}
        self.contexts = {
            region: SequenceContext(config, found, length, like, cell)
            for region, found in own.items()
        }

    def memory(self, piece: Piece, kv: Any) -> Any:
        """Keys and values of the sequence by bracket, made with its first slice."""
        if piece.whole or kv is not None or not self.contexts:
            return kv
        return LevelMemory(
            {
                region: context.memory(_sized(piece, self.levels[region]), None)
                for region, context in self.contexts.items()
            }
        )

    def kept(
        self,
        piece: Piece,
        pair: Pair,
        parent: KeptTokens | None,
        kept: Tensor,
        memory: LevelMemory | None,
    ) -> KeptTokens:
        """The tokens that a bracket keeps of those in the one around it, or of the slice."""
        padding = piece.levels.padding if piece.levels else None
        positions = piece.start + kept
        if parent is not None:
            positions, padding = parent.positions.gather(1, kept), parent.padding
        if padding is not None:
            padding = padding.gather(1, kept)
        documents: tuple[tuple[int, ...], ...] = ((0,),) * piece.rows
        if piece.packed or piece.levels is None:
            so_far = positions.tolist()
            if memory is not None:
                so_far = memory.note(pair.number, piece.slice, positions)
            documents = kept_documents(piece.documents, so_far)
        return KeptTokens(positions, documents, padding)

    def piece(
        self, piece: Piece, pair: Pair | None, kept: KeptTokens | None, memory: LevelMemory | None
    ) -> Piece:
        """The slice as layers see it that are directly inside of a pair."""
        if pair is None or kept is None:
            return piece
        count = kept.positions.shape[1]
        if piece.levels is not None:
            start, end, length = piece.levels.spans[pair.level - 1]
        else:
            start = memory.count(pair.number, piece.slice) if memory is not None else 0
            end = start + count
            length = end if memory is None else piece.length
        return piece._replace(
            start=start, end=end, length=length, tokens=kept.positions, documents=kept.documents
        )

    def context(
        self,
        piece: Piece,
        layer: int,
        kept: dict[int, KeptTokens],
        memory: LevelMemory | None,
        *,
        written: bool,
    ) -> SliceContext:
        """What a layer is told about a slice."""
        pair = self.subsampling.inside(layer)
        region = _region(pair)
        own = kept.get(region)
        of_slice = self.contexts[region].of_slice(
            self.piece(piece, pair, own, memory),
            memory.regions[region] if memory is not None else None,
            written=written,
            at=None if own is None else own.positions,
        )
        return of_slice(self.places[layer])


def _region(pair: Pair | None) -> int:
    return OUTSIDE if pair is None else pair.number


def _sized(piece: Piece, level: int) -> Piece:
    """A piece of a sequence that is as long as what it can keep on a level."""
    if level == 0 or piece.levels is None:
        return piece
    return piece._replace(length=piece.levels.spans[level - 1].length)


def positions_of(piece: Piece) -> Tensor:
    """Of all tokens of a slice, [rows, tokens]."""
    rows = torch.arange(piece.start, piece.end, device=piece.tokens.device)
    return rows.expand(piece.rows, -1)
