"""One layer of the decoder: attention and MLP with their norms, and the backward written out.

A backward that is written out keeps exactly what it needs, adds residuals inside the products, and
leaves the weight gradients to a queue. Everything is [tokens, features], where tokens are the rows
of a microbatch one behind the other.
"""

from typing import Any, NamedTuple

from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.model.attention.lending import lend_keys
from penstock.model.layers.attend import SliceContext
from penstock.model.layers.layer_end import layer_end
from penstock.model.layers.linear import Queue
from penstock.model.layers.pre_attention import InputNorm, PreAttention, PreAttentionWeights
from penstock.model.layers.self_attention import SelfAttention, SelfAttentionSaved
from penstock.model.layers.views import Views
from penstock.model.parallel.cell import SINGLE_RANK, Cell
from penstock.model.parallel.group import Work


class LayerWeights(NamedTuple):
    """Weights of a layer, or their gradients."""

    pre: PreAttentionWeights
    post: Any
    """Of one MLP or of several (layer_end.py)."""


class LayerSaved(NamedTuple):
    """What the backward of a layer needs."""

    x: Tensor
    r: Tensor | None
    a: Tensor
    """The normed input of attention, or the input where no norm stands in front."""
    attention: SelfAttentionSaved
    post: Any


class DecoderLayer:
    """The arithmetic of a layer; it owns no tensor."""

    attends = True

    def __init__(self, config: ModelConfig, number: int, cell: Cell = SINGLE_RANK) -> None:
        """`config` has the sizes of this rank's matrices."""
        self.number, self.norm = number, InputNorm(config)
        self.pre, self.post = PreAttention(config, cell), layer_end(config, cell)
        self.attention = SelfAttention(config, cell)

    def views(self, views: Views) -> LayerWeights:
        return LayerWeights(self.pre.views(views, self.number), self.post.views(views, self.number))

    def forward(
        self, weights: LayerWeights, x: Tensor, context: SliceContext
    ) -> Work[tuple[Tensor, LayerSaved]]:
        lend_keys(context.at)
        a, r = self.norm.forward(weights.pre.norm, x)
        attention = yield from self.attention.forward(weights.pre.projection, a, context)
        z, post = yield from self.post.forward(weights.post, attention.out, x)
        return z, LayerSaved(x, r, a, attention, post)

    def backward(
        self,
        weights: LayerWeights,
        gradients: LayerWeights,
        saved: LayerSaved,
        dz: Tensor,
        context: SliceContext,
        queue: Queue,
        slope: Tensor | None = None,
    ) -> Work[Tensor]:
        """The gradient of the input; `slope` is that of the auxiliary loss of experts."""
        lend_keys(context.at)
        pre, d_pre = weights.pre, gradients.pre
        d_out, dx = yield from self.post.backward(
            weights.post, gradients.post, saved.attention.out, saved.post, dz, queue, slope
        )
        da = yield from self.attention.backward(
            pre.projection, d_pre.projection, saved.a, saved.attention, d_out, context, queue
        )
        del d_out
        return self.norm.backward(pre.norm, d_pre.norm, saved.x, saved.r, da, dx)
