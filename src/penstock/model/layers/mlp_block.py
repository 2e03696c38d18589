"""The gated MLP of a layer with its norms, added to the residual; the backward written out."""

from typing import NamedTuple

from torch import Tensor

from penstock.arch.config import MLP_NORM, ModelConfig
from penstock.model.layers.linear import Queue, linear, linear_backward
from penstock.model.layers.norm import RmsNorm
from penstock.model.layers.swiglu import GATES
from penstock.model.layers.views import Matrix, Views
from penstock.model.layers.way_back import NormedBack, WayBack, WayBackWeights
from penstock.model.parallel.cell import SINGLE_RANK, Cell
from penstock.model.parallel.group import Work
from penstock.model.parallel.tokens import add_up_tokens, gather_tokens, wait_for


class MlpWeights(NamedTuple):
    """Weights of an MLP and its norms, or their gradients."""

    norm: Tensor | None
    """In front of the MLP."""
    gate_up: Matrix
    down: WayBackWeights


class MlpSaved(NamedTuple):
    """What its backward needs."""

    y: Tensor
    """The input of the norm."""
    r: Tensor | None
    b: Tensor
    """The input of the MLP."""
    gate_up: Tensor
    """Gate and up, side by side."""
    gated: Tensor
    down: NormedBack | None


class MlpBlock:
    """The arithmetic of an MLP, of any width; it owns no tensor."""

    def __init__(self, config: ModelConfig, cell: Cell = SINGLE_RANK) -> None:
        self.norm, self.tokens = RmsNorm(config), cell.tokens
        self.way_back = WayBack(config, cell)
        self.gate = GATES[config.activation]
        self.norm_name, self.has_end = MLP_NORM[config.norms], config.norms != "before"

    def views(self, views: Views, prefix: str) -> MlpWeights:
        gate_up = views.matrix(f"{prefix}mlp.gate_proj", f"{prefix}mlp.up_proj")
        down = views.matrix(f"{prefix}mlp.down_proj")
        end = f"{prefix}post_feedforward_layernorm.weight"
        before = views.vector(f"{prefix}{self.norm_name}.weight") if self.norm_name else None
        behind = views.vector(end) if self.has_end else None
        return MlpWeights(before, gate_up, WayBackWeights(down, behind))

    def forward(self, weights: MlpWeights, y: Tensor, count: int) -> Work[tuple[Tensor, MlpSaved]]:
        """Of what a rank holds of so many tokens."""
        b, r = (y, None) if weights.norm is None else self.norm.forward(weights.norm, y)
        whole = yield from gather_tokens(self.tokens, b, count)
        gate_up = linear(weights.gate_up, whole)
        del whole
        gated = self.gate.forward(gate_up)
        z, down = yield from self.way_back.forward(weights.down, gated, y)
        return z, MlpSaved(y, r, b, gate_up, gated, down)

    def backward(
        self, weights: MlpWeights, gradients: MlpWeights, saved: MlpSaved, dz: Tensor, queue: Queue
    ) -> Work[Tensor]:
        """The gradient of the input; its large tensors end here."""
        count = len(saved.gated)
        given = self.way_back.through_norm(weights.down, gradients.down, saved.down, dz)
        whole = yield from gather_tokens(self.tokens, given, count)
        del given
        b, pending = self.tokens.gather(saved.b, count)
        down, d_down = weights.down.matrix, gradients.down.matrix
        d_gated = linear_backward(down, d_down, saved.gated, whole, queue)
        d_gate_up = self.gate.backward(saved.gate_up, d_gated)
        del whole, d_gated
        yield from wait_for(pending)
        part = linear_backward(weights.gate_up, gradients.gate_up, b, d_gate_up, queue)
        del b, pending, d_gate_up
        db = yield from add_up_tokens(self.tokens, part, queue.meanwhile)
        del part
        if weights.norm is None or gradients.norm is None or saved.r is None:
            return db.add_(dz)
        return self.norm.backward(weights.norm, gradients.norm, saved.y, saved.r, db, dz)
