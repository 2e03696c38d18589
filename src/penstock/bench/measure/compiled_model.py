"""A Llama-style model as it is written today in plain PyTorch, to be compiled block by block.

Our step on a GPU is compared with a step of this model. So it has what a good engineer would give
it: one product for queries, keys and values, one for gate and up, PyTorch's own attention; and
nothing else.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from penstock.arch.config import ModelConfig
from penstock.errors import ShapeError
from penstock.verify.plain_rotary import turn_by_tables

CallBlock = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]
"""Runs a block on its input with the tables of cosines and sines."""


def keep_activations(block: nn.Module, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Run a block, and keep what its backward needs."""
    out: Tensor = block(x, cos, sin)
    return out


def recompute_activations(block: nn.Module, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Run a block, keep its input alone, and run it again before its backward."""
    # Nothing in a block is random, so the state of the random numbers need not be kept.
    out: Tensor = checkpoint(block, x, cos, sin, use_reentrant=False, preserve_rng_state=False)
    return out


class ScaledNorm(nn.Module):
    """RMSNorm with its statistics in 32 bits."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.ones(size)), epsilon

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return y.to(x.dtype) * self.weight.to(x.dtype)


class CompiledBlock(nn.Module):
    """One layer: attention and MLP, each after a norm and added to what it was given."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden, size, epsilon = config.hidden, config.head_size, config.norm_epsilon
        self.heads, self.kv_heads, self.size = config.heads, config.kv_heads, size
        self.first_norm, self.second_norm = (ScaledNorm(hidden, epsilon) for _ in range(2))
        together = (config.heads + 2 * config.kv_heads) * size
        self.qkv = nn.Linear(hidden, together, bias=config.qkv_bias)
        self.q_norm, self.k_norm = (
            ScaledNorm(size, epsilon) if config.qk_norm else nn.Identity() for _ in range(2)
        )
        self.out = nn.Linear(config.heads * size, hidden, bias=False)
        self.gate_up = nn.Linear(hidden, 2 * config.ffn, bias=False)
        self.down = nn.Linear(config.ffn, hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """[rows, tokens, hidden] to the same; the tables are [1, tokens, 1, head_size]."""
        x = x + self.out(self._attention(self.first_norm(x), cos, sin))
        gate, up = self.gate_up(self.second_norm(x)).chunk(2, -1)
        y: Tensor = x + self.down(functional.silu(gate) * up)
        return y

    def _attention(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        rows, tokens, _ = x.shape
        counts = [self.heads, self.kv_heads, self.kv_heads]
        q, k, v = self.qkv(x).view(rows, tokens, sum(counts), self.size).split(counts, 2)
        q, k = turn_by_tables(self.q_norm(q), cos, sin), turn_by_tables(self.k_norm(k), cos, sin)
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return seen.transpose(1, 2).reshape(rows, tokens, self.heads * self.size)


class CompiledDecoder(nn.Module):
    """Embedding, blocks and the last norm; the head is a matrix that the loss multiplies with."""

    def __init__(self, config: ModelConfig, call: CallBlock = keep_activations) -> None:
        super().__init__()
        _refuse_other_models(config)
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        self.blocks = nn.ModuleList(CompiledBlock(config) for _ in range(config.layers))
        self.norm = ScaledNorm(config.hidden, config.norm_epsilon)
        self.head = nn.Linear(config.hidden, config.vocabulary, bias=False)
        if config.tied:
            self.head.weight = self.embedding.weight
        self.call = call

    def forward(self, tokens: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """[rows, tokens] to [rows, tokens, hidden]"""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = self.call(block, x, cos, sin)
        normed: Tensor = self.norm(x)
        return normed


def _refuse_other_models(config: ModelConfig) -> None:
    if not config.gated:
        raise ShapeError(
            "the compiled model has a gated MLP, and this one has none", hint="give gated=True"
        )
