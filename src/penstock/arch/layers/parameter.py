"""One parameter of a layer: its name, its shape, how it starts and how ranks may share it."""

from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Literal

from penstock.arch.dealing import deal, deal_heads

TensorShape = tuple[int, ...]

OUTPUTS, INPUTS = 0, 1
"""Axes of a matrix [outputs, inputs]. Split along its outputs it is column-parallel, along its
inputs row-parallel, in the words of Megatron, which writes the matrix transposed."""


class InitialValue(Enum):
    """What a parameter is filled with before training."""

    ONES = "ones"
    ZEROS = "zeros"
    HALVES = "one half"
    NORMAL = "normal"
    NORMAL_TO_RESIDUAL = "normal, smaller the more layers add to the residual"
    UNIFORM = "uniform, smaller the more inputs there are"


@dataclass(frozen=True)
class HeadSplit:
    """An axis of query heads, or of key/value heads, one behind the other."""

    heads: int
    kv_heads: int
    head_size: int
    part: Literal["queries", "keys"]

    def share(self, index: int, of: int) -> range:
        """The elements of one rank."""
        found: range = getattr(deal_heads(self.heads, self.kv_heads, index, of), self.part)
        return range(found.start * self.head_size, found.stop * self.head_size)

    def holders(self, index: int, of: int) -> range:
        """The ranks that have the same share as this one."""
        if self.part == "queries":
            return range(index, index + 1)
        return deal_heads(self.heads, self.kv_heads, index, of).holders


@dataclass(frozen=True)
class Parameter:
    """A parameter as its layer describes it."""

    name: str
    """As in Hugging Face checkpoints, behind the prefix of its layer."""
    shape: TensorShape
    start: InitialValue = InitialValue.NORMAL
    axis: int | None = None
    """The axis along which tensor-parallel ranks share it; None: each of them holds all of it."""
    heads: HeadSplit | None = None
    """How that axis is made of heads, which ranks share as heads; None: element by element."""
    adds_over: Literal["", "tokens", "heads", "shares"] = ""
    """What its gradient is a sum over, where several ranks may each have only some of it: tokens,
    heads, or shares of a matrix that it is multiplied with."""
    behind_attention: bool = False
    """Whether it is used behind the part of an attention that has no weights; parameters of the
    same layer that follow it are too."""
    trained: bool = True
    """Whether it has a gradient and is updated; one that is frozen has values alone."""
    expert: int | None = None
    """Whose it is, where it belongs to one of several experts; ranks may share these too."""
    dealt_over: int = 1
    """Replicas of which one has it, where they share the experts; 1: every replica has it."""
    rate: float = 1.0
    """What the learning rate is multiplied by."""

    @property
    def elements(self) -> int:
        return prod(self.shape)

    def share(self, index: int, of: int) -> range:
        """What rank `index` holds of the axis that is shared."""
        if self.axis is None:
            return range(self.shape[0])
        return self.heads.share(index, of) if self.heads else deal(self.shape[self.axis], index, of)

    def holders(self, index: int, of: int) -> range:
        """The ranks that hold the same as rank `index`."""
        if self.axis is None:
            return range(of)
        return self.heads.holders(index, of) if self.heads else range(index, index + 1)
