"""What a rank holds that must outlive it, by names that know nothing of how the model is spread."""

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from penstock.arch.parameters import EMBEDDING, HEAD
from penstock.model.io.initial_weights import initialise
from penstock.run.step.engine import Engine

MOMENTS = ("exp_avg", "exp_avg_sq")


class Entry(NamedTuple):
    """One parameter of this rank."""

    name: str
    """As it is stored: a tied head is a copy of the embedding."""
    main: Tensor
    grad: Tensor
    moments: dict[str, Tensor]
    copy: bool
    """Whether it is stored by whoever has the original."""

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
        _entry(engine, stage, name, main)
        for stage, weights in engine.weights.items()
        for name, main in zip(weights.layout.parts, _given(engine, stage))
    ]


def _given(engine: Engine, stage: int) -> Iterator[Tensor]:
    """The main weights of a stage as its optimizer knows them: by the tensors it was given."""
    groups = engine.optimizers[stage].param_groups
    held = {tensor.data_ptr(): tensor for group in groups for tensor in group["params"]}
    weights = engine.weights[stage]
    for main in weights.named(weights.main).values():
        yield held[main.data_ptr()]


def _entry(engine: Engine, stage: int, name: str, main: Tensor) -> Entry:
    weights, tied = engine.weights[stage], name == HEAD and engine.layout.model.tied
    stored = EMBEDDING if tied else name
    grad = weights.named(weights.grad)[name]
    return Entry(stored, main, grad, engine.optimizers[stage].state[main], tied)


def begin(engine: Engine, seed: int) -> None:
    """Fill all weights of this rank with their initial numbers."""
    for entry in entries(engine):
        initialise(engine.layout.model, entry.name, entry.main, seed)
    publish(engine)


def publish(engine: Engine) -> None:
    """Compute with the main weights as they are now."""
    for weights in engine.weights.values():
        weights.publish()


def set_step(engine: Engine, step: int) -> None:
    """Tell the optimizer how many steps its moments have seen."""
    for optimizer in engine.optimizers.values():
        for state in optimizer.state.values():
            state["step"].fill_(float(step))


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
