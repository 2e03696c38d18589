"""A model walked block by block, so that blocks can be left out, put in another order or summed up.

A block that is left out is the identity on the residual stream. Weights are those of one process.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.parameters import EMBEDDING, HEAD, stage_layout, stage_parameters
from penstock.data import Microbatch
from penstock.model.attention.piece import Piece, pieces_of
from penstock.model.layers.attend import SliceContext
from penstock.model.layers.mlp_block import MlpBlock
from penstock.model.parallel.cell import result_of
from penstock.model.stages.decoder import DecoderStage
from penstock.model.stages.weights import Weights


class ResidualStream:
    """A model with its weights, for sequences up to a length."""

    def __init__(self, model: ModelConfig, tensors: Mapping[str, Tensor], length: int) -> None:
        own = stage_layout(model, stage_parameters(model, range(model.layers), 0, 1))
        like = tensors[EMBEDDING]
        held = Weights.empty(own, dtype=like.dtype, main=like.dtype, device=like.device)
        for name, place in held.named(held.value).items():
            place.copy_(tensors[EMBEDDING if name == HEAD and model.tied else name])
        self.model = model
        self.stage = DecoderStage(model, range(model.layers), own, length=length, like=like)
        self.weights = self.stage.views(held.value)

    @torch.no_grad()
    def first(self, sequence: "Sequence") -> Tensor:
        """What the first block is given, [tokens, hidden]."""
        assert self.weights.embedding is not None
        embedded = self.stage.embedding.forward(self.weights.embedding, sequence.piece.tokens)
        return result_of(embedded)

    @torch.no_grad()
    def block(self, layer: int, x: Tensor, sequence: "Sequence") -> Tensor:
        """What a block makes of the residual stream."""
        context = sequence.context(self, layer)
        own = self.weights.layers[layer]
        y, _ = result_of(self.stage.layers[layer].forward(own, x, context))
        return y

    @torch.no_grad()
    def mlp_alone(self, layer: int, x: Tensor, sequence: "Sequence") -> Tensor:
        """What a block makes of it without its attention."""
        own = self.weights.layers[layer].post.mlp
        y, _ = result_of(MlpBlock(self.model).forward(own, x, sequence.piece.tokens.numel()))
        return y

    def through(self, layers: Iterable[int], x: Tensor, sequence: "Sequence") -> Tensor:
        """What some blocks make of it, one behind the other."""
        for layer in layers:
            x = self.block(layer, x, sequence)
        return x

    @torch.no_grad()
    def loss(self, x: Tensor, sequence: "Sequence") -> float:
        """The summed loss of what the last block gives."""
        assert self.stage.output is not None
        assert self.weights.output is not None
        return float(result_of(self.stage.output.loss(self.weights.output, x, sequence.piece)))


class Sequence:
    """One microbatch, whole."""

    def __init__(self, microbatch: Microbatch) -> None:
        self.piece: Piece = pieces_of(0, microbatch, (microbatch.length,), 1.0)[0]
        self.labels = microbatch.valid

    def context(self, stream: ResidualStream, layer: int) -> SliceContext:
        return stream.stage.context.of_slice(self.piece, None, written=False)(layer)


def mean_loss(
    stream: ResidualStream, data: Iterable[Sequence], order: Iterable[int] | None = None
) -> float:
    """The loss of a label on average; with an order of blocks, of the model that has it."""
    layers = [*range(stream.model.layers)] if order is None else [*order]
    total, labels = 0.0, 0
    for sequence in data:
        y = stream.through(layers, stream.first(sequence), sequence)
        total, labels = total + stream.loss(y, sequence), labels + sequence.labels
    return total / labels
