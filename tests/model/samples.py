"""Stages of a small model in one process, with the weights that the judge of `verify` has too."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.parameters import EMBEDDING, HEAD
from penstock.data.batch import IGNORE, Microbatch
from penstock.model.stages.decoder import DecoderStage
from penstock.model.stages.piece import Piece, pieces_of
from penstock.model.stages.stage import Backward
from penstock.model.stages.weights import Sizes, Weights
from penstock.run.program.plan import RunPlan
from penstock.schedules import build
from penstock.verify.material import parameters_of

CPU = torch.device("cpu")
EXACT = 1e-12
VOCABULARY = 23


def tiny(layers: int = 2, **more: bool) -> ModelConfig:
    """A model with grouped heads, none of whose sizes are equal, and norms unlike the usual."""
    sizes = (layers, 12, 20, 4, 2, 6, VOCABULARY)
    return ModelConfig(*sizes, norm_epsilon=1e-2, **more)  # type: ignore[arg-type]


def random_weights(sizes: Sizes, dtype: torch.dtype = torch.float64) -> Weights:
    """Weights of these sizes, filled with numbers around 0, or around 1 for vectors."""
    main = torch.promote_types(dtype, torch.float32)
    weights = Weights.empty(sizes, dtype=dtype, main=main, device=CPU)
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


def stages_of(
    model: ModelConfig,
    layers: Sequence[int],
    length: int,
    dtype: torch.dtype = torch.float64,
) -> list[DecoderStage]:
    """One stage for each number of layers."""
    plan = RunPlan(
        model,
        build("gpipe", devices=len(layers), microbatches=1),
        ((length,),),
        tuple(layers),
        dtype,
    )
    values = parameters_of(model, plan.main)
    found = []
    for stage, own in enumerate(plan.split):
        weights = Weights.empty(plan.sizes(stage), dtype=dtype, main=plan.main, device=CPU)
        for name, main in weights.named(weights.main).items():
            main.copy_(values[EMBEDDING if name == HEAD and model.tied else name])
        weights.publish()
        found.append(DecoderStage(model, own, weights, length))
    return found


BackwardOf = Callable[[DecoderStage, Piece, object, Tensor | None, object, object], Backward]


def whole_backward(
    stage: DecoderStage, piece: Piece, act: object, g: Tensor | None, kv: object, dkv: object
) -> Backward:
    return stage.backward(piece, act, g, kv, dkv)


def split_backward(
    stage: DecoderStage, piece: Piece, act: object, g: Tensor | None, kv: object, dkv: object
) -> Backward:
    """The input gradient, then the weight gradient."""
    found = stage.input_gradient(piece, act, g, kv, dkv)
    stage.weight_gradient(piece, found[2])
    return found


def again_backward(
    stage: DecoderStage, piece: Piece, ckpt: object, g: Tensor | None, kv: object, dkv: object
) -> Backward:
    """From what a light forward has kept."""
    return stage.backward(piece, stage.recompute(piece, ckpt, kv), g, kv, dkv)


def train(
    stages: Sequence[DecoderStage], pieces: Sequence[Piece], backward: BackwardOf = whole_backward
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
    losses = [float(loss) for loss in inputs if loss is not None]
    upstream: list[Tensor | None] = [None] * len(pieces)
    for stage, kv in zip(reversed(stages), reversed(memories)):
        kept, dkv = acts.pop(), None
        for piece in reversed(pieces):
            g = upstream[piece.slice]
            upstream[piece.slice], dkv, _ = backward(stage, piece, kept.pop(), g, kv, dkv)
    return sum(losses)


def gradients(stages: Sequence[DecoderStage]) -> dict[str, Tensor]:
    """By name; of a tied weight the sum of its two ends, as a step makes it."""
    found: dict[str, Tensor] = {}
    for stage in stages:
        for name, grad in stage.weights.named(stage.weights.grad).items():
            found[name] = grad
    if stages[0].config.tied:
        found[EMBEDDING] = found[EMBEDDING] + found.pop(HEAD)
    return found
