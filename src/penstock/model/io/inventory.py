"""Whether a set of stored tensors is the model that a config describes, tensor by tensor."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from penstock.arch.config import ModelConfig
from penstock.arch.layers.parameter import TensorShape
from penstock.arch.parameters import EMBEDDING, HEAD, Shapes
from penstock.errors import ShapeError, nearest, shown
from penstock.model.io.fused_tensors import stored_shapes

SHOWN = 3
"""Names that a message spells out; a wrong config can make hundreds differ."""


def refuse_names(where: Path, config: ModelConfig, held: Iterable[str]) -> None:
    """Refuse a set that lacks tensors, or has some that the config does not speak of.

    Old files also hold the rotary frequencies, which follow from the config; a tied model may
    hold its head again.
    """
    found = {name for name in held if not name.endswith(".rotary_emb.inv_freq")}
    expected = set(stored_shapes(config))
    missing = sorted(expected - found)
    unexpected = sorted(found - expected - ({HEAD} if config.tied else set()))
    if missing:
        raise ShapeError(
            f"{where} lacks {_some(missing)} of the {len(expected)} tensors of its model",
            hint=_instead(unexpected) or "store the whole model, or correct its config",
        )
    if unexpected:
        raise ShapeError(
            f"{where} has {_some(unexpected)}, which its model does not have",
            hint="an unused tensor would change the result: correct the config",
        )


def refuse_wanted(wanted: Sequence[str], shapes: Shapes) -> None:
    """Refuse names that are no parameters of the model."""
    strange = [name for name in wanted if name not in shapes]
    if strange:
        raise ShapeError(
            f"the model has no {_some(strange)}", hint=nearest(strange[0], list(shapes)[:SHOWN])
        )


def refuse_shape(where: Path, name: str, found: TensorShape, expected: TensorShape) -> None:
    """Refuse a tensor of another shape than the config gives it."""
    if found != expected:
        raise ShapeError(
            f"{where}: {name} is {_by(found)}, but the config makes it {_by(expected)}",
            hint="the file and the config are not of one model",
        )


def refuse_other_head(where: Path, embedding: Tensor, head: Tensor) -> None:
    """Refuse a head that is stored beside the embedding it is tied to, and differs from it."""
    if embedding.dtype != head.dtype or not torch.equal(embedding, head):
        raise ShapeError(
            f"{where}: {HEAD} is not equal to {EMBEDDING}, but the config ties them",
            hint="set tie_word_embeddings to false in config.json, or leave the head out",
        )


def _instead(unexpected: Sequence[str]) -> str:
    return f"instead it has {_some(unexpected)}" if unexpected else ""


def _some(names: Sequence[str]) -> str:
    some = ", ".join(shown(name)[1:-1] for name in names[:SHOWN])
    return some if len(names) <= SHOWN else f"{some} and {len(names) - SHOWN} more"


def _by(shape: TensorShape) -> str:
    return " x ".join(map(str, shape)) or "a single number"
