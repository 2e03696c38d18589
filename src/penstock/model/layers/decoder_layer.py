"""One layer of the decoder: attention and MLP, each behind a norm, with the backward written out.

A backward that is written out keeps exactly what it needs, adds residuals inside the products, and
leaves the weight gradients to a queue. Everything is [tokens, features], where tokens are the rows
of a microbatch one behind the other.
"""

from typing import NamedTuple

from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.parameters import layer_prefix
from penstock.model.layers.linear import Queue
from penstock.model.layers.norm import norm, norm_backward
from penstock.model.layers.post_attention import Follow, Followed
from penstock.model.layers.self_attention import Attended, SelfAttention, Setting
from penstock.model.stages.weights import Weights


class Kept(NamedTuple):
    """What the backward of a layer needs."""

    x: Tensor
    r: Tensor
    a: Tensor
    """The normed input of attention."""
    attended: Attended
    followed: Followed


class Block:
    """A layer over a stage's weights."""

    def __init__(self, config: ModelConfig, weights: Weights, layer: int) -> None:
        name = layer_prefix(layer)
        self.epsilon = config.norm_epsilon
        self.norm = weights.vector(f"{name}input_layernorm.weight")
        self.attention = SelfAttention(config, weights, f"{name}self_attn.")
        self.follow = Follow(config, weights, layer)

    def forward(self, x: Tensor, setting: Setting) -> tuple[Tensor, Kept]:
        a, r = norm(self.norm, x, self.epsilon)
        attended = self.attention.forward(a, setting)
        z, followed = self.follow.forward(attended.out, x)
        return z, Kept(x, r, a, attended, followed)

    def backward(self, kept: Kept, dz: Tensor, setting: Setting, queue: Queue) -> Tensor:
        d_out, dx = self.follow.backward(kept.attended.out, kept.followed, dz, queue)
        da = self.attention.backward(kept.a, kept.attended, d_out, setting, queue)
        del d_out
        return norm_backward(self.norm, kept.x, kept.r, da).add_(dx)
