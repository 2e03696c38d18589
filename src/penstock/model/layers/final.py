"""What follows the last layer: the final norm, the head and the loss."""

from typing import NamedTuple

from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.parameters import LAST_NORM
from penstock.model.layers.linear import linear
from penstock.model.layers.lm_head import loss_backward, loss_of
from penstock.model.layers.norm import norm, norm_backward
from penstock.model.stages.piece import Piece
from penstock.model.stages.weights import Weights


class Ended(NamedTuple):
    """What the backward needs of the norm and the loss."""

    x: Tensor
    r: Tensor
    normed: Tensor
    lse: Tensor


class Ending:
    """The end of a model over its last stage's weights."""

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self.epsilon = config.norm_epsilon
        self.norm, self.head = weights.vector(LAST_NORM), weights.matrix("lm_head")

    def forward(self, x: Tensor, piece: Piece) -> tuple[Tensor, Ended]:
        """The summed loss of a slice."""
        normed, r = norm(self.norm, x, self.epsilon)
        scores = loss_of(self.head, normed, piece.labels.flatten())
        return scores.loss, Ended(x, r, normed, scores.lse)

    def backward(self, ended: Ended, piece: Piece) -> Tensor:
        """The gradient of the last layer's output."""
        labels = piece.labels.flatten()
        d = loss_backward(self.head, ended.normed, labels, ended.lse, piece.scale)
        return norm_backward(self.norm, ended.x, ended.r, d)

    def logits(self, x: Tensor) -> Tensor:
        return linear(self.head, norm(self.norm, x, self.epsilon)[0])
