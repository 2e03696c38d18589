"""What a rank holds that must outlive it, by names that know nothing of how the model is spread.

A rank may hold a part of a tensor, and own a range of that part. What is stored are blocks of whole
tensors, each with the place where it begins.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.arch.ownership import OwnedPart
from penstock.arch.parameter_layout import ParameterPart
from penstock.arch.parameters import EMBEDDING, HEAD
from penstock.model.io.initial_weights import initialise
from penstock.model.io.tensor_block import TensorBlock, blocks_in
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import MOMENTS

MAIN_WEIGHTS = "weights"
"""What the values of parameters are called in checkpoints, beside the names of the moments."""


class Entry(NamedTuple):
    """One parameter of this rank."""

    name: str
    """As it is stored: a tied head is a copy of the embedding."""
    part: ParameterPart
    """What this rank holds of it."""
    own: OwnedPart
    """What it owns of that part."""
    main: Tensor
    """Of what it owns, as are the moments: flat, unless it owns the whole part."""
    grad: Tensor
    """Of the whole part; empty where ranks have ranges of it that nobody has brought together."""
    moments: dict[str, Tensor]
    copy: bool
    """Whether it is stored by whoever has the original."""

    def take(self, whole: Tensor) -> None:
        """Set the main weights to what this rank owns of a whole tensor."""
        flat = whole[self.part.index].reshape(-1)
        self.main.copy_(flat[self.own.inside].view_as(self.main))


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
    """Every parameter of this rank that is trained."""
    engine.settle()
    return [
        _entry(engine, stage, name)
        for stage, weights in engine.weights.items()
        for name in weights.layout.parts
    ]


def frozen_entries(engine: Engine) -> list[Entry]:
    """Every parameter of this rank that is not trained: it has values alone, which are what is
    computed with."""
    return [
        Entry(
            EMBEDDING if _is_copy(engine, name) else name,
            own.part,
            own,
            _shaped(values, own),
            values[:0],
            {},
            copy=True,
        )
        for weights in engine.weights.values()
        for name, (own, values) in weights.frozen_entries().items()
    ]


def all_entries(engine: Engine) -> list[Entry]:
    """Every parameter of this rank."""
    return [*entries(engine), *frozen_entries(engine)]


def _entry(engine: Engine, stage: int, name: str) -> Entry:
    weights, copy = engine.weights[stage], _is_copy(engine, name)
    own = weights.own.parts[weights.layout.shared.get(name, name)]
    main, *moments = (
        _shaped(flat[weights.own.slice_in(len(flat), own)], own)
        for flat in (weights.main, *engine.optimizers[stage].moments.values())
    )
    part, whole = weights.layout.parts[name], engine.whole_gradients.get(stage)
    grad = weights.grad[:0] if whole is None else weights.named(whole)[name]
    stored = EMBEDDING if copy else name
    return Entry(stored, part, own, main, grad, dict(zip(MOMENTS, moments)), copy)


def _shaped(flat: Tensor, own: OwnedPart) -> Tensor:
    return flat.view(own.part.local_shape) if own.is_all else flat


def _is_copy(engine: Engine, name: str) -> bool:
    return name == HEAD and engine.layout.model.tied


def _is_left(engine: Engine, own: OwnedPart) -> bool:
    """Whether a part that several tensor ranks hold is left to the first of them. Where owners
    share it, tensor ranks that hold unequal shares of other parameters cut it at other places, and
    blocks that are not the same cannot be compared; otherwise all of them store it."""
    first = own.part.holders.start
    return engine.owners > 1 and engine.mesh.tensor != first


def begin(engine: Engine, seed: int) -> None:
    """Fill all weights of this rank with their initial numbers."""
    fill_initial(engine, all_entries(engine), seed)
    publish(engine)


def fill_initial(engine: Engine, wanted: Iterable[Entry], seed: int) -> None:
    """Fill some weights with their initial numbers."""
    for entry in wanted:
        whole = torch.empty(entry.part.shape)
        initialise(engine.layout.model, entry.name, whole, seed)
        entry.take(whole)


def publish(engine: Engine) -> None:
    """Compute with the main weights as they are now; all ranks do so together."""
    for weights in engine.weights.values():
        weights.publish()
        engine.sharding.gather(weights, engine.mesh)


def set_step(engine: Engine, step: int) -> None:
    """Tell the optimizer how many steps its moments have seen."""
    for optimizer in engine.optimizers.values():
        optimizer.steps = step


def _stored(engine: Engine) -> Iterator[Stored]:
    """Everything that this rank owns, as steps that are settled have left it."""
    engine.settle()
    for stage, weights in engine.weights.items():
        buffers = {MAIN_WEIGHTS: weights.main, **engine.optimizers[stage].moments}
        for kind, flat in buffers.items():
            for name, values in weights.owned(flat).items():
                own, copy = weights.own.parts[name], _is_copy(engine, name)
                blocks, elsewhere = blocks_in(own.part, values, own.offset), _is_left(engine, own)
                yield Stored(kind, EMBEDDING if copy else name, blocks, copy or elsewhere)


def to_save(engine: Engine) -> dict[str, list[TensorBlock]]:
    """Everything that this rank owns and no other stores for it: a tied head is left to whoever has
    the embedding."""
    return {f"{one.kind}/{one.name}": one.blocks for one in _stored(engine) if not one.copy}


def held(engine: Engine) -> dict[str, list[TensorBlock]]:
    """The main weights that this rank owns by name, copies left out."""
    stored = (one for one in _stored(engine) if one.kind == MAIN_WEIGHTS and not one.copy)
    return {one.name: one.blocks for one in stored}


def to_load(engine: Engine) -> dict[str, list[TensorBlock]]:
    """Everything that this rank owns; a tied head is filled as the embedding."""
    wanted: dict[str, list[TensorBlock]] = {}
    for one in _stored(engine):
        wanted.setdefault(f"{one.kind}/{one.name}", []).extend(one.blocks)
    return wanted


def settle(engine: Engine, step: int) -> None:
    """Make a rank ready after its tensors were loaded: the moments' age, and computed values, which
    may come from others that own them."""
    set_step(engine, step)
    publish(engine)
