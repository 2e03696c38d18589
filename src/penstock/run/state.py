"""What a rank holds that must outlive it, by names that know nothing of how the model is spread."""

from torch import Tensor

from penstock.model.initial import initialise
from penstock.model.shapes import EMBEDDING, HEAD
from penstock.run.engine import Engine

WEIGHTS, FIRST, SECOND = "weights/", "exp_avg/", "exp_avg_sq/"


def begin(engine: Engine, seed: int) -> None:
    """Fill all weights of this rank with their initial numbers."""
    for weights in engine.weights.values():
        for name, main in weights.named(weights.main).items():
            initialise(engine.plan.model, stored_name(engine, name), main, seed)
        weights.publish()


def stored_name(engine: Engine, name: str) -> str:
    """A tied head is stored as the embedding that it is a copy of."""
    return EMBEDDING if name == HEAD and engine.plan.model.tied else name


def held(engine: Engine) -> dict[str, Tensor]:
    """The main weights of this rank by name, copies left out."""
    return {
        name: main
        for weights in engine.weights.values()
        for name, main in weights.named(weights.main).items()
        if stored_name(engine, name) == name
    }


def gradients(engine: Engine) -> dict[str, Tensor]:
    """The gradients of this rank by name, copies left out."""
    return {
        name: grad
        for weights in engine.weights.values()
        for name, grad in weights.named(weights.grad).items()
        if stored_name(engine, name) == name
    }
