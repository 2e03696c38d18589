"""What a rank holds that must outlive it, by names that know nothing of how the model is spread."""

from typing import NamedTuple

from torch import Tensor

from penstock.arch.ownership import OwnedPart
from penstock.arch.parameters import EMBEDDING, HEAD
from penstock.model.io.initial_weights import initialise
from penstock.run.step.engine import Engine
from penstock.run.step.optimizer import MOMENTS


class Entry(NamedTuple):
    """One parameter of this rank."""

    name: str
    """As it is stored: a tied head is a copy of the embedding."""
    own: OwnedPart
    """What this rank owns of it."""
    main: Tensor
    """Of what it owns, as are the moments: flat, unless it owns all that the stage has."""
    grad: Tensor
    """Of all that the stage has."""
    moments: dict[str, Tensor]
    copy: bool
    """Whether it is stored by whoever has the original."""

    def take(self, whole: Tensor) -> None:
        """Set the main weights to what is owned of a tensor of the stage."""
        self.main.copy_(whole.reshape(-1)[self.own.inside].view_as(self.main))

    def stored(self) -> dict[str, Tensor]:
        """Weight and moments under the names that checkpoints know."""
        kept = {f"{moment}/{self.name}": self.moments[moment] for moment in MOMENTS}
        return {weight_key(self.name): self.main, **kept}


def weight_key(name: str) -> str:
    """The name of a parameter's values in checkpoints."""
    return f"weights/{name}"


def entries(engine: Engine) -> list[Entry]:
    """Every parameter of this rank."""
    return [
        _entry(engine, stage, name)
        for stage, weights in engine.weights.items()
        for name in weights.layout.parts
    ]


def _entry(engine: Engine, stage: int, name: str) -> Entry:
    weights, tied = engine.weights[stage], name == HEAD and engine.layout.model.tied
    own = weights.own.parts[weights.layout.shared.get(name, name)]
    main, *moments = (
        _shaped(flat[weights.own.slice_in(len(flat), own)], own)
        for flat in (weights.main, *engine.optimizers[stage].moments.values())
    )
    grad = weights.named(weights.grad)[name]
    stored = EMBEDDING if tied else name
    return Entry(stored, own, main, grad, dict(zip(MOMENTS, moments)), tied)


def _shaped(flat: Tensor, own: OwnedPart) -> Tensor:
    return flat.view(own.part.local_shape) if own.is_all else flat


def begin(engine: Engine, seed: int) -> None:
    """Fill all weights of this rank with their initial numbers."""
    for entry in entries(engine):
        whole = entry.main.new_empty(entry.own.part.local_shape)
        initialise(engine.layout.model, entry.name, whole, seed)
        entry.take(whole)
    publish(engine)


def publish(engine: Engine) -> None:
    """Compute with the main weights as they are now; all ranks do so together."""
    for weights in engine.weights.values():
        weights.publish()
        engine.sharding.gather(weights, engine.mesh)


def set_step(engine: Engine, step: int) -> None:
    """Tell the optimizer how many steps its moments have seen."""
    for optimizer in engine.optimizers.values():
        optimizer.steps = step


def to_save(engine: Engine) -> dict[str, Tensor]:
    """Everything of this rank that nobody else stores."""
    return {
        key: tensor
        for entry in entries(engine)
        if not entry.copy
        for key, tensor in entry.stored().items()
    }


def held(engine: Engine) -> dict[str, Tensor]:
    """The main weights of this rank by name, copies left out."""
    return {entry.name: entry.main for entry in entries(engine) if not entry.copy}


def to_load(engine: Engine) -> dict[str, Tensor]:
    """Everything of this rank, copies too; where it has original and copy, the original."""
    wanted: dict[str, Tensor] = {}
    for entry in entries(engine):
        wanted = {**entry.stored(), **wanted}
    return wanted


def settle(engine: Engine, step: int) -> None:
    """Make a rank whole after its tensors were loaded: copies, moments' age, computed values."""
    originals = {entry.name: entry for entry in entries(engine) if not entry.copy}
    for entry in entries(engine):
        if entry.copy and entry.name in originals:
            for mine, theirs in zip(
                entry.stored().values(), originals[entry.name].stored().values()
            ):
                mine.copy_(theirs)
    set_step(engine, step)
    publish(engine)
