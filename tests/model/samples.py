"""Stages of a small model in one process, with the weights that the judge of `verify` has too."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.layers.parameter import Parameter
from penstock.arch.parameter_layout import lay_out
from penstock.arch.parameters import EMBEDDING, HEAD, Shapes
from penstock.data.batch import IGNORE, Microbatch
from penstock.model.attention.piece import Piece, pieces_of
from penstock.model.stages.stage import Backward, Forward, Stage
from penstock.model.stages.weights import Weights
from penstock.run.program.layout import Layout
from penstock.run.step.stages import empty_weights, stage_of
from penstock.schedules import build
from penstock.verify.material import parameters_of

CPU = torch.device("cpu")
EXACT = 1e-12
VOCABULARY = 23


def tiny(layers: int = 2, **more: bool) -> ModelConfig:
    """A model with grouped heads, none of whose sizes are equal, and norms unlike the usual."""
    sizes = (layers, 12, 20, 4, 2, 6, VOCABULARY)
    return ModelConfig(*sizes, norm_epsilon=1e-2, **more)  # type: ignore[arg-type]


def random_weights(shapes: Shapes, dtype: torch.dtype = torch.float64) -> Weights:
    """Weights of these shapes, filled with numbers around 0, or around 1 for vectors."""
    main = torch.promote_types(dtype, torch.float32)
    layout = lay_out({name: Parameter(name, shape) for name, shape in shapes.items()})
    weights = Weights.empty(layout, dtype=dtype, main=main, device=CPU)
    for tensor in weights.named(weights.main).values():
        tensor.normal_(float(tensor.ndim == 1), 0.5)
    weights.publish()
    return weights


def relative(found: Tensor, expected: Tensor) -> float:
    """The size of the difference over that of what is expected."""
    difference = (found.double() - expected.double()).norm()
    return float(difference / expected.double().norm().clamp(min=1e-30))


def microbatch_of(documents: Sequence[Sequence[int]], length: int) -> Microbatch:
    """Random tokens; the last label of each document does not count, nor do two others."""
    tokens = torch.randint(VOCABULARY, (len(documents), length))
    labels = tokens.roll(-1, 1)
    for row, starts in enumerate(documents):
        labels[row, [start - 1 for start in starts]] = IGNORE
        labels[row, length // 3 : length // 3 + 2] = IGNORE
    return Microbatch(tokens, labels, tuple(map(tuple, documents)))


def cut(microbatch: Microbatch, lengths: Sequence[int]) -> tuple[Piece, ...]:
    return pieces_of(0, microbatch, lengths, 1 / max(microbatch.valid, 1))


class Held(NamedTuple):
    """A stage with buffers of its own, called without naming them."""

    stage: Stage
    weights: Weights
    value: Any
    grad: Any

    @classmethod
    def of(cls, stage: Stage, weights: Weights) -> "Held":
        return cls(stage, weights, stage.views(weights.value), stage.views(weights.grad))

    def forward(self, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        return self.stage.forward(self.value, piece, x, kv)

    def forward_light(self, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        return self.stage.forward_light(self.value, piece, x, kv)

    def evaluate(self, piece: Piece, x: Tensor | None, kv: Any) -> Forward:
        return self.stage.evaluate(self.value, piece, x, kv)

    def recompute(self, piece: Piece, ckpt: Any, kv: Any) -> Any:
        return self.stage.recompute(self.value, piece, ckpt, kv)

    def input_gradient(
        self, piece: Piece, act: Any, g: Tensor | None, kv: Any, dkv: Any
    ) -> Backward:
        return self.stage.input_gradient(self.value, self.grad, piece, act, g, kv, dkv)

    def backward(self, piece: Piece, act: Any, g: Tensor | None, kv: Any, dkv: Any) -> Backward:
        return self.stage.backward(self.value, self.grad, piece, act, g, kv, dkv)

    def weight_gradient(self, piece: Piece, stash: Any) -> None:
        self.stage.weight_gradient(self.grad, piece, stash)


def fill(weights: Weights, model: ModelConfig) -> None:
    """Give a stage the weights that the judge has."""
    values = parameters_of(model, weights.main.dtype)
    for name, main in weights.named(weights.main).items():
        main.copy_(values[EMBEDDING if name == HEAD and model.tied else name])
    weights.publish()


def stages_of(
    model: ModelConfig,
    layers: Sequence[int],
    length: int,
    dtype: torch.dtype = torch.float64,
) -> list[Held]:
    """One stage for each number of layers."""
    schedule = build("gpipe", devices=len(layers), microbatches=1)
    layout = Layout.of(model, schedule, length, layers=layers, dtype=dtype)
    found = []
    for stage in range(len(layers)):
        weights = empty_weights(layout, stage, CPU)
        fill(weights, model)
        found.append(Held.of(stage_of(layout, stage, CPU), weights))
    return found


BackwardOf = Callable[[Held, Piece, object, Tensor | None, object, object], Backward]


def whole_backward(
    stage: Held, piece: Piece, act: object, g: Tensor | None, kv: object, dkv: object
) -> Backward:
    return stage.backward(piece, act, g, kv, dkv)


def split_backward(
    stage: Held, piece: Piece, act: object, g: Tensor | None, kv: object, dkv: object
) -> Backward:
    """The input gradient, then the weight gradient."""
    found = stage.input_gradient(piece, act, g, kv, dkv)
    stage.weight_gradient(piece, found[2])
    return found


def again_backward(
    stage: Held, piece: Piece, ckpt: object, g: Tensor | None, kv: object, dkv: object
) -> Backward:
    """From what a light forward has kept."""
    return stage.backward(piece, stage.recompute(piece, ckpt, kv), g, kv, dkv)


def train(
    stages: Sequence[Held], pieces: Sequence[Piece], backward: BackwardOf = whole_backward
) -> float:
    """The summed loss of a microbatch; every stage has added its gradients."""
    acts: list[list[object]] = []
    inputs: list[Tensor | None] = [None] * len(pieces)
    memories = []
    for stage in stages:
        light = backward is again_backward
        acts.append([])
        kv = None
        for piece in pieces:
            run = stage.forward_light if light else stage.forward
            inputs[piece.slice], act, kv = run(piece, inputs[piece.slice], kv)
            acts[-1].append(act)
        memories.append(kv)
    losses = []
    upstream: list[Tensor | None] = [None] * len(pieces)
    for stage, kv in zip(reversed(stages), reversed(memories)):
        kept, dkv = acts.pop(), None
        for piece in reversed(pieces):
            g = upstream[piece.slice]
            upstream[piece.slice], dkv, _, loss = backward(stage, piece, kept.pop(), g, kv, dkv)
            losses += [] if loss is None else [float(loss)]
    return sum(losses)


def gradients(stages: Sequence[Held], tied: bool) -> dict[str, Tensor]:
    """By name; of a tied weight the sum of its two ends, as a step makes it."""
    found: dict[str, Tensor] = {}
    for stage in stages:
        for name, grad in stage.weights.named(stage.weights.grad).items():
            found[name] = grad
    if tied:
        found[EMBEDDING] = found[EMBEDDING] + found.pop(HEAD)
    return found
