"""Blocks of tensors as torch's distributed checkpoint plans them.

Torch makes plans for whole tensors and for its own kinds of sharded ones; our ranks have neither.
Plans and the description of a checkpoint speak of blocks, though, which torch calls chunks. So the
plans are made here, and all that follows from them is torch's: files, description, and readers.
"""

from collections.abc import Sequence
from typing import cast

from torch import Size, Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from penstock.errors import RunError
from penstock.model.io.tensor_block import Region, TensorBlock, TensorBlocks
from penstock.train.checkpoint.outline import cover


class BlockSavePlanner(DefaultSavePlanner):
    """Plans to write blocks, each on the one rank that gives it."""

    def __init__(self, blocks: TensorBlocks) -> None:
        super().__init__()
        self._blocks = {_index(name, b.region): b for name, found in blocks.items() for b in found}

    def create_local_plan(self) -> SavePlan:
        items = [_write_item(index, block) for index, block in self._blocks.items()]
        paths = {index.fqn: (index.fqn,) for index in self._blocks}  # nothing is nested
        self.plan = SavePlan(items, planner_data=paths)
        return self.plan

    def lookup_object(self, index: MetadataIndex) -> Tensor:
        return self._blocks[index].tensor


class BlockLoadPlanner(DefaultLoadPlanner):
    """Fills blocks from whatever blocks were written."""

    def __init__(self, blocks: TensorBlocks) -> None:
        super().__init__()
        self._blocks = blocks

    def plan(self, metadata: Metadata) -> LoadPlan:
        """Which elements of which stored block go where."""
        entries = cast(dict[str, TensorStorageMetadata], metadata.state_dict_metadata)
        found = (_read_items(name, own, entries[name]) for name, own in self._blocks.items())
        return LoadPlan([item for items in found for item in items])

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        return self._blocks[index.fqn][index.index or 0].tensor


def _index(name: str, region: Region) -> MetadataIndex:
    return MetadataIndex(name, Size(region.offsets))


def _write_item(index: MetadataIndex, block: TensorBlock) -> WriteItem:
    properties = TensorProperties.create_from_tensor(block.tensor)
    data = TensorWriteData(_described(block.region), properties, Size(block.shape))
    return WriteItem(index, WriteItemType.SHARD, tensor_data=data)


def _described(region: Region) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(Size(region.offsets), Size(region.sizes))


def _read_items(
    name: str, blocks: Sequence[TensorBlock], entry: TensorStorageMetadata
) -> list[ReadItem]:
    """Refuses elements that nobody has written: they would stay as they are."""
    stored = [Region(tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in entry.chunks]
    gap = cover((*stored,), tuple(entry.size)).gap
    if gap is not None:
        raise RunError(
            f"the checkpoint does not have element {list(gap)} of {name}",
            hint="it was written by something that does not store whole tensors",
        )
    wanted = [_described(block.region) for block in blocks]
    items: list[ReadItem] = create_read_items_for_chunk_list(name, entry, wanted)
    return items
