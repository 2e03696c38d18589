"""Whole tensors from the blocks that several ranks hold, on one of them, one after the other.

An exported file has whole tensors, and a rank may hold blocks only. The ranks that hold the same
stages exchange which blocks they have; then each block comes from the lowest rank that has it, and
the first rank holds one tensor at a time until it is written.

    take_tensors(blocks, group)     on the first rank of the group
    give_blocks(blocks, group)      on all others
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, distributed
from torch.distributed import ProcessGroup

from penstock.model.io.tensor_block import Region, TensorBlocks, whole_region
from penstock.train.checkpoint.outline import Spread, outlines_of, refuse_gaps, spread_over
from penstock.train.checkpoint.ranks import Ranks


class BlockSource(NamedTuple):
    """Where a block of a tensor comes from."""

    region: Region
    rank: int
    """Within the group."""


def take_tensors(blocks: TensorBlocks, group: ProcessGroup | None) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of which a rank of the group has blocks, whole; a view where this rank has it
    whole."""
    for name, spread in _spreads(blocks, group).items():
        own = _by_region(blocks, name)
        whole = own.get(whole_region(spread.kind.shape))
        if whole is None:
            whole = torch.empty(spread.kind.shape, dtype=spread.kind.dtype)
            for source in _sources(spread):
                _fill(whole[source.region.ranges], source, own, group)
        yield name, whole


def give_blocks(blocks: TensorBlocks, group: ProcessGroup) -> None:
    """Send what the first rank of the group lacks, in the order in which it asks."""
    first, rank = distributed.get_global_rank(group, 0), group.rank()
    for name, spread in _spreads(blocks, group).items():
        own = _by_region(blocks, name)
        for source in _sources(spread):
            if source.rank == rank:
                distributed.send(own[source.region].cpu().contiguous(), first, group)


def _spreads(blocks: TensorBlocks, group: ProcessGroup | None) -> Mapping[str, Spread]:
    """What the group has, by name and in one order on all its ranks."""
    spreads = spread_over(Ranks(group).together(lambda: outlines_of(blocks)))
    refuse_gaps(spreads, "no rank holds")
    return {name: spreads[name] for name in sorted(spreads)}


def _by_region(blocks: TensorBlocks, name: str) -> dict[Region, Tensor]:
    return {block.region: block.tensor.detach() for block in blocks.get(name, ())}


def _sources(spread: Spread) -> list[BlockSource]:
    """The whole tensor where some rank has it, else its blocks."""
    whole = whole_region(spread.kind.shape)
    regions = [whole] if whole in spread.holders else sorted(spread.holders)
    return [BlockSource(region, spread.holders[region][0]) for region in regions]


def _fill(
    place: Tensor, source: BlockSource, own: Mapping[Region, Tensor], group: ProcessGroup | None
) -> None:
    if group is None or source.rank == 0:
        place.copy_(own[source.region])
        return
    received = torch.empty(source.region.sizes, dtype=place.dtype)
    distributed.recv(received, distributed.get_global_rank(group, source.rank), group)
    place.copy_(received)
