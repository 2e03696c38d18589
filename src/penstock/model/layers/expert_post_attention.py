"""What follows attention in a layer with experts: the projection that leads back, and behind a norm
the experts of each token.

Tensor-parallel ranks share the inside of every expert. Each of them has the whole router, routes
all tokens, and has a part of every sum: of the output, of the gradient of the input, and of what a
choice weighs, hence of the gradient of the router, which is added up at the end of a step.
"""

from typing import NamedTuple

from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.parameters import layer_prefix
from penstock.model.layers.expert_mlp import ExpertSaved, ExpertWeights, RoutedMlp
from penstock.model.layers.linear import Queue, linear_add, linear_backward
from penstock.model.layers.norm import RmsNorm
from penstock.model.layers.views import Matrix, Views
from penstock.model.parallel.cell import SINGLE_RANK, Cell
from penstock.model.parallel.group import Work
from penstock.model.parallel.tokens import add_up_tokens, gather_tokens


class ExpertPostWeights(NamedTuple):
    """Weights behind attention, or their gradients."""

    out: Matrix
    norm: Tensor
    experts: ExpertWeights


class ExpertPostSaved(NamedTuple):
    """What its backward needs, beside the output of attention."""

    y: Tensor
    """The input of the norm."""
    r: Tensor
    b: Tensor
    """The input of the experts."""
    experts: ExpertSaved


class ExpertPostAttention:
    """The second part of a layer."""

    def __init__(self, config: ModelConfig, cell: Cell = SINGLE_RANK) -> None:
        assert config.mixture is not None
        self.norm, self.tokens = RmsNorm(config), cell.tokens
        self.experts = RoutedMlp(config.mixture, cell.experts)
        self.has_slope = cell.tensor is None or cell.tensor.index == 0
        """Of ranks that each have a part of a sum, one adds the gradient of the auxiliary loss."""

    def views(self, views: Views, layer: int) -> ExpertPostWeights:
        prefix = layer_prefix(layer)
        return ExpertPostWeights(
            views.matrix(f"{prefix}self_attn.o_proj"),
            views.vector(f"{prefix}post_attention_layernorm.weight"),
            self.experts.views(views, prefix),
        )

    def forward(
        self, weights: ExpertPostWeights, attended: Tensor, x: Tensor
    ) -> Work[tuple[Tensor, ExpertPostSaved]]:
        """The layer's output, of that of attention and the layer's input."""
        y = yield from linear_add(weights.out, attended, x, self.tokens)
        b, r = self.norm.forward(weights.norm, y)
        whole = yield from gather_tokens(self.tokens, b, len(attended))
        part, saved = yield from self.experts.forward(weights.experts, whole)
        del whole
        z = yield from add_up_tokens(self.tokens, part)
        return z.add_(y), ExpertPostSaved(y, r, b, saved)

    def backward(
        self,
        weights: ExpertPostWeights,
        gradients: ExpertPostWeights,
        attended: Tensor,
        saved: ExpertPostSaved,
        dz: Tensor,
        queue: Queue,
        slope: Tensor | None = None,
    ) -> Work[tuple[Tensor, Tensor]]:
        """The gradients of the output of attention and, past it, of the layer's input; `slope` is
        that of the auxiliary loss with respect to probabilities of experts."""
        count = len(attended)
        own = slope if self.has_slope else None
        whole = yield from gather_tokens(self.tokens, dz, count)
        b = yield from gather_tokens(self.tokens, saved.b, count)
        part = yield from self.experts.backward(
            weights.experts, gradients.experts, saved.experts, b, whole, own, queue
        )
        del whole, b
        db = yield from add_up_tokens(self.tokens, part, queue.meanwhile)
        del part
        dy = self.norm.backward(weights.norm, gradients.norm, saved.y, saved.r, db, dz)
        whole = yield from gather_tokens(self.tokens, dy, count)
        return linear_backward(weights.out, gradients.out, attended, whole, queue), dy
