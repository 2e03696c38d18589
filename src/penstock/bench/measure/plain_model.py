"""The same decoder as everybody writes it: modules, autograd, torch's own attention.

It is what PyTorch's pipeline runtime is given in comparisons: equal parameters by name, an equal
loss, nothing of ours inside but the sizes and the initial numbers.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from penstock.arch.config import ModelConfig
from penstock.model.io.initial_weights import initialise
from penstock.model.layers.rope import rope_tables


class PlainLayer(nn.Module):
    """One layer; its parameters have the names of the usual checkpoints."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        h, d = config.hidden, config.head_size
        self.config = config
        self.input_layernorm = nn.RMSNorm(h, config.norm_epsilon)
        self.self_attn = nn.ModuleDict(
            {
                "q_proj": nn.Linear(h, config.heads * d, bias=False),
                "k_proj": nn.Linear(h, config.kv_heads * d, bias=False),
                "v_proj": nn.Linear(h, config.kv_heads * d, bias=False),
                "o_proj": nn.Linear(config.heads * d, h, bias=False),
            }
        )
        self.post_attention_layernorm = nn.RMSNorm(h, config.norm_epsilon)
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(h, config.ffn, bias=False),
                "up_proj": nn.Linear(h, config.ffn, bias=False),
                "down_proj": nn.Linear(config.ffn, h, bias=False),
            }
        )

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self._attend(self.input_layernorm(x), cos, sin)
        return x + self._mlp(self.post_attention_layernorm(x))

    def _attend(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = (
            self.self_attn[f"{name}_proj"](x).unflatten(-1, (-1, self.config.head_size))
            for name in "qkv"
        )
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        q, k = (part * cos + _half_turned(part) * sin for part in (q, k))
        grouped = self.config.heads != self.config.kv_heads
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
        attended: Tensor = self.self_attn["o_proj"](out.transpose(1, 2).flatten(2))
        return attended

    def _mlp(self, x: Tensor) -> Tensor:
        gated = functional.silu(self.mlp["gate_proj"](x)) * self.mlp["up_proj"](x)
        out: Tensor = self.mlp["down_proj"](gated)
        return out


class PlainStage(nn.Module):
    """Some layers, with the embedding in front of the first and the head behind the last."""

    def __init__(self, config: ModelConfig, layers: range, length: int) -> None:
        super().__init__()
        first, last = layers.start == 0, layers.stop == config.layers
        embedding = nn.Embedding(config.vocabulary, config.hidden) if first else None
        self.embed_tokens = embedding
        self.layers = nn.ModuleDict({str(layer): PlainLayer(config) for layer in layers})
        self.norm = nn.RMSNorm(config.hidden, config.norm_epsilon) if last else None
        head = nn.Linear(config.hidden, config.vocabulary, bias=False) if last else None
        self.lm_head = head
        cos, sin = rope_tables(config, range(length), torch.float32, "cpu")
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                initialise(config, stored_name(name), parameter, seed=0)

    def forward(self, x: Tensor) -> Tensor:
        if self.embed_tokens is not None:
            x = self.embed_tokens(x)
        for layer in self.layers.values():
            x = layer(x, self.cos, self.sin)
        if self.norm is not None and self.lm_head is not None:
            x = self.lm_head(self.norm(x))
        return x


def stored_name(name: str) -> str:
    """What a parameter is called in checkpoints.

    >>> stored_name("layers.3.mlp.up_proj.weight"), stored_name("lm_head.weight")
    ('model.layers.3.mlp.up_proj.weight', 'lm_head.weight')
    """
    return name if name.startswith("lm_head") else f"model.{name}"


def summed_loss(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")


def _half_turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)
