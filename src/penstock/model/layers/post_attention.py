"""What follows attention in a layer: the projection that leads back, and the MLP.

Norms stand in front of the MLP, behind the projection and the MLP, or in both places, as the model
has them.
"""

from typing import NamedTuple

from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.parameters import layer_prefix
from penstock.model.layers.linear import Queue, linear_backward
from penstock.model.layers.mlp_block import MlpBlock, MlpSaved, MlpWeights
from penstock.model.layers.views import Views
from penstock.model.layers.way_back import NormedBack, WayBack, WayBackWeights
from penstock.model.parallel.cell import SINGLE_RANK, Cell
from penstock.model.parallel.group import Work
from penstock.model.parallel.tokens import gather_tokens


class PostAttentionWeights(NamedTuple):
    """Weights behind attention, or their gradients."""

    out: WayBackWeights
    mlp: MlpWeights


class PostAttentionSaved(NamedTuple):
    """What its backward needs, beside the output of attention."""

    out: NormedBack | None
    mlp: MlpSaved


class PostAttention:
    """The second part of a layer."""

    def __init__(self, config: ModelConfig, cell: Cell = SINGLE_RANK) -> None:
        self.tokens, self.has_end = cell.tokens, config.norms != "before"
        self.way_back, self.mlp = WayBack(config, cell), MlpBlock(config, cell)

    def views(self, views: Views, layer: int) -> PostAttentionWeights:
        prefix = layer_prefix(layer)
        matrix = views.matrix(f"{prefix}self_attn.o_proj")
        end = f"{prefix}post_attention_layernorm.weight"
        out = WayBackWeights(matrix, views.vector(end) if self.has_end else None)
        return PostAttentionWeights(out, self.mlp.views(views, prefix))

    def forward(
        self, weights: PostAttentionWeights, attended: Tensor, x: Tensor
    ) -> Work[tuple[Tensor, PostAttentionSaved]]:
        """The layer's output, of that of attention and the layer's input."""
        y, out = yield from self.way_back.forward(weights.out, attended, x)
        z, mlp = yield from self.mlp.forward(weights.mlp, y, len(attended))
        return z, PostAttentionSaved(out, mlp)

    def backward(
        self,
        weights: PostAttentionWeights,
        gradients: PostAttentionWeights,
        attended: Tensor,
        saved: PostAttentionSaved,
        dz: Tensor,
        queue: Queue,
        slope: Tensor | None = None,
    ) -> Work[tuple[Tensor, Tensor]]:
        """The gradients of the output of attention and, past it, of the layer's input."""
        dy = yield from self.mlp.backward(weights.mlp, gradients.mlp, saved.mlp, dz, queue)
        given = self.way_back.through_norm(weights.out, gradients.out, saved.out, dy)
        whole = yield from gather_tokens(self.tokens, given, len(attended))
        d = linear_backward(weights.out.matrix, gradients.out.matrix, attended, whole, queue)
        return d, dy
