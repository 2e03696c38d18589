"""Tensors that ranks hold in blocks, cut in every way that a layout may cut them."""

from collections.abc import Mapping

import torch
from torch import Tensor

from penstock.arch.parameter_layout import ParameterPart
from penstock.model.io.tensor_block import Region, TensorBlock, regions_of_run

SHAPES = {"weights/matrix": (6, 8), "exp_avg/matrix": (6, 8), "weights/norm": (7,)}
DTYPES = {"weights/matrix": torch.float64, "weights/norm": torch.bfloat16}

Cut = list[Mapping[str, list[Region]]]
"""What each rank has of each tensor."""


def wholes() -> dict[str, Tensor]:
    """The same numbers wherever they are made."""
    made = torch.Generator().manual_seed(5)
    return {
        name: torch.randn(shape, generator=made).to(DTYPES.get(name, torch.float32))
        for name, shape in SHAPES.items()
    }


def along(axis: int, ends: list[int], shards: int = 1) -> Cut:
    """Ranks with uneven ranges of an axis of matrices, and of vectors all; each range may be shared
    once more: runs of its elements, one behind the other."""
    return [
        {name: _run(_part(name, axis, start, end), shard, shards) for name in SHAPES}
        for start, end in zip([0, *ends[:-1]], ends)
        for shard in range(shards)
    ]


def _part(name: str, axis: int, start: int, end: int) -> ParameterPart:
    shape = SHAPES[name]
    if len(shape) == 1:
        return ParameterPart(shape, 0, 0, shape[0], offset=0)
    return ParameterPart(shape, axis, start, end, offset=0)


def _run(part: ParameterPart, shard: int, shards: int) -> list[Region]:
    start, stop = (part.elements * at // shards for at in (shard, shard + 1))
    return regions_of_run(part, start, stop)


def blocks_of(regions: Mapping[str, list[Region]]) -> dict[str, list[TensorBlock]]:
    """What a rank holds, in memory of its own."""
    whole = wholes()
    return {
        name: [TensorBlock(whole[name][b.ranges].clone(), SHAPES[name], b.offsets) for b in found]
        for name, found in regions.items()
    }
