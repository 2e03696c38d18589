"""Queries, keys and values of one layer: one product, cut into heads, with norms where a model has
them."""

from typing import NamedTuple

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.layers.attention import HEAD
from penstock.model.attention.heads import Heads
from penstock.model.layers.linear import Queue, linear, linear_backward
from penstock.model.layers.norm import RmsNorm
from penstock.model.layers.projection_norm import NormSpan, ProjectionNorm
from penstock.model.layers.views import Matrix, Views
from penstock.model.parallel.cell import SINGLE_RANK, Cell
from penstock.model.parallel.group import Work


class HeadNormsSaved(NamedTuple):
    """Queries and keys before their norms, and what these kept."""

    q: Tensor
    r_q: Tensor
    k: Tensor
    r_k: Tensor


class QkvWeights(NamedTuple):
    """The projection, and the norms of queries and keys, or their gradients."""

    qkv: Matrix
    norms: list[Tensor]
    """Of queries and of keys; empty where a model has none."""
    spans: list[NormSpan]
    """What each norm is over, where that is all heads."""


class QkvProjection:
    """What leads into attention."""

    def __init__(self, config: ModelConfig, cell: Cell = SINGLE_RANK) -> None:
        self.config, self.norm = config, RmsNorm(config)
        self.over_all = ProjectionNorm(self.norm, cell.tensor)

    def views(self, views: Views, prefix: str) -> QkvWeights:
        qkv = views.matrix(*(f"{prefix}{part}_proj" for part in "qkv"))
        names = [f"{prefix}{part}_norm.weight" for part in "qk" if self.config.qk_norm]
        spans = [NormSpan(*views.span(name)) for name in names]
        return QkvWeights(qkv, [views.vector(name) for name in names], spans)

    def forward(
        self, weights: QkvWeights, a: Tensor, rows: int
    ) -> Work[tuple[Heads, HeadNormsSaved | None]]:
        """The heads of normed input `a` [rows x tokens, hidden]."""
        product = linear(weights.qkv, a)
        heads = split_heads(self.config, product, rows)
        if not weights.norms:
            return heads, None
        if self.config.qk_norm_over == HEAD:
            pairs = zip(weights.norms, heads[:2])
            (q, r_q), (k, r_k) = (self.norm.forward(weight, x) for weight, x in pairs)
            return Heads(q, k, heads.v), HeadNormsSaved(heads.q, r_q, heads.k, r_k)
        flat = self._flat(product)
        (q, r_q), (k, r_k) = yield from self.over_all.forward(weights.norms, weights.spans, flat)
        q, k = (x.view(rows, -1, *old.shape[2:]) for x, old in zip((q, k), heads))
        return Heads(q, k, heads.v), HeadNormsSaved(flat[0], r_q, flat[1], r_k)

    def backward(
        self,
        weights: QkvWeights,
        gradients: QkvWeights,
        a: Tensor,
        saved: HeadNormsSaved | None,
        d: Tensor,
        rows: int,
        queue: Queue,
    ) -> Work[Tensor]:
        """The gradient of `a`; `d` is that of the heads, flat, and is written over."""
        if saved is not None:
            yield from self._norms_backward(weights, gradients, saved, d, rows)
        return linear_backward(weights.qkv, gradients.qkv, a, d, queue)

    def _norms_backward(
        self,
        weights: QkvWeights,
        gradients: QkvWeights,
        saved: HeadNormsSaved,
        d: Tensor,
        rows: int,
    ) -> Work[None]:
        """Turn the gradients of normed queries and keys into those before their norms."""
        kept = [(saved.q, saved.r_q), (saved.k, saved.r_k)]
        if self.config.qk_norm_over != HEAD:
            flat = self._flat(d)
            yield from self.over_all.backward(
                weights.norms, gradients.norms, weights.spans, kept, flat
            )
            return
        both = split_heads(self.config, d, rows)[:2]
        for weight, gradient, (x, r), own in zip(weights.norms, gradients.norms, kept, both):
            own.copy_(self.norm.backward(weight, gradient, x, r, own))

    def _flat(self, product: Tensor) -> list[Tensor]:
        """Queries and keys in a product, [tokens, own heads x head_size]."""
        queries, keys, _ = (count * self.config.head_size for count in head_counts(self.config))
        return [product[:, :queries], product[:, queries : queries + keys]]


def head_counts(config: ModelConfig) -> list[int]:
    """Heads of queries, keys and values."""
    return [config.heads, config.kv_heads, config.kv_heads]


def qkv_width(config: ModelConfig) -> int:
    """Features of queries, keys and values together."""
    return sum(head_counts(config)) * config.head_size


def split_heads(config: ModelConfig, qkv: Tensor, rows: int) -> Heads:
    """Views of queries, keys and values in a product [rows x tokens, all heads x head_size]."""
    counts = head_counts(config)
    heads = qkv.view(rows, -1, sum(counts), config.head_size)
    return Heads(*torch.split(heads, counts, dim=2))
