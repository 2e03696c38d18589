"""Which blocks of each tensor the ranks have, and whether they are the tensor.

Blocks that many ranks save or ask for make a tensor only together. A gap between them would be
stored or left as whatever lies in memory, and of two blocks that overlap one would win. So each
rank says which blocks it has, without their values, and all ranks look at the whole.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache, reduce
from itertools import combinations
from math import prod
from typing import NamedTuple

import numpy as np
import torch

from penstock.errors import RunError
from penstock.model.io.tensor_block import Region, TensorBlock, TensorBlocks, whole_region


class TensorKind(NamedTuple):
    """What a tensor is as a whole."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{list(self.shape)} of {str(self.dtype).removeprefix('torch.')}"


class Outline(NamedTuple):
    """What one rank has of a tensor."""

    kind: TensorKind
    regions: tuple[Region, ...]


class Spread(NamedTuple):
    """What all ranks have of a tensor: every region with the ranks that have it, in their order."""

    kind: TensorKind
    holders: dict[Region, list[int]]


class Cover(NamedTuple):
    """How much of a tensor some regions are."""

    elements: int
    gap: tuple[int, ...] | None
    """The first element that is in none of them."""


def outlines_of(blocks: TensorBlocks) -> dict[str, Outline]:
    """What this rank has of each tensor; names without a block are left out."""
    return {name: _outline(name, found) for name, found in blocks.items() if found}


def _outline(name: str, blocks: Sequence[TensorBlock]) -> Outline:
    kinds = [TensorKind(block.shape, block.tensor.dtype) for block in blocks]
    for kind, block in zip(kinds, blocks):
        if kind != kinds[0]:
            _refuse_kinds(name, f"{kinds[0]} in one block", f"{kind} in another")
        _refuse_outside(name, kind, block.region)
    return Outline(kinds[0], tuple(block.region for block in blocks))


def _refuse_outside(name: str, kind: TensorKind, region: Region) -> None:
    fits = len(region.offsets) == len(region.sizes) == len(kind.shape) and all(
        start >= 0 and start + size <= whole
        for start, size, whole in zip(region.offsets, region.sizes, kind.shape)
    )
    if not fits:
        raise RunError(
            f"{name} is {kind}, but {region} is not a block of it",
            hint="a block has the axes of its tensor, and lies within it",
        )


def _refuse_kinds(name: str, one: str, other: str) -> None:
    raise RunError(
        f"{name} is {one}, but {other}",
        hint="blocks of one name belong to one tensor; a tensor of its own has a name of its own",
    )


def spread_over(outlines: Sequence[Mapping[str, Outline]]) -> dict[str, Spread]:
    """What ranks have together, by name; the outlines are in the order of the ranks."""
    spreads: dict[str, Spread] = {}
    for rank, names in enumerate(outlines):
        for name, outline in names.items():
            spread = spreads.setdefault(name, Spread(outline.kind, {}))
            if spread.kind != outline.kind:
                first = min(min(ranks) for ranks in spread.holders.values())
                one, other = f"{spread.kind} on rank {first}", f"{outline.kind} on rank {rank}"
                _refuse_kinds(name, one, other)
            for region in outline.regions:
                spread.holders.setdefault(region, []).append(rank)
    return spreads


def refuse_overlaps(spreads: Mapping[str, Spread]) -> None:
    """Refuse elements that two blocks have, unless they are the same block on two ranks."""
    for name, (kind, holders) in spreads.items():
        if sum(region.elements for region in holders) == cover((*holders,), kind.shape).elements:
            continue
        one, other = next(pair for pair in combinations(holders, 2) if pair[0].overlaps(pair[1]))
        raise RunError(
            f"{name}{one} of rank {holders[one][0]} and {name}{other} of rank {holders[other][0]} "
            "overlap and are not the same block",
            hint="ranks that hold the same elements of a tensor hold the same blocks of it",
        )


def refuse_gaps(spreads: Mapping[str, Spread], lacks: str) -> None:
    """Refuse tensors of which elements are in no block; `lacks` says so, as in "no rank saves"."""
    for name, (kind, holders) in spreads.items():
        covered = cover((*holders,), kind.shape)
        if covered.gap is not None:
            raise RunError(
                f"{name} is {kind}, but {lacks} its element {list(covered.gap)}: "
                f"{covered.elements} of {prod(kind.shape)} elements are there",
                hint="the blocks of all ranks together are the whole tensor",
            )


@lru_cache(maxsize=1024)  # moments are cut as their weights are, and layers alike
def cover(regions: tuple[Region, ...], shape: tuple[int, ...]) -> Cover:
    """How many elements of a tensor are in some region, each counted once.

    All edges of all regions cut the tensor into cells; a region has whole cells only.
    """
    if regions == (whole_region(shape),):
        return Cover(prod(shape), None)
    edges = [_edges(axis, size, regions) for axis, size in enumerate(shape)]
    filled = np.zeros([len(cuts) - 1 for cuts in edges], np.bool_)
    for region in regions:
        filled[tuple(_between(cuts, one) for cuts, one in zip(edges, region.ranges))] = True
    cells = reduce(np.multiply.outer, map(np.diff, edges), np.ones((), np.int64))
    empty = np.argwhere(~filled)
    gap = tuple(int(cuts[at]) for cuts, at in zip(edges, empty[0])) if len(empty) else None
    return Cover(int(cells[filled].sum()), gap)


def _edges(
    axis: int, size: int, regions: Sequence[Region]
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    ranges = [region.ranges[axis] for region in regions]
    ends = [end for one in ranges for end in (one.start, one.stop)]
    return np.unique(np.array([0, size, *ends], np.int64))


def _between(cuts: np.ndarray[tuple[int], np.dtype[np.int64]], one: slice) -> slice:
    return slice(int(np.searchsorted(cuts, one.start)), int(np.searchsorted(cuts, one.stop)))
