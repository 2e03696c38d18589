"""Attention that makes its queries, keys and values itself, with weights that were sent to it.

The device that runs it owns none of these weights: they come with every slice, and their gradient
goes back with that of the input. Where little is to be kept, that is the normed input and the
output of attention, of which everything else is made again: attention itself is never repeated.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from penstock.arch.attention_cut import projection_parameters
from penstock.arch.config import ModelConfig
from penstock.arch.parameter_layout import lay_out
from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.heads import Heads
from penstock.model.attention.piece import Piece
from penstock.model.layers.attend import SliceContext
from penstock.model.layers.cell_attention import CellAttention
from penstock.model.layers.linear import Queue, add_products
from penstock.model.layers.qkv_projection import (
    HeadNormsSaved,
    QkvProjection,
    QkvWeights,
    qkv_width,
    split_heads,
)
from penstock.model.layers.self_attention import rotate_heads, rotate_heads_back
from penstock.model.layers.views import Views
from penstock.model.parallel.cell import SINGLE_RANK, Cell, begun_in_cell
from penstock.model.parallel.group import Work
from penstock.model.parallel.tokens import add_up_tokens, gather_tokens
from penstock.model.stages.beside import attention_width, join_beside, split_beside, taken_over
from penstock.model.stages.context import SequenceContext
from penstock.model.stages.stage import Backward, Forward


class ProjectedSaved(NamedTuple):
    """What the backward needs."""

    given: Tensor
    """Weights of the projection and its input, as they came."""
    attention: AttentionSaved
    norms: HeadNormsSaved | None


class ProjectedLight(NamedTuple):
    """What all of it can be made again from, without attending."""

    given: Tensor
    out: Tensor
    lse: Tensor


class ProjectingAttentionStage:
    """The projection and the attention of a layer; the layer's input passes through untouched.

    What comes in is the weights of the projection, its input, and the layer's input, all flat.
    """

    def __init__(
        self,
        config: ModelConfig,
        whole: ModelConfig,
        layer: int,
        length: int,
        like: Tensor,
        cell: Cell = SINGLE_RANK,
    ) -> None:
        """`config` has the heads of this rank's matrices, `whole` those of all ranks that share
        them, `layer` is its number, `length` the longest sequence it will see, `like` has its type
        and device."""
        self.config, self.cell = config, cell
        self.context = SequenceContext(config, range(layer, layer + 1), length, like, cell)
        self.attention, self.projection = CellAttention(config, cell), QkvProjection(config, cell)
        sent, ranks = projection_parameters(whole), cell.tensor
        place = (ranks.index, ranks.size) if ranks else (0, 1)
        self.layout = lay_out({each.name: each for each in sent}, *place)

    def views(self, flat: Tensor, frozen: Tensor | None = None) -> None:
        """There are no weights that stay."""
        return

    @begun_in_cell
    @torch.no_grad()
    def forward(self, weights: None, piece: Piece, x: Tensor | None, kv: Any) -> Work[Forward]:
        memory = self.context.memory(piece, kv)
        out, saved = yield from self._attend(piece, x, memory)
        return out, saved, memory

    @begun_in_cell
    @torch.no_grad()
    def forward_light(
        self, weights: None, piece: Piece, x: Tensor | None, kv: Any
    ) -> Work[Forward]:
        memory = self.context.memory(piece, kv)
        out, saved = yield from self._attend(piece, x, memory)
        light = ProjectedLight(saved.given, saved.attention.out, saved.attention.lse)
        return out, light, memory

    evaluate = forward_light

    @begun_in_cell
    @torch.no_grad()
    def recompute(
        self, weights: None, piece: Piece, ckpt: ProjectedLight, kv: Any
    ) -> Work[ProjectedSaved]:
        context = self.context.of_slice(piece, kv, written=True)(0)
        heads, norms = yield from self._heads(ckpt.given, context)
        saved = yield from self.attention.restored(heads, ckpt.out, ckpt.lse, context)
        return ProjectedSaved(ckpt.given, saved, norms)

    @begun_in_cell
    @torch.no_grad()
    def backward(
        self,
        weights: None,
        gradients: None,
        piece: Piece,
        act: ProjectedSaved,
        g: Tensor | None,
        kv: Any,
        dkv: Any,
    ) -> Work[Backward]:
        """The gradients of all that came in; those of the weights are added up by their owner."""
        if kv is not None and dkv is None:
            dkv = kv.open_gradients()
        d_attended, beside = split_beside(g, piece, attention_width(self.config))
        context = self.context.of_slice(piece, kv, written=True)(0)
        d_heads = yield from self.attention.backward(d_attended, act.attention, context)
        d = d_attended.new_empty((len(d_attended), qkv_width(self.config)))
        rotate_heads_back(d_heads, context, split_heads(self.config, d, piece.rows))
        del d_heads
        if kv is not None and piece.slice == 0:
            kv.close_gradients()
        d_weights, da = yield from self._projection_gradient(act, d, piece)
        return torch.cat((d_weights, da.flatten(), beside)), dkv, None, None

    input_gradient = backward

    def weight_gradient(self, gradients: None, piece: Piece, stash: Any) -> None:
        raise AssertionError("the weights are another stage's")

    def _attend(
        self, piece: Piece, x: Tensor | None, memory: Any
    ) -> Work[tuple[Tensor, ProjectedSaved]]:
        assert x is not None  # attention stands between two stages
        passing = (len(x) + self.layout.elements) // 2  # a rank may have no token
        given = x[:passing].clone()  # a view would keep what goes past attention
        context = self.context.of_slice(piece, memory, written=False)(0)
        heads, norms = yield from self._heads(given, context)
        attended, saved = yield from self.attention.forward(heads, context)
        return join_beside(attended, x[passing:]), ProjectedSaved(given, saved, norms)

    def _heads(
        self, given: Tensor, context: SliceContext
    ) -> Work[tuple[Heads, HeadNormsSaved | None]]:
        """Rotated queries, keys and values."""
        piece = context.at.piece
        a = yield from self._input(given, piece)
        heads, norms = yield from self.projection.forward(self._weights(given), a, piece.rows)
        if norms is None and context.at.memory is None:
            heads = heads._replace(v=heads.v.contiguous())  # a view would keep the whole product
        return rotate_heads(heads, context), norms

    def _projection_gradient(
        self, act: ProjectedSaved, d: Tensor, piece: Piece
    ) -> Work[tuple[Tensor, Tensor]]:
        """Those of the weights as they lie, and that of the input as it was handed on."""
        found, queue = d.new_zeros(self.layout.elements), Queue()
        views = Views(self.layout, found)
        gradients, weights = self.projection.views(views, _PREFIX), self._weights(act.given)
        a = yield from self._input(act.given, piece)
        part = yield from self.projection.backward(
            weights, gradients, a, act.norms, d, piece.rows, queue
        )
        add_products(views.matrices, queue)
        da = yield from add_up_tokens(self.cell.tokens, part)
        return found, self.cell.tokens.hand_on(da)

    def _weights(self, given: Tensor) -> QkvWeights:
        return self.projection.views(Views(self.layout, given[: self.layout.elements]), _PREFIX)

    def _input(self, given: Tensor, piece: Piece) -> Work[Tensor]:
        """The normed input of all tokens of this rank's blocks."""
        handed, hidden = given[self.layout.elements :], self.config.hidden
        held = yield from taken_over(self.cell, handed, hidden, piece)
        return (yield from gather_tokens(self.cell.tokens, held, piece.tokens.numel()))


_PREFIX = "self_attn."
"""What the names of the projection's parameters begin with."""
