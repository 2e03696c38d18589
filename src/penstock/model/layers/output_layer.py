"""What follows the last layer: the final norm, the head and the loss.

All of it is done in the backward, where the logits serve loss and gradient at once; a forward only
hands on what the last layer gave.
"""

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


class OutputLayer:
    """The end of a model."""

    def __init__(self, config: ModelConfig) -> None:
        self.epsilon = config.norm_epsilon

    def views(self, views: Views) -> OutputWeights:
        return OutputWeights(views.vector(LAST_NORM), views.matrix("lm_head"))

    def loss(self, weights: OutputWeights, x: Tensor, piece: Piece) -> Tensor:
        """The summed loss of a slice, without its gradient."""
        normed, _ = norm(weights.norm, x, self.epsilon)
        return head_loss(weights.head.weight, normed, piece.labels.flatten())

    def backward(
        self, weights: OutputWeights, gradients: OutputWeights, x: Tensor, piece: Piece
    ) -> tuple[Tensor, Tensor]:
        """The summed loss of a slice, and the gradient of the last layer's output."""
        d, r = norm(weights.norm, x, self.epsilon)
        loss = head_loss_backward(
            weights.head.weight, gradients.head.weight, d, piece.labels.flatten(), piece.scale
        )
        return loss, norm_backward(weights.norm, gradients.norm, x, r, d)

    def logits(self, weights: OutputWeights, x: Tensor) -> Tensor:
        return linear(weights.head, norm(weights.norm, x, self.epsilon)[0])
