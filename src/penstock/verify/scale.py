"""How large trials are: sizes at which a device takes the kernels that it trains with.

On a CPU one set of kernels serves every size, so the smallest model that shows a mistake is the
best one. On a GPU heads of 4 and slices of 6 tokens would be left to plain kernels, and fused ones,
which train, would never be compared: they want heads of whole groups of 8 elements, two bytes for
each, and cuDNN is asked for from 64 tokens on.
"""

from dataclasses import dataclass
from typing import Literal

from penstock.arch.config import ModelConfig


@dataclass(frozen=True)
class TrialScale:
    """Sizes of models and sequences, and what can be claimed of the numbers."""

    name: str
    """The kind of device whose kernels it is for; tolerances are kept under it."""
    device: str
    """Where it runs: there, or on the CPU where the comparison itself is tested."""
    model: ModelConfig
    """One layer of it; variants add layers and what else they are about."""
    layers: int
    """Layers of the model; a schedule with more stages gets one for each."""
    length: int
    """Tokens of a sequence; more where there are many slices."""
    slice_length: int
    """Tokens of a slice at least, before slices are made uneven."""
    ignored: tuple[int, ...]
    """Labels at the end of sequences that do not count, where their number is varied."""
    documents: tuple[tuple[int, ...], ...]
    """Where documents start, where sequences have several."""
    precise: str
    """The type in which variants run that are not about a type."""
    claim: Literal["bits", "distance"]
    """What is claimed of one process with the same slices: the same bits where they are added in
    the same order, or gradients that are near. Backwards of fused attention on a GPU add up in the
    order in which blocks end, so bits are not claimed there."""


EPSILON, THETA = 1e-2, 500.0
"""Numbers far from the usual ones, so that code which takes those instead is found out."""

CPU = TrialScale(
    "cpu",
    "cpu",
    ModelConfig(1, 16, 24, 4, 2, 4, 40, norm_epsilon=EPSILON, rope_theta=THETA),
    layers=8,
    length=24,
    slice_length=3,
    ignored=(1, 9, 24, 4),
    documents=((0,), (0, 5, 14), (0, 1, 2, 20), (0, 6, 12)),
    precise="float64",
    claim="bits",
)
CUDA = TrialScale(
    "cuda",
    "cuda",
    ModelConfig(1, 128, 192, 4, 2, 64, 320, norm_epsilon=EPSILON, rope_theta=THETA),
    layers=8,
    # 4 slices are of 144 tokens, 8 of 72; the shortest of 4 uneven ones has 72.
    length=576,
    slice_length=72,
    ignored=(1, 217, 576, 96),
    documents=((0,), (0, 121, 337), (0, 1, 2, 481), (0, 144, 288)),
    precise="float32",
    claim="distance",
)
