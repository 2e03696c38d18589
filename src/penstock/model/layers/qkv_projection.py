"""Queries, keys and values of one layer: one product, cut into heads, with norms where a model has
them."""

from typing import NamedTuple

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.model.layers.linear import Queue, linear, linear_backward
from penstock.model.layers.norm import norm, norm_backward
from penstock.model.stages.weights import Weights


class Heads(NamedTuple):
    """Queries, keys and values, each [rows, tokens, heads, head_size]."""

    q: Tensor
    k: Tensor
    v: Tensor


class Normed(NamedTuple):
    """Queries and keys before their norms, and what these kept."""

    q: Tensor
    r_q: Tensor
    k: Tensor
    r_k: Tensor


class Projection:
    """What leads into attention, over a stage's weights."""

    def __init__(self, config: ModelConfig, weights: Weights, prefix: str) -> None:
        self.config, self.epsilon = config, config.norm_epsilon
        self.qkv = weights.matrix(*(f"{prefix}{part}_proj" for part in "qkv"))
        names = [f"{prefix}{part}_norm.weight" for part in "qk"] if config.qk_norm else []
        self.norms = [weights.vector(name) for name in names]

    def forward(self, a: Tensor, rows: int) -> tuple[Heads, Normed | None]:
        """The heads of normed input `a` [rows x tokens, hidden]."""
        q, k, v = parted(self.config, linear(self.qkv, a), rows)
        if not self.norms:
            return Heads(q, k, v), None
        normed_q, r_q = norm(self.norms[0], q, self.epsilon)
        normed_k, r_k = norm(self.norms[1], k, self.epsilon)
        return Heads(normed_q, normed_k, v), Normed(q, r_q, k, r_k)

    def backward(
        self, a: Tensor, normed: Normed | None, d: Tensor, rows: int, queue: Queue
    ) -> Tensor:
        """The gradient of `a`; `d` is that of the heads, flat, and is written over."""
        if normed is not None:
            to_q, to_k, _ = parted(self.config, d, rows)
            to_q.copy_(norm_backward(self.norms[0], normed.q, normed.r_q, to_q))
            to_k.copy_(norm_backward(self.norms[1], normed.k, normed.r_k, to_k))
        return linear_backward(self.qkv, a, d, queue)


def head_counts(config: ModelConfig) -> list[int]:
    """Heads of queries, keys and values."""
    return [config.heads, config.kv_heads, config.kv_heads]


def projected_width(config: ModelConfig) -> int:
    """Features of queries, keys and values together."""
    return sum(head_counts(config)) * config.head_size


def parted(config: ModelConfig, qkv: Tensor, rows: int) -> Heads:
    """Views of queries, keys and values in a product [rows x tokens, all heads x head_size]."""
    counts = head_counts(config)
    heads = qkv.view(rows, -1, sum(counts), config.head_size)
    return Heads(*torch.split(heads, counts, dim=2))
