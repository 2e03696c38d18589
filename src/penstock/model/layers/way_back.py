"""The end of a block: a matrix that leads back to the residual, and a norm behind it in models that
have one there. That norm needs the whole sum of ranks that share the matrix."""

from typing import NamedTuple

from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.model.layers.linear import linear, linear_add
from penstock.model.layers.norm import RmsNorm
from penstock.model.layers.views import Matrix
from penstock.model.parallel.cell import Cell
from penstock.model.parallel.group import Work
from penstock.model.parallel.tokens import add_up_tokens


class WayBackWeights(NamedTuple):
    """The matrix and the norm behind it where there is one; or their gradients."""

    matrix: Matrix
    norm: Tensor | None


class NormedBack(NamedTuple):
    """What a norm behind a matrix keeps."""

    x: Tensor
    r: Tensor


class WayBack:
    """Adds what a block gives to the residual."""

    def __init__(self, config: ModelConfig, cell: Cell) -> None:
        self.norm, self.tokens = RmsNorm(config), cell.tokens

    def forward(
        self, weights: WayBackWeights, x: Tensor, residual: Tensor
    ) -> Work[tuple[Tensor, NormedBack | None]]:
        """The residual plus what a block gives, and what the norm behind it keeps."""
        if weights.norm is None:
            return (yield from linear_add(weights.matrix, x, residual, self.tokens)), None
        given = yield from add_up_tokens(self.tokens, linear(weights.matrix, x))
        normed, r = self.norm.forward(weights.norm, given)
        return normed.add_(residual), NormedBack(given, r)

    def through_norm(
        self,
        weights: WayBackWeights,
        gradients: WayBackWeights,
        saved: NormedBack | None,
        d: Tensor,
    ) -> Tensor:
        """The gradient of what the matrix gave, where a norm follows it."""
        if weights.norm is None or gradients.norm is None or saved is None:
            return d
        return self.norm.backward(weights.norm, gradients.norm, saved.x, saved.r, d)
