"""One layer of the decoder: attention and MLP, each behind a norm, with the backward written out.

A backward that is written out keeps exactly what it needs, adds residuals inside the products, and
leaves the weight gradients to a queue. Everything is [tokens, features], where tokens are the rows
of a microbatch one behind the other.
"""

from typing import NamedTuple

from torch import Tensor

from penstock.cost.architecture import ModelConfig
from penstock.model.linear import Queue, linear, linear_backward, linear_onto
from penstock.model.mlp import gate, gate_backward
from penstock.model.norm import norm, norm_backward
from penstock.model.self_attention import Attended, SelfAttention, Setting
from penstock.model.shapes import layer_prefix
from penstock.model.weights import Weights


class Kept(NamedTuple):
    """What the backward of a layer needs."""

    x: Tensor
    r_attention: Tensor
    a: Tensor
    """The normed input of attention."""
    attended: Attended
    y: Tensor
    """The input of the MLP's norm."""
    r_mlp: Tensor
    b: Tensor
    both: Tensor
    """Gate and up."""
    gated: Tensor


class Block:
    """A layer over a stage's weights."""

    def __init__(self, config: ModelConfig, weights: Weights, layer: int) -> None:
        name = layer_prefix(layer)
        self.epsilon = config.norm_epsilon
        self.attention_norm = weights.vector(f"{name}input_layernorm.weight")
        self.attention = SelfAttention(config, weights, f"{name}self_attn.")
        self.out = weights.matrix(f"{name}self_attn.o_proj")
        self.mlp_norm = weights.vector(f"{name}post_attention_layernorm.weight")
        self.gate_up = weights.matrix(f"{name}mlp.gate_proj", f"{name}mlp.up_proj")
        self.down = weights.matrix(f"{name}mlp.down_proj")

    def forward(self, x: Tensor, setting: Setting) -> tuple[Tensor, Kept]:
        a, r_attention = norm(self.attention_norm, x, self.epsilon)
        attended = self.attention.forward(a, setting)
        y = linear_onto(self.out, attended.out, x)
        b, r_mlp = norm(self.mlp_norm, y, self.epsilon)
        both = linear(self.gate_up, b)
        gated = gate(both)
        z = linear_onto(self.down, gated, y)
        return z, Kept(x, r_attention, a, attended, y, r_mlp, b, both, gated)

    def backward(self, kept: Kept, dz: Tensor, setting: Setting, queue: Queue) -> Tensor:
        dy = self._through_mlp(kept, dz, queue)
        d_out = linear_backward(self.out, kept.attended.out, dy, queue)
        da = self.attention.backward(kept.a, kept.attended, d_out, setting, queue)
        del d_out
        return norm_backward(self.attention_norm, kept.x, kept.r_attention, da).add_(dy)

    def _through_mlp(self, kept: Kept, dz: Tensor, queue: Queue) -> Tensor:
        """The gradient in front of the MLP and its norm; its large tensors end here."""
        d_gated = linear_backward(self.down, kept.gated, dz, queue)
        d_both = gate_backward(kept.both, d_gated)
        db = linear_backward(self.gate_up, kept.b, d_both, queue)
        return norm_backward(self.mlp_norm, kept.y, kept.r_mlp, db).add_(dz)
