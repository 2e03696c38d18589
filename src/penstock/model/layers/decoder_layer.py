"""One layer of the decoder: attention and MLP, each behind a norm, with the backward written out.

A backward that is written out keeps exactly what it needs, adds residuals inside the products, and
leaves the weight gradients to a queue. Everything is [tokens, features], where tokens are the rows
of a microbatch one behind the other.
"""

from typing import NamedTuple

from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.model.attention.lending import lend_keys
from penstock.model.layers.attend import SliceContext
from penstock.model.layers.linear import Queue
from penstock.model.layers.norm import norm, norm_backward
from penstock.model.layers.post_attention import (
    PostAttention,
    PostAttentionSaved,
    PostAttentionWeights,
)
from penstock.model.layers.pre_attention import PreAttention, PreAttentionWeights
from penstock.model.layers.self_attention import SelfAttention, SelfAttentionSaved
from penstock.model.layers.views import Views
from penstock.model.parallel.cell import SINGLE_RANK, Cell
from penstock.model.parallel.group import Work


class LayerWeights(NamedTuple):
    """Weights of a layer, or their gradients."""

    pre: PreAttentionWeights
    post: PostAttentionWeights


class LayerSaved(NamedTuple):
    """What the backward of a layer needs."""

    x: Tensor
    r: Tensor
    a: Tensor
    """The normed input of attention."""
    attention: SelfAttentionSaved
    post: PostAttentionSaved


class DecoderLayer:
    """The arithmetic of a layer; it owns no tensor."""

    def __init__(self, config: ModelConfig, number: int, cell: Cell = SINGLE_RANK) -> None:
        """`config` has the sizes of this rank's matrices."""
        self.number, self.epsilon = number, config.norm_epsilon
        self.pre, self.post = PreAttention(config, cell), PostAttention(config, cell)
        self.attention = SelfAttention(config, cell)

    def views(self, views: Views) -> LayerWeights:
        return LayerWeights(self.pre.views(views, self.number), self.post.views(views, self.number))

    def forward(
        self, weights: LayerWeights, x: Tensor, context: SliceContext
    ) -> Work[tuple[Tensor, LayerSaved]]:
        lend_keys(context.at)
        a, r = norm(weights.pre.norm, x, self.epsilon)
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
    ) -> Work[Tensor]:
        """The gradient of the input."""
        lend_keys(context.at)
        pre, d_pre = weights.pre, gradients.pre
        d_out, dx = yield from self.post.backward(
            weights.post, gradients.post, saved.attention.out, saved.post, dz, queue
        )
        da = yield from self.attention.backward(
            pre.projection, d_pre.projection, saved.a, saved.attention, d_out, context, queue
        )
        del d_out
        return norm_backward(pre.norm, d_pre.norm, saved.x, saved.r, da, dx)
