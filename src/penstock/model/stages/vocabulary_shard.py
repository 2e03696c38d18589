"""A device's shard of the vocabulary layers: the work of E, D, S and T.

Embedding and head are cut along the vocabulary, and every device has the same words of both. It
owns no tensors either: weights, gradients and everything that belongs to one slice go in and come
out. What it gives is a part; what all parts come to is brought together by a collective.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.parameter_layout import ParameterLayout
from penstock.arch.parameters import EMBEDDING, HEAD
from penstock.model.attention.piece import Piece
from penstock.model.layers.embedding import add_own_rows, own_rows, scale_rows, scaled_gradient
from penstock.model.layers.shard_head import (
    Labels,
    ShardSaved,
    ShardStatistics,
    ShardWords,
    UnscaledGradient,
    logits_gradient,
    shard_statistics,
    unscaled_gradient,
)
from penstock.model.layers.views import Views
from penstock.model.parallel.cell import SINGLE_RANK, Cell, begun_in_cell
from penstock.model.parallel.group import Work
from penstock.model.parallel.tokens import gather_tokens, wait_for

FirstPass = tuple[ShardStatistics, ShardSaved, UnscaledGradient | None]
"""Statistics of own words, what the second pass needs, and the part of the gradient, if wanted."""


class ShardViews(NamedTuple):
    """Weights of a shard, or their gradients."""

    embedding: Tensor | None
    head: Tensor | None


class VocabularyShard:
    """Some words of the vocabulary."""

    def __init__(
        self, config: ModelConfig, layout: ParameterLayout, cell: Cell = SINGLE_RANK
    ) -> None:
        self.layout, self.cell = layout, cell
        self.scale, self.cap = config.embedding_scale, config.logit_cap
        self.first = next(layout.part(each).start for each in (EMBEDDING, HEAD) if each in layout)

    def views(self, flat: Tensor, frozen: Tensor | None = None) -> ShardViews:
        views = Views(self.layout, flat, frozen)
        embedding, head = (views.vector(n) if n in views else None for n in (EMBEDDING, HEAD))
        return ShardViews(embedding, head)

    @torch.no_grad()
    def embed(self, weights: ShardViews, piece: Piece) -> Tensor:
        """The vectors of the tokens that are own words, and zeros, [rows x tokens, hidden]."""
        assert weights.embedding is not None
        return scale_rows(own_rows(weights.embedding, self.first, piece.tokens), self.scale)

    @begun_in_cell
    @torch.no_grad()
    def embed_backward(self, gradients: ShardViews, piece: Piece, gin: Tensor) -> Work[None]:
        """Add the gradient of the model's input to the rows of own words."""
        assert gradients.embedding is not None
        whole = scaled_gradient((yield from self._all_tokens(gin, piece)), self.scale)
        add_own_rows(gradients.embedding, self.first, piece.tokens, whole)

    @begun_in_cell
    @torch.no_grad()
    def first_pass(self, weights: ShardViews, piece: Piece, out: Tensor) -> Work[FirstPass]:
        """The statistics of own words."""
        x = yield from self._all_tokens(out, piece)
        return (*shard_statistics(self._words(weights), x, piece.labels.flatten()), None)

    @begun_in_cell
    @torch.no_grad()
    def first_pass_with_gradient(
        self, weights: ShardViews, piece: Piece, out: Tensor
    ) -> Work[FirstPass]:
        """The same, and what can be had of the gradient of the model's output."""
        x, head = (yield from self._all_tokens(out, piece)), self._words(weights)
        statistics, saved = shard_statistics(head, x, piece.labels.flatten())
        return statistics, saved, unscaled_gradient(head, saved, statistics, _labels(piece))

    @torch.no_grad()
    def second_pass(
        self, gradients: ShardViews, piece: Piece, saved: ShardSaved, merged: ShardStatistics
    ) -> Tensor:
        """Add to the gradient of own words; returns that of own logits."""
        return logits_gradient(self._words(gradients), saved, merged, _labels(piece))

    @torch.no_grad()
    def output_gradient(self, weights: ShardViews, d_logits: Tensor) -> Tensor:
        """The part of the gradient of the model's output that own logits have."""
        assert weights.head is not None
        return d_logits @ weights.head

    @torch.no_grad()
    def loss(self, piece: Piece, merged: ShardStatistics) -> Tensor:
        """The summed loss; ranks that share the vocabulary of a device count it once."""
        found = merged.losses(piece.labels.flatten())
        counts = self.cell.tensor is None or self.cell.tensor.index == 0
        return found if counts else torch.zeros_like(found)

    def _words(self, weights: ShardViews) -> ShardWords:
        assert weights.head is not None
        return ShardWords(weights.head, self.first, self.cap)

    def _all_tokens(self, handed: Tensor, piece: Piece) -> Work[Tensor]:
        """All tokens of the slice, of what came from a stage."""
        tokens, count = self.cell.tokens, piece.tokens.numel()
        held, pending = tokens.take_over(handed, count)
        yield from wait_for(pending)
        return (yield from gather_tokens(tokens, held, count))


def _labels(piece: Piece) -> Labels:
    return Labels(piece.labels.flatten(), piece.scale)
