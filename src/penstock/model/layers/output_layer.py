"""What follows the last layer: the final norm, the head and the loss."""

from typing import NamedTuple

from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.parameters import LAST_NORM
from penstock.model.attention.piece import Piece
from penstock.model.layers.linear import linear
from penstock.model.layers.lm_head import head_loss, head_loss_backward
from penstock.model.layers.norm import norm, norm_backward
from penstock.model.layers.views import Matrix, Views


class OutputWeights(NamedTuple):
    """Weights behind the last layer, or their gradients."""

    norm: Tensor
    head: Matrix


class OutputSaved(NamedTuple):
    """What the backward needs of the norm and the loss."""

    x: Tensor
    r: Tensor
    normed: Tensor
    lse: Tensor


class OutputLayer:
    """The end of a model."""

    def __init__(self, config: ModelConfig) -> None:
        self.epsilon = config.norm_epsilon

    def views(self, views: Views) -> OutputWeights:
        return OutputWeights(views.vector(LAST_NORM), views.matrix("lm_head"))

    def forward(
        self, weights: OutputWeights, x: Tensor, piece: Piece
    ) -> tuple[Tensor, OutputSaved]:
        """The summed loss of a slice."""
        normed, r = norm(weights.norm, x, self.epsilon)
        found = head_loss(weights.head.weight, normed, piece.labels.flatten())
        return found.loss, OutputSaved(x, r, normed, found.lse)

    def backward(
        self, weights: OutputWeights, gradients: OutputWeights, saved: OutputSaved, piece: Piece
    ) -> Tensor:
        """The gradient of the last layer's output."""
        d = head_loss_backward(
            weights.head.weight,
            gradients.head.weight,
            saved.normed,
            piece.labels.flatten(),
            saved.lse,
            piece.scale,
        )
        return norm_backward(weights.norm, gradients.norm, saved.x, saved.r, d)

    def logits(self, weights: OutputWeights, x: Tensor) -> Tensor:
        return linear(weights.head, norm(weights.norm, x, self.epsilon)[0])
