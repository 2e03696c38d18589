"""What a rank holds that must outlive it, by names that know nothing of how the model is spread.

A rank may hold a part of a tensor. What is stored are blocks of whole tensors, each with the place
where it begins.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.arch.parameter_layout import ParameterPart
from penstock.arch.parameters import EMBEDDING, HEAD
from penstock.model.io.initial_weights import initialise
from penstock.model.io.tensor_block import TensorBlock, blocks_in
from penstock.run.step.engine import Engine

MAIN_WEIGHTS = "weights"
"""What the values of parameters are called in checkpoints, beside the names of the moments."""


class Entry(NamedTuple):
    """One parameter of this rank."""

    name: str
    """As it is stored: a tied head is a copy of the embedding."""
    part: ParameterPart
    """What this rank holds of it."""
    main: Tensor
    grad: Tensor
    moments: dict[str, Tensor]
    copy: bool
    """Whether it is stored by whoever has the original."""

    def take(self, whole: Tensor) -> None:
        """Set the main weights to this rank's part of a whole tensor."""
        self.main.copy_(whole[self.part.index])


class Stored(NamedTuple):
    """One tensor of this rank as checkpoints know it."""

    kind: str
    """Weights, or a moment."""
    name: str
    blocks: list[TensorBlock]
    copy: bool


def weight_key(name: str) -> str:
    """The name of a parameter's values in checkpoints."""
    return f"{MAIN_WEIGHTS}/{name}"


def entries(engine: Engine) -> list[Entry]:
    """Every parameter of this rank."""
    return [
        _entry(engine, stage, name)
        for stage, weights in engine.weights.items()
        for name in weights.layout.parts
    ]


def _entry(engine: Engine, stage: int, name: str) -> Entry:
    weights, copy = engine.weights[stage], _is_copy(engine, name)
    main, grad = (weights.named(flat)[name] for flat in (weights.main, weights.grad))
    moments = {
        moment: weights.named(flat)[name]
        for moment, flat in engine.optimizers[stage].moments.items()
    }
    part = weights.layout.parts[name]
    return Entry(EMBEDDING if copy else name, part, main, grad, moments, copy)


def _is_copy(engine: Engine, name: str) -> bool:
    return name == HEAD and engine.layout.model.tied


def begin(engine: Engine, seed: int) -> None:
    """Fill all weights of this rank with their initial numbers."""
    for entry in entries(engine):
        whole = torch.empty(entry.part.shape)
        initialise(engine.layout.model, entry.name, whole, seed)
        entry.take(whole)
    publish(engine)


def publish(engine: Engine) -> None:
    """Compute with the main weights as they are now."""
    for weights in engine.weights.values():
        weights.publish()


def set_step(engine: Engine, step: int) -> None:
    """Tell the optimizer how many steps its moments have seen."""
    for optimizer in engine.optimizers.values():
        optimizer.steps = step


def _stored(engine: Engine) -> Iterator[Stored]:
    """Everything of this rank that has memory of its own."""
    for stage, weights in engine.weights.items():
        buffers = {MAIN_WEIGHTS: weights.main, **engine.optimizers[stage].moments}
        for name, part in weights.layout.distinct.items():
            copy = _is_copy(engine, name)
            for kind, flat in buffers.items():
                yield Stored(kind, EMBEDDING if copy else name, blocks_in(part, flat), copy)


def to_save(engine: Engine) -> dict[str, list[TensorBlock]]:
    """Everything of this rank; a tied head is left to whoever has the embedding."""
    return {f"{one.kind}/{one.name}": one.blocks for one in _stored(engine) if not one.copy}


def held(engine: Engine) -> dict[str, list[TensorBlock]]:
    """The main weights of this rank by name, copies left out."""
    stored = (one for one in _stored(engine) if one.kind == MAIN_WEIGHTS and not one.copy)
    return {one.name: one.blocks for one in stored}


def to_load(engine: Engine) -> dict[str, list[TensorBlock]]:
    """Everything of this rank; a tied head is filled as the embedding."""
    wanted: dict[str, list[TensorBlock]] = {}
    for one in _stored(engine):
        wanted.setdefault(f"{one.kind}/{one.name}", []).extend(one.blocks)
    return wanted


def settle(engine: Engine, step: int) -> None:
    """Make a rank ready after its tensors were loaded: the moments' age, and computed values."""
    set_step(engine, step)
    publish(engine)
