"""The decoder as everybody writes it: modules, whole sequences, autograd, nothing of ours inside.

Two readers need it. The oracle judges our runs with it, and PyTorch's pipeline runtime is given it
in comparisons. They differ in the attention, which is handed in. A judge has it spelled out as one
square of scores: torch's fused kernels are what our own attention calls, so a mistake in how they
are understood would be made twice. A fair rival has the fused kernel.

Parameters have the names of the usual checkpoints.
"""

from collections.abc import Callable
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional

from penstock.arch.config import ModelConfig
from penstock.errors import ShapeError

AttentionFunction = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Queries, keys and values, [rows, heads, tokens, head_size], to what every token sees of itself
and of earlier ones. Several heads of queries may share a head of keys and values."""


def square_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Softmax over a square of scores, one per query and key, with a triangle masked out."""
    share = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
    scores = q @ k.mT / sqrt(q.shape[-1])
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(later, float("-inf")).softmax(-1) @ v


def fused_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Torch's own."""
    grouped = q.shape[1] != k.shape[1]
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)


class PlainAttention(nn.Module):
    """Projections, rotary positions and the attention that was handed in."""

    def __init__(self, config: ModelConfig, attention: AttentionFunction) -> None:
        super().__init__()
        h, d, bias = config.hidden, config.head_size, config.qkv_bias
        self.head_size, self.attention = d, attention
        self.q_proj = nn.Linear(h, config.heads * d, bias)
        self.k_proj = nn.Linear(h, config.kv_heads * d, bias)
        self.v_proj = nn.Linear(h, config.kv_heads * d, bias)
        self.o_proj = nn.Linear(config.heads * d, h, bias=False)
        self.q_norm = nn.RMSNorm(d, config.norm_epsilon) if config.qk_norm else nn.Identity()
        self.k_norm = nn.RMSNorm(d, config.norm_epsilon) if config.qk_norm else nn.Identity()

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        projected = (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        q, k, v = (y.unflatten(-1, (-1, self.head_size)).transpose(1, 2) for y in projected)
        q, k = turn_by_tables(self.q_norm(q), cos, sin), turn_by_tables(self.k_norm(k), cos, sin)
        out: Tensor = self.o_proj(self.attention(q, k, v).transpose(1, 2).flatten(2))
        return out


class ReferenceMlp(nn.Module):
    """silu(gate) x up, and down again."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden, config.ffn, bias=False)
        self.up_proj = nn.Linear(config.hidden, config.ffn, bias=False)
        self.down_proj = nn.Linear(config.ffn, config.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class PlainLayer(nn.Module):
    """Attention and MLP, each behind a norm and beside what it is added to."""

    def __init__(self, config: ModelConfig, attention: AttentionFunction) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden, config.norm_epsilon)
        self.self_attn = PlainAttention(config, attention)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden, config.norm_epsilon)
        self.mlp = ReferenceMlp(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class PlainStage(nn.Module):
    """Some layers, with the embedding in front of the first and the head behind the last.

    A tied head is the embedding, so a model that has one is one stage.
    """

    cos: Tensor
    sin: Tensor

    def __init__(
        self, config: ModelConfig, layers: range, length: int, attention: AttentionFunction
    ) -> None:
        super().__init__()
        first, last = layers.start == 0, layers.stop == config.layers
        _refuse_unknown(config, tied_apart=config.tied and first != last)
        self.embed_tokens = _embedding(config) if first else None
        self.layers = nn.ModuleDict({str(layer): PlainLayer(config, attention) for layer in layers})
        self.norm = nn.RMSNorm(config.hidden, config.norm_epsilon) if last else None
        own = last and not config.tied
        self.lm_head = nn.Linear(config.hidden, config.vocabulary, bias=False) if own else None
        cos, sin = rotary_tables(config, length)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens or the last stage's output, [rows, tokens, ...], to the next one's input or
        logits."""
        if self.embed_tokens is not None:
            x = self.embed_tokens(x)
        cos, sin = (table[: x.shape[1]].to(x) for table in (self.cos, self.sin))
        for layer in self.layers.values():
            x = layer(x, cos, sin)
        return x if self.norm is None else self._head(self.norm(x))

    def _head(self, x: Tensor) -> Tensor:
        if self.lm_head is not None:
            logits: Tensor = self.lm_head(x)
            return logits
        assert self.embed_tokens is not None
        return functional.linear(x, self.embed_tokens.weight)


def _embedding(config: ModelConfig) -> nn.Embedding:
    """Without numbers of its own, which are drawn for nothing: the weights come from outside."""
    rows = torch.empty(config.vocabulary, config.hidden)
    return nn.Embedding.from_pretrained(rows, freeze=False)  # type: ignore[no-untyped-call, no-any-return]


def stored_name(name: str) -> str:
    """What a parameter of a stage is called in checkpoints.

    >>> stored_name("layers.3.mlp.up_proj.weight"), stored_name("lm_head.weight")
    ('model.layers.3.mlp.up_proj.weight', 'lm_head.weight')
    """
    return name if name.startswith("lm_head") else f"model.{name}"


def rotary_tables(config: ModelConfig, length: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the angle of every position and element, in 64 bits."""
    pairs = torch.arange(config.head_size // 2, dtype=torch.float64, device="cpu")
    frequencies = config.rope_theta ** (-2 * pairs / config.head_size)
    angles = torch.arange(length, dtype=torch.float64, device="cpu").outer(frequencies)
    return angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)


def turn_by_tables(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions: the halves of a head are real and imaginary parts, turned by an angle."""
    real, imaginary = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-imaginary, real), dim=-1) * sin


def _refuse_unknown(config: ModelConfig, tied_apart: bool) -> None:
    if not config.gated or config.rope_scaling is not None or config.window is not None:
        raise ShapeError(
            "the plain decoder has a gated MLP, unscaled rotary positions and no sliding window",
            hint="leave out rope_scaling and window, and give gated=True",
        )
    if tied_apart:
        raise ShapeError(
            "the head is tied to the embedding, but they are in different stages",
            hint="take all layers into one stage, or a model that is not tied",
        )
