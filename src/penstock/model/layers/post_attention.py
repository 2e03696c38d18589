"""What follows attention in a layer: the projection that leads back, the MLP behind its norm."""

from typing import NamedTuple

from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.parameters import layer_prefix
from penstock.model.layers.linear import Queue, linear, linear_backward, linear_onto
from penstock.model.layers.norm import norm, norm_backward
from penstock.model.layers.swiglu import gate, gate_backward
from penstock.model.stages.weights import Weights


class Followed(NamedTuple):
    """What its backward needs, beside the output of attention."""

    y: Tensor
    """The input of the MLP's norm."""
    r: Tensor
    b: Tensor
    both: Tensor
    """Gate and up."""
    gated: Tensor


class Follow:
    """The second half of a layer over a stage's weights."""

    def __init__(self, config: ModelConfig, weights: Weights, layer: int) -> None:
        name = layer_prefix(layer)
        self.epsilon = config.norm_epsilon
        self.out = weights.matrix(f"{name}self_attn.o_proj")
        self.norm = weights.vector(f"{name}post_attention_layernorm.weight")
        self.gate_up = weights.matrix(f"{name}mlp.gate_proj", f"{name}mlp.up_proj")
        self.down = weights.matrix(f"{name}mlp.down_proj")

    def forward(self, attended: Tensor, x: Tensor) -> tuple[Tensor, Followed]:
        """The layer's output, of that of attention and the layer's input."""
        y = linear_onto(self.out, attended, x)
        b, r = norm(self.norm, y, self.epsilon)
        both = linear(self.gate_up, b)
        gated = gate(both)
        return linear_onto(self.down, gated, y), Followed(y, r, b, both, gated)

    def backward(
        self, attended: Tensor, kept: Followed, dz: Tensor, queue: Queue
    ) -> tuple[Tensor, Tensor]:
        """The gradients of the output of attention and, past it, of the layer's input."""
        dy = self._through_mlp(kept, dz, queue)
        return linear_backward(self.out, attended, dy, queue), dy

    def _through_mlp(self, kept: Followed, dz: Tensor, queue: Queue) -> Tensor:
        """The gradient in front of the MLP and its norm; its large tensors end here."""
        d_gated = linear_backward(self.down, kept.gated, dz, queue)
        d_both = gate_backward(kept.both, d_gated)
        db = linear_backward(self.gate_up, kept.b, d_both, queue)
        return norm_backward(self.norm, kept.y, kept.r, db).add_(dz)
