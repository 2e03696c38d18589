"""What a stage of a decoder works with: its weights as its layers take them, and what it keeps of a
slice."""

from typing import Any, NamedTuple

from torch import Tensor

from penstock.model.layers.final_norm import NormSaved
from penstock.model.layers.output_layer import OutputWeights


class BracketWeights(NamedTuple):
    """Of the brackets of a stage, or their gradients, by the number of their pair."""

    scorers: dict[int, Tensor]
    """Of those that open here."""
    bypasses: dict[int, Tensor]
    """Of those that close here."""


class StageWeights(NamedTuple):
    """Weights of a stage, or their gradients."""

    embedding: Tensor | None
    layers: list[Any]
    """As each kind of layer has them."""
    output: OutputWeights | None
    norm: Tensor | None
    """Of the last stage where it has no head."""
    matrices: list[Tensor]
    """By the number that a queue knows them by."""
    brackets: BracketWeights | None = None
    """Where the model leaves out tokens (subsampled.py)."""


class StageSaved(NamedTuple):
    """What a stage keeps of one slice."""

    layers: list[Any]
    out: Tensor | None
    """What the layers gave, on the last stage: its backward starts with the loss."""
    norm: NormSaved | None
    """Of the last stage where it has no head."""
    loads: Tensor | None = None
    """Of experts, where the model has some: of all layers so far (carried_loads.py)."""
