"""Blocks of tensors, where no rank holds a tensor as a whole.

A rank holds a part of a parameter, and an optimizer that is shared holds a run of that part's
elements. Files know neither. They know a whole tensor by its name, and rectangular blocks of it by
the offsets at which these begin. A run of elements is at most three blocks of a matrix:

    elements 3 to 12 of a matrix of 4 columns

        .  .  .  3        [0:1, 3:4]
        4  5  6  7        [1:3, 0:4]
        8  9 10 11
       12  .  .  .        [3:4, 0:1]
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

from torch import Tensor

from penstock.arch.layers.parameter import TensorShape
from penstock.arch.parameter_layout import ParameterPart


class Region(NamedTuple):
    """Which elements of a tensor: so many along each axis, from an offset on."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        """As it is written in Python.

        >>> str(Region((0, 8), (16, 24)))
        '[0:16, 8:32]'
        """
        return f"[{', '.join(f'{one.start}:{one.stop}' for one in self.ranges)}]"

    @property
    def elements(self) -> int:
        return prod(self.sizes)

    @property
    def ranges(self) -> tuple[slice, ...]:
        """The range of each axis: `whole[region.ranges]` are these elements."""
        return tuple(slice(start, start + size) for start, size in zip(self.offsets, self.sizes))

    def moved(self, by: Sequence[int]) -> "Region":
        """The same elements of a tensor in which this one begins at these offsets."""
        return Region(tuple(start + more for start, more in zip(self.offsets, by)), self.sizes)

    def overlaps(self, other: "Region") -> bool:
        """Whether some element is in both."""
        pairs = zip(self.ranges, other.ranges)
        return all(mine.start < their.stop and their.start < mine.stop for mine, their in pairs)


def whole_region(shape: TensorShape) -> Region:
    """All elements of a tensor."""
    return Region((0,) * len(shape), shape)


class TensorBlock(NamedTuple):
    """The block of a whole tensor that begins at some offsets."""

    tensor: Tensor
    shape: TensorShape
    """Of the whole tensor."""
    offsets: tuple[int, ...]

    @property
    def region(self) -> Region:
        """Which elements of the whole tensor it has."""
        return Region(self.offsets, tuple(self.tensor.shape))


TensorBlocks = Mapping[str, Sequence[TensorBlock]]
"""What a rank has of each tensor, by name."""
Tensors = Mapping[str, Tensor | Sequence[TensorBlock]]
"""The same, where a tensor that is whole may stand for itself."""


def blocks_by_name(tensors: Tensors) -> dict[str, list[TensorBlock]]:
    """Everything as blocks, of which none is empty unless its tensor is."""
    found = {
        name: [whole_block(value)] if isinstance(value, Tensor) else _filled(value)
        for name, value in tensors.items()
    }
    return {name: blocks for name, blocks in found.items() if blocks}


def _filled(blocks: Sequence[TensorBlock]) -> list[TensorBlock]:
    return [block for block in blocks if block.tensor.numel() or 0 in block.shape]


def whole_block(tensor: Tensor) -> TensorBlock:
    """A whole tensor as its only block."""
    shape = tuple(tensor.shape)
    return TensorBlock(tensor, shape, whole_region(shape).offsets)


def blocks_in(part: ParameterPart, flat: Tensor, first: int = 0) -> list[TensorBlock]:
    """What a flat buffer has of a parameter, as views; `first` is where the buffer begins among
    the elements of the layout, of which it may have some only."""
    begin, end = max(part.offset, first), min(part.stop, first + len(flat))
    blocks: list[TensorBlock] = []
    for region in regions_of_run(part, begin - part.offset, end - part.offset):
        values = flat[begin - first : begin - first + region.elements]
        blocks.append(TensorBlock(values.view(region.sizes), part.shape, region.offsets))
        begin += region.elements
    return blocks


def regions_of_run(part: ParameterPart, start: int, stop: int) -> list[Region]:
    """Elements [start, stop) of a part, one behind the other, as regions of the whole parameter."""
    origin = [one.start for one in part.index]
    return [region.moved(origin) for region in _regions(part.local_shape, start, stop)]


def _regions(shape: TensorShape, start: int, stop: int) -> list[Region]:
    """The end of a first row, whole rows, the beginning of a last row: what there is of these."""
    if start >= stop:
        return []
    if len(shape) == 1:
        return [Region((start,), (stop - start,))]
    row = prod(shape[1:])
    first, last = -(-start // row), stop // row
    if first > last:
        return _regions_in_row(shape, last, start, stop)
    rows = [Region((first, *(0 for _ in shape[1:])), (last - first, *shape[1:]))]
    return [
        *_regions_in_row(shape, first - 1, start, first * row),
        *(rows if first < last else []),
        *_regions_in_row(shape, last, last * row, stop),
    ]


def _regions_in_row(shape: TensorShape, row: int, start: int, stop: int) -> list[Region]:
    before = row * prod(shape[1:])
    inside = _regions(shape[1:], start - before, stop - before)
    return [Region((row, *region.offsets), (1, *region.sizes)) for region in inside]
