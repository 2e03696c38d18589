"""Who saves which block, and whether copies of it are equal.

Two ranks that save different values for the same elements are a silent loss: the storage keeps one
of them. Many ranks hold copies: replicas of a pipeline, ranks that share tokens and not weights,
norms beside matrices that are shared. A copy is known by its block: the name of the tensor, offsets
and sizes. Copies are compared byte by byte (their SHA-256) before anything is written; then the
lowest rank that has a block writes it. Blocks that overlap without being the same are refused.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.errors import RunError
from penstock.model.io.tensor_block import (
    Region,
    TensorBlock,
    TensorBlocks,
    Tensors,
    blocks_by_name,
)
from penstock.train.checkpoint.outline import (
    Spread,
    outlines_of,
    refuse_gaps,
    refuse_overlaps,
    spread_over,
)
from penstock.train.checkpoint.ranks import Ranks


class Content(NamedTuple):
    """What one rank saves; the state is the same on all ranks."""

    step: int
    blocks: TensorBlocks
    state: str


def capture(tensors: Tensors) -> TensorBlocks:
    """The values of this moment, in memory of their own on the host."""
    return {
        name: [block._replace(tensor=_on_host(block.tensor)) for block in blocks]
        for name, blocks in blocks_by_name(tensors).items()
    }


def _on_host(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())


def share_of(blocks: TensorBlocks, ranks: Ranks) -> dict[str, list[TensorBlock]]:
    """What this rank writes of its blocks: those that no lower rank has.

    Raises on all ranks where the blocks of all are not whole tensors, or copies are not equal.
    """
    spreads = spread_over(ranks.together(lambda: outlines_of(blocks)))
    _refuse_twice(spreads)
    refuse_overlaps(spreads)
    refuse_gaps(spreads, "no rank saves")
    _refuse_differences(blocks, spreads, ranks)
    return {
        name: [block for block in found if spreads[name].holders[block.region][0] == ranks.rank]
        for name, found in blocks.items()
    }


def digest_of_tensor(tensor: Tensor) -> str:
    """SHA-256 of a host tensor: its type, its shape and its bytes."""
    sha = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
    sha.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def _refuse_twice(spreads: Mapping[str, Spread]) -> None:
    for name, spread in spreads.items():
        for region, holders in spread.holders.items():
            if len({*holders}) < len(holders):
                twice = next(rank for rank in holders if holders.count(rank) > 1)
                raise RunError(
                    f"{_place(name, region, spread)} is saved twice by rank {twice}",
                    hint="a rank saves a block once, also where it has copies of it",
                )


def _refuse_differences(blocks: TensorBlocks, spreads: Mapping[str, Spread], ranks: Ranks) -> None:
    """Only what several ranks have is hashed: that takes longer than to write down who has it."""
    digests = ranks.together(lambda: _digests_of_copies(blocks, spreads))
    for name, spread in spreads.items():
        for region, holders in spread.holders.items():
            if len(holders) > 1:
                _compare(_place(name, region, spread), (name, region), holders, digests)


def _digests_of_copies(
    blocks: TensorBlocks, spreads: Mapping[str, Spread]
) -> dict[tuple[str, Region], str]:
    return {
        (name, block.region): digest_of_tensor(block.tensor)
        for name, found in blocks.items()
        for block in found
        if len(spreads[name].holders[block.region]) > 1
    }


def _compare(
    place: str,
    key: tuple[str, Region],
    holders: Sequence[int],
    digests: Sequence[Mapping[tuple[str, Region], str]],
) -> None:
    first, *others = holders
    for rank in others:
        if digests[rank][key] != digests[first][key]:
            raise RunError(
                f"{place} differs between rank {first} and rank {rank}, which should be copies",
                hint="the ranks are no longer equal; go back to the newest checkpoint",
            )


def _place(name: str, region: Region, spread: Spread) -> str:
    return name if region.sizes == spread.kind.shape else f"{name}{region}"
