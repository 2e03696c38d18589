"""What a stage saved of a slice as a flat list of storages, and the same put together again.

What a backward needs is nested: layers, parts of layers, tensors. Several of the tensors may be
views of one storage, as queries, keys and values of one projection, and the output of attention is
saved by two layers. Whoever moves it moves storages, each once. Keys and values of a slice are
views of the memory of its sequence, which other slices read: they are not the slice's to move.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from penstock.model.attention.back_end import AttentionSaved
from penstock.model.attention.piece import Piece

_SHARED = ("k", "v")
"""What attention saves that lies in the memory of a sequence, where that is cut."""


class View(NamedTuple):
    """A saved tensor as a view of a storage."""

    storage: int
    """Its number among the storages of the slice."""
    dtype: torch.dtype
    offset: int
    size: torch.Size
    stride: tuple[int, ...]

    def of(self, memory: Tensor) -> Tensor:
        """The same view of other memory."""
        empty = torch.empty(0, dtype=self.dtype, device=memory.device)
        return empty.set_(memory.untyped_storage(), self.offset, self.size, self.stride)


class SavedStorages(NamedTuple):
    """The storages of what was saved, and how the saved tensors lie in them."""

    storages: list[Tensor]
    """As bytes."""
    nested: Any
    """What was saved, with a view in place of each tensor that is the slice's own."""

    @classmethod
    def of(cls, saved: Any, piece: Piece) -> "SavedStorages":
        """What a forward saved of a piece."""
        found: dict[int, int] = {}
        storages: list[Tensor] = []

        def view_of(tensor: Tensor) -> View:
            storage = tensor.untyped_storage()
            number = found.setdefault(storage.data_ptr(), len(storages))
            if number == len(storages):
                storages.append(_bytes_of(tensor))
            offset, size = int(tensor.storage_offset()), tensor.size()
            return View(number, tensor.dtype, offset, size, tensor.stride())

        return cls(storages, _mapped(saved, Tensor, view_of, piece))

    def on(self, memory: Mapping[int, Tensor]) -> Any:
        """What was saved, lying in other memory."""
        return _mapped(self.nested, View, lambda view: view.of(memory[view.storage]), None)


def _bytes_of(tensor: Tensor) -> Tensor:
    """The whole storage of a tensor."""
    empty = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return empty.set_(tensor.untyped_storage())


def _mapped(node: Any, leaf: type, change: Callable[[Any], Any], piece: Piece | None) -> Any:
    """The same nesting with its leaves changed; with a piece, what is not its own stays."""
    if isinstance(node, leaf):
        return change(node)
    if isinstance(node, list):
        return [_mapped(each, leaf, change, piece) for each in node]
    if not isinstance(node, tuple) or not hasattr(node, "_fields"):
        return node
    stays = _SHARED if _lies_in_memory(node, piece) else ()
    return type(node)(*_fields(node, leaf, change, piece, stays))


def _fields(
    node: Any, leaf: type, change: Callable[[Any], Any], piece: Piece | None, stays: tuple[str, ...]
) -> Iterator[Any]:
    for name, value in zip(node._fields, node):
        yield value if name in stays else _mapped(value, leaf, change, piece)


def _lies_in_memory(node: Any, piece: Piece | None) -> bool:
    """Whether the keys and values of a node are those of a sequence that is cut."""
    return piece is not None and not piece.whole and isinstance(node, AttentionSaved)
