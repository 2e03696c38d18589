"""What a stage whose layers see different tokens works with, beside what every stage has."""

from typing import NamedTuple

from torch import Tensor

from penstock.model.layers.decoder_layer import LayerSaved
from penstock.model.layers.final_norm import NormSaved
from penstock.model.layers.subsample import Selection, UpsampledSaved
from penstock.model.stages.carried_levels import OpenBracket
from penstock.model.stages.level_memory import Documents


class KeptTokens(NamedTuple):
    """What layers inside of a bracket are told about a slice."""

    positions: Tensor
    """Of its kept tokens in the sequence, [rows, kept]"""
    documents: Documents
    padding: Tensor | None = None
    """[rows, kept], true for those that no bracket inside keeps."""


class ScoredSaved(NamedTuple):
    """What a bracket that opens keeps."""

    x: Tensor
    """As the rank holds it."""
    scores: Tensor
    selection: Selection


class SubsampledSaved(NamedTuple):
    """What a stage keeps of one slice."""

    layers: list[LayerSaved]
    out: Tensor | None
    norm: NormSaved | None
    loads: list[OpenBracket]
    """Brackets that are still open behind the stage, until they are handed on."""
    kept: dict[int, KeptTokens]
    """Of every bracket that is open somewhere in the stage, by number: small, and not moved."""
    scored: list[ScoredSaved]
    """Of those that open here, in this order."""
    upsampled: list[UpsampledSaved]
    """Of those that close here, in this order."""
