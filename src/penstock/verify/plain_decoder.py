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

from penstock.arch.attention_rule import PLAIN_ATTENTION, AttentionRule
from penstock.arch.config import ModelConfig
from penstock.arch.layers.expert_mlp import BLOCK_NAMES
from penstock.errors import ShapeError
from penstock.verify.plain_experts import ReferenceExperts
from penstock.verify.plain_rotary import rotary_tables as rotary_tables
from penstock.verify.plain_rotary import turn_by_tables

AttentionFunction = Callable[[Tensor, Tensor, Tensor, AttentionRule], Tensor]
"""Queries, keys and values, [rows, heads, tokens, head_size], to what every token sees of itself
and of earlier ones, by the rule of the layer. Several heads of queries may share a head of keys and
values."""


def square_attention(
    q: Tensor, k: Tensor, v: Tensor, rule: AttentionRule = PLAIN_ATTENTION
) -> Tensor:
    """Softmax over a square of scores, one per query and key, with a triangle masked out, and with
    a window another one."""
    share = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
    scores = q @ k.mT / sqrt(q.shape[-1])
    if rule.cap is not None:
        scores = rule.cap * torch.tanh(scores / rule.cap)
    places = torch.arange(scores.shape[-1], device=q.device)
    behind = places[:, None] - places
    hidden = (behind < 0) | (behind >= (rule.window or len(places)))
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v


def fused_attention(
    q: Tensor, k: Tensor, v: Tensor, rule: AttentionRule = PLAIN_ATTENTION
) -> Tensor:
    """Torch's own."""
    if rule != PLAIN_ATTENTION:
        raise ShapeError(
            f"torch's fused attention has no window and no cap, but a layer has {rule}",
            hint="compare a model without them",
        )
    grouped = q.shape[1] != k.shape[1]
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)


class PlainNorm(nn.Module):
    """RMSNorm, by its weight or by 1 + its weight."""

    def __init__(self, size: int, config: ModelConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon, self.adds_one = config.norm_epsilon, config.norm_adds_one

    def forward(self, x: Tensor) -> Tensor:
        weight = 1 + self.weight if self.adds_one else self.weight
        return functional.rms_norm(x, (x.shape[-1],), weight, self.epsilon)


class PlainAttention(nn.Module):
    """Projections, rotary positions and the attention that was handed in."""

    def __init__(self, config: ModelConfig, attention: AttentionFunction, layer: int = 0) -> None:
        super().__init__()
        h, d, bias = config.hidden, config.head_size, config.qkv_bias
        self.head_size, self.attention, self.rule = d, attention, config.attention_rule(layer)
        self.over_head = config.qk_norm_over == "head"
        self.divisor = sqrt((config.query_scalar or d) / d)
        self.q_proj = nn.Linear(h, config.heads * d, bias)
        self.k_proj = nn.Linear(h, config.kv_heads * d, bias)
        self.v_proj = nn.Linear(h, config.kv_heads * d, bias)
        self.o_proj = nn.Linear(config.heads * d, h, bias=False)
        sizes = [d if self.over_head else count * d for count in (config.heads, config.kv_heads)]
        self.q_norm, self.k_norm = (
            PlainNorm(size, config) if config.qk_norm else nn.Identity() for size in sizes
        )

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if not self.over_head:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (y.unflatten(-1, (-1, self.head_size)).transpose(1, 2) for y in (q, k, v))
        if self.over_head:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = turn_by_tables(q, cos, sin) / self.divisor, turn_by_tables(k, cos, sin)
        out: Tensor = self.o_proj(self.attention(q, k, v, self.rule).transpose(1, 2).flatten(2))
        return out


class ReferenceMlp(nn.Module):
    """silu(gate) x up, and down again; or with GELU."""

    def __init__(self, config: ModelConfig, layer: int = 0) -> None:
        super().__init__()
        width = config.blocks[layer % len(config.blocks)].ffn if config.blocks else config.ffn
        self.gate_proj = nn.Linear(config.hidden, width, bias=False)
        self.up_proj = nn.Linear(config.hidden, width, bias=False)
        self.down_proj = nn.Linear(width, config.hidden, bias=False)
        gates = {"silu": nn.SiLU(), "gelu_tanh": nn.GELU(approximate="tanh")}
        self.gate = gates[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(self.gate(self.gate_proj(x)) * self.up_proj(x))
        return out


def reference_mlp(config: ModelConfig, layer: int) -> tuple[str, nn.Module]:
    """The second block of a layer, and what it is called."""
    if config.mixture is None:
        return "mlp", ReferenceMlp(config, layer)
    return BLOCK_NAMES[config.mixture.family], ReferenceExperts(config, config.mixture)


class PlainLayer(nn.Module):
    """Attention and MLP beside what they are added to, with a norm before them, after them, or
    both."""

    def __init__(self, config: ModelConfig, attention: AttentionFunction, layer: int = 0) -> None:
        super().__init__()
        before, after = config.norms != "after", config.norms != "before"
        both = before and after
        self.input_layernorm = self._norm(config, before)
        self.self_attn = PlainAttention(config, attention, layer)
        self.post_attention_layernorm = self._norm(config, True)
        self.pre_feedforward_layernorm = self._norm(config, both)
        self.block, mlp = reference_mlp(config, layer)
        self.add_module(self.block, mlp)
        self.post_feedforward_layernorm = self._norm(config, after)
        self.ends_attention = after

    def _norm(self, config: ModelConfig, exists: bool) -> nn.Module:
        return PlainNorm(config.hidden, config) if exists else nn.Identity()

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        attended = self.self_attn(self.input_layernorm(x), cos, sin)
        mlp = self.get_submodule(self.block)
        if self.ends_attention:
            x = x + self.post_attention_layernorm(attended)
            inner = mlp(self.pre_feedforward_layernorm(x))
        else:  # the norm of this name stands in front of the MLP
            x = x + attended
            inner = mlp(self.post_attention_layernorm(x))
        out: Tensor = x + self.post_feedforward_layernorm(inner)
        return out


class PlainMlpLayer(nn.Module):
    """An MLP beside what it is added to, with a norm before it, after it, or both."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        before, after = config.norms != "after", config.norms != "before"
        self.in_front = "pre_feedforward_layernorm" if after else "post_attention_layernorm"
        norm = PlainNorm(config.hidden, config) if before else nn.Identity()
        self.add_module(self.in_front, norm)
        self.mlp = ReferenceMlp(config, layer)
        last = PlainNorm(config.hidden, config) if after else nn.Identity()
        self.post_feedforward_layernorm = last

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        inner = self.mlp(self.get_submodule(self.in_front)(x))
        out: Tensor = x + self.post_feedforward_layernorm(inner)
        return out


def plain_layer(config: ModelConfig, attention: AttentionFunction, layer: int) -> nn.Module:
    """A layer, with attention unless its block has none."""
    if config.blocks and not config.blocks[layer % len(config.blocks)].attention:
        return PlainMlpLayer(config, layer)
    return PlainLayer(config, attention, layer)


class PlainStage(nn.Module):
    """Some layers, with the embedding in front of the first and the head behind the last.

    A tied head is the embedding, so a model that has one is one stage.
    """

    def __init__(
        self, config: ModelConfig, layers: range, length: int, attention: AttentionFunction
    ) -> None:
        super().__init__()
        first, last = layers.start == 0, layers.stop == config.layers
        _refuse_unknown(config, tied_apart=config.tied and first != last)
        self.embed_tokens = _embedding(config) if first else None
        self.layers = nn.ModuleDict(
            {str(layer): plain_layer(config, attention, layer) for layer in layers}
        )
        self.norm = PlainNorm(config.hidden, config) if last else None
        own = last and not config.tied
        self.lm_head = nn.Linear(config.hidden, config.vocabulary, bias=False) if own else None
        self.scale = sqrt(config.hidden) if config.scaled_embedding else 1.0
        self.cap = config.logit_cap
        turned = [config.with_rope_of(layer) for layer in layers]
        distinct = list(dict.fromkeys(turned))
        self.turn_of = [distinct.index(each) for each in turned]
        for number, each in enumerate(distinct):
            both = torch.stack(rotary_tables(each, length))
            self.register_buffer(f"turn_{number}", both, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens or the last stage's output, [rows, tokens, ...], to the next one's input or
        logits."""
        if self.embed_tokens is not None:
            x = self.embed_tokens(x) * self.scale
        tables = [
            self.get_buffer(f"turn_{n}")[:, : x.shape[1]].to(x) for n in sorted({*self.turn_of})
        ]
        for number, layer in zip(self.turn_of, self.layers.values()):
            x = layer(x, *tables[number])
        return x if self.norm is None else self._head(self.norm(x))

    def _head(self, x: Tensor) -> Tensor:
        if self.lm_head is not None:
            logits: Tensor = self.lm_head(x)
        else:
            assert self.embed_tokens is not None
            logits = functional.linear(x, self.embed_tokens.weight)
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)


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


def _refuse_unknown(config: ModelConfig, tied_apart: bool) -> None:
    if not config.gated:
        raise ShapeError("the plain decoder has a gated MLP", hint="give gated=True")
    if tied_apart:
        raise ShapeError(
            "the head is tied to the embedding, but they are in different stages",
            hint="take all layers into one stage, or a model that is not tied",
        )
