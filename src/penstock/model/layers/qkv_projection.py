"""Queries, keys and values of one layer: one product, cut into heads, with norms where a model has
them."""

from typing import NamedTuple

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.model.attention.heads import Heads
from penstock.model.layers.linear import Queue, linear, linear_backward
from penstock.model.layers.norm import norm, norm_backward
from penstock.model.layers.views import Matrix, Views


class HeadNormsSaved(NamedTuple):
    """Queries and keys before their norms, and what these kept."""

    q: Tensor
    r_q: Tensor
    k: Tensor
    r_k: Tensor


class QkvWeights(NamedTuple):
    """The projection, and the norms of queries and keys, or their gradients."""

    qkv: Matrix
    q_norm: Tensor | None
    k_norm: Tensor | None


class QkvProjection:
    """What leads into attention."""

    def __init__(self, config: ModelConfig) -> None:
        self.config, self.epsilon = config, config.norm_epsilon

    def views(self, views: Views, prefix: str) -> QkvWeights:
        qkv = views.matrix(*(f"{prefix}{part}_proj" for part in "qkv"))
        if not self.config.qk_norm:
            return QkvWeights(qkv, None, None)
        q_norm, k_norm = (views.vector(f"{prefix}{part}_norm.weight") for part in "qk")
        return QkvWeights(qkv, q_norm, k_norm)

    def forward(
        self, weights: QkvWeights, a: Tensor, rows: int
    ) -> tuple[Heads, HeadNormsSaved | None]:
        """The heads of normed input `a` [rows x tokens, hidden]."""
        q, k, v = split_heads(self.config, linear(weights.qkv, a), rows)
        if weights.q_norm is None or weights.k_norm is None:
            return Heads(q, k, v), None
        normed_q, r_q = norm(weights.q_norm, q, self.epsilon)
        normed_k, r_k = norm(weights.k_norm, k, self.epsilon)
        return Heads(normed_q, normed_k, v), HeadNormsSaved(q, r_q, k, r_k)

    def backward(
        self,
        weights: QkvWeights,
        gradients: QkvWeights,
        a: Tensor,
        saved: HeadNormsSaved | None,
        d: Tensor,
        rows: int,
        queue: Queue,
    ) -> Tensor:
        """The gradient of `a`; `d` is that of the heads, flat, and is written over."""
        if saved is not None:
            self._norms_backward(weights, gradients, saved, split_heads(self.config, d, rows))
        return linear_backward(weights.qkv, gradients.qkv, a, d, queue)

    def _norms_backward(
        self, weights: QkvWeights, gradients: QkvWeights, saved: HeadNormsSaved, d: Heads
    ) -> None:
        """Turn the gradients of normed queries and keys into those before their norms."""
        assert weights.q_norm is not None
        assert gradients.q_norm is not None
        assert weights.k_norm is not None
        assert gradients.k_norm is not None
        d.q.copy_(norm_backward(weights.q_norm, gradients.q_norm, saved.q, saved.r_q, d.q))
        d.k.copy_(norm_backward(weights.k_norm, gradients.k_norm, saved.k, saved.r_k, d.k))


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
