"""The second part of a layer, whatever its MLP is: one, or several that tokens choose from."""

from typing import Any, Protocol

from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.model.layers.expert_post_attention import ExpertPostAttention
from penstock.model.layers.linear import Queue
from penstock.model.layers.post_attention import PostAttention
from penstock.model.layers.views import Views
from penstock.model.parallel.cell import SINGLE_RANK, Cell
from penstock.model.parallel.group import Work


class LayerEnd(Protocol):
    """What follows attention in a layer."""

    def views(self, views: Views, layer: int) -> Any: ...

    def forward(self, weights: Any, attended: Tensor, x: Tensor) -> Work[tuple[Tensor, Any]]:
        """The layer's output, of that of attention and the layer's input, and what is kept."""
        ...

    def backward(
        self,
        weights: Any,
        gradients: Any,
        attended: Tensor,
        saved: Any,
        dz: Tensor,
        queue: Queue,
        slope: Tensor | None = None,
    ) -> Work[tuple[Tensor, Tensor]]:
        """The gradients of the output of attention and, past it, of the layer's input; `slope` is
        that of the auxiliary loss of experts with respect to their probabilities."""
        ...


def layer_end(config: ModelConfig, cell: Cell = SINGLE_RANK) -> LayerEnd:
    """The second part of a model's layers."""
    return (PostAttention if config.mixture is None else ExpertPostAttention)(config, cell)
