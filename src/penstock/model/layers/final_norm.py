"""The norm behind the last layer, where the head behind it is on all devices."""

from typing import NamedTuple

from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.parameters import LAST_NORM
from penstock.model.layers.norm import RmsNorm
from penstock.model.layers.views import Views


class NormSaved(NamedTuple):
    """What the backward needs."""

    x: Tensor
    r: Tensor


class FinalNorm:
    """The end of the last stage of a model whose head is elsewhere."""

    def __init__(self, config: ModelConfig) -> None:
        self.norm = RmsNorm(config)

    def views(self, views: Views) -> Tensor:
        return views.vector(LAST_NORM)

    def forward(self, weight: Tensor, x: Tensor) -> tuple[Tensor, NormSaved]:
        """What the head gets, and what is kept."""
        y, r = self.norm.forward(weight, x)
        return y, NormSaved(x, r)

    def backward(self, weight: Tensor, gradient: Tensor, saved: NormSaved, dy: Tensor) -> Tensor:
        """The gradient of the last layer's output."""
        return self.norm.backward(weight, gradient, saved.x, saved.r, dy)
