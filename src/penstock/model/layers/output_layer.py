"""What follows the last layer: the final norm, the head and the loss.

All of it is done in the backward, where the logits serve loss and gradient at once; a forward only
hands on what the last layer gave.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.parameters import LAST_NORM
from penstock.model.attention.piece import Piece
from penstock.model.layers.linear import linear
from penstock.model.layers.lm_head import head_loss, head_loss_backward
from penstock.model.layers.logit_cap import cap_alone
from penstock.model.layers.norm import RmsNorm
from penstock.model.layers.split_head import OwnWords, split_head_loss, split_head_loss_backward
from penstock.model.layers.views import Matrix, Views
from penstock.model.parallel.cell import SINGLE_RANK, Cell
from penstock.model.parallel.group import Work
from penstock.model.parallel.tokens import add_up_tokens, gather_tokens


class OutputWeights(NamedTuple):
    """Weights behind the last layer, or their gradients."""

    norm: Tensor
    head: Matrix


class OutputLayer:
    """The end of a model."""

    def __init__(self, config: ModelConfig, cell: Cell = SINGLE_RANK, first: int = 0) -> None:
        """`first` is the first word that this rank has."""
        self.norm, self.cap = RmsNorm(config), config.logit_cap
        self.cell, self.first = cell, first

    def views(self, views: Views) -> OutputWeights:
        return OutputWeights(views.vector(LAST_NORM), views.matrix("lm_head"))

    def loss(self, weights: OutputWeights, x: Tensor, piece: Piece) -> Work[Tensor]:
        """The summed loss of a slice, without its gradient."""
        normed, _ = self.norm.forward(weights.norm, x)
        labels = piece.labels.flatten()
        if self.cell.tensor is None:
            return head_loss(weights.head, normed, labels, self.cap)
        whole = yield from gather_tokens(self.cell.tokens, normed, len(labels))
        head = OwnWords(weights.head, self.first, self.cell.tensor, self.cap)
        return self._counted_once((yield from split_head_loss(head, whole, labels)))

    def backward(
        self, weights: OutputWeights, gradients: OutputWeights, x: Tensor, piece: Piece
    ) -> Work[tuple[Tensor, Tensor]]:
        """The summed loss of a slice, and the gradient of the last layer's output."""
        d, r = self.norm.forward(weights.norm, x)
        loss, d = yield from self._through_head(weights, gradients, d, piece)
        return loss, self.norm.backward(weights.norm, gradients.norm, x, r, d)

    def _through_head(
        self, weights: OutputWeights, gradients: OutputWeights, normed: Tensor, piece: Piece
    ) -> Work[tuple[Tensor, Tensor]]:
        """The loss, and the gradient of the normed input, which is written over."""
        labels, head, d_head = piece.labels.flatten(), weights.head, gradients.head
        if self.cell.tensor is None:
            loss = head_loss_backward(head, d_head, normed, labels, piece.scale, self.cap)
            return loss, normed
        part = yield from gather_tokens(self.cell.tokens, normed, len(labels))
        own = OwnWords(head, self.first, self.cell.tensor, self.cap)
        loss = yield from split_head_loss_backward(own, d_head, part, labels, piece.scale)
        return self._counted_once(loss), (yield from add_up_tokens(self.cell.tokens, part))

    def _counted_once(self, loss: Tensor) -> Tensor:
        """Ranks that share the vocabulary have the same loss; one of them has it counted."""
        assert self.cell.tensor is not None
        return loss if self.cell.tensor.index == 0 else torch.zeros_like(loss)

    def logits(self, weights: OutputWeights, x: Tensor) -> Tensor:
        """Scores of every word, of a rank that has the whole vocabulary."""
        return cap_alone(linear(weights.head, self.norm.forward(weights.norm, x)[0]), self.cap)
