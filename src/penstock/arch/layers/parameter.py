"""One parameter of a layer: its name, its shape, how it starts and how ranks may share it."""

from dataclasses import dataclass
from enum import Enum
from math import prod

TensorShape = tuple[int, ...]

OUTPUTS, INPUTS = 0, 1
"""Axes of a matrix [outputs, inputs]. Split along its outputs it is column-parallel, along its
inputs row-parallel, in the words of Megatron, which writes the matrix transposed."""


class InitialValue(Enum):
    """What a parameter is filled with before training."""

    ONES = "ones"
    ZEROS = "zeros"
    NORMAL = "normal"
    NORMAL_TO_RESIDUAL = "normal, smaller the more layers add to the residual"


@dataclass(frozen=True)
class Parameter:
    """A parameter as its layer describes it."""

    name: str
    """As in Hugging Face checkpoints, behind the prefix of its layer."""
    shape: TensorShape
    start: InitialValue = InitialValue.NORMAL
    axis: int | None = None
    """The axis along which tensor-parallel ranks share it; None: each of them holds all of it."""
    unit: int = 1
    """Elements along that axis that stay together, as those of one head do."""
    behind_attention: bool = False
    """Whether it is used behind the part of an attention that has no weights; parameters of the
    same layer that follow it are too."""

    @property
    def elements(self) -> int:
        return prod(self.shape)
