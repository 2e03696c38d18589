"""A layer without attention: an MLP added to the residual, as wide as its block says.

Tokens have nothing to do with each other, so a slice needs nothing of the others.
"""

from typing import Any, NamedTuple, Protocol

from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.parameters import layer_prefix
from penstock.model.layers.attend import SliceContext
from penstock.model.layers.decoder_layer import DecoderLayer
from penstock.model.layers.linear import Queue
from penstock.model.layers.mlp_block import MlpBlock, MlpSaved, MlpWeights
from penstock.model.layers.views import Views
from penstock.model.parallel.cell import SINGLE_RANK, Cell
from penstock.model.parallel.group import Work


class StageLayer(Protocol):
    """A layer of any kind."""

    attends: bool

    def views(self, views: Views) -> Any: ...

    def forward(self, weights: Any, x: Tensor, context: SliceContext) -> Work[tuple[Tensor, Any]]:
        """The layer's output, and what is kept; its `post` is that of the MLP."""
        ...

    def backward(
        self,
        weights: Any,
        gradients: Any,
        saved: Any,
        dz: Tensor,
        context: SliceContext,
        queue: Queue,
        slope: Tensor | None = None,
    ) -> Work[Tensor]:
        """The gradient of the input."""
        ...


class MlpLayerSaved(NamedTuple):
    """What the backward of a layer needs."""

    post: MlpSaved


class MlpLayer:
    """The arithmetic of a layer; it owns no tensor."""

    attends = False

    def __init__(self, config: ModelConfig, number: int, cell: Cell = SINGLE_RANK) -> None:
        self.number, self.mlp = number, MlpBlock(config, cell)

    def views(self, views: Views) -> MlpWeights:
        return self.mlp.views(views, layer_prefix(self.number))

    def forward(
        self, weights: MlpWeights, x: Tensor, context: SliceContext
    ) -> Work[tuple[Tensor, MlpLayerSaved]]:
        count = context.at.piece.tokens.numel()
        z, saved = yield from self.mlp.forward(weights, x, count)
        return z, MlpLayerSaved(saved)

    def backward(
        self,
        weights: MlpWeights,
        gradients: MlpWeights,
        saved: MlpLayerSaved,
        dz: Tensor,
        context: SliceContext,
        queue: Queue,
        slope: Tensor | None = None,
    ) -> Work[Tensor]:
        """The gradient of the input."""
        return (yield from self.mlp.backward(weights, gradients, saved.post, dz, queue))


def layer_of(config: ModelConfig, number: int, cell: Cell = SINGLE_RANK) -> StageLayer:
    """A layer of a model; `config` has the sizes of this rank's matrices."""
    kind = DecoderLayer if config.block(number).attention else MlpLayer
    return kind(config, number, cell)
