"""What the two devices of a loan tell each other in every layer: three messages.

                       forward          backward
    there   keys       k, v             k, v
            queries    q                lse, q, out, gradient of out
    back    result     lse, out         gradients of q, k, v

A message is flat, and both ends know its contents: for each rectangle that is lent (lent_keys.py)
its tensors one after the other. A log-sum-exp is wider than 16-bit types, and lies among their
elements as two each; it stands in front, where it is aligned.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.model.attention.lent_keys import LentPart
from penstock.model.parallel.group import Pending, TensorSize, Work
from penstock.model.parallel.peer import Peer

Contents = list[tuple[TensorSize, torch.dtype]]
"""Shape and type of every tensor of a part."""

ContentsOf = Callable[[LentPart], Contents]


class LentHeads(NamedTuple):
    """The attention that two devices share, of a rank's heads."""

    heads: int
    kv_heads: int
    head_size: int
    dtype: torch.dtype

    def keys(self, part: LentPart) -> Contents:
        return [self._keys(part)] * 2

    def queries(self, part: LentPart) -> Contents:
        return [self._queries(part)]

    def output(self, part: LentPart) -> Contents:
        return [self._lse(part), self._queries(part)]

    def output_gradient(self, part: LentPart) -> Contents:
        return [self._lse(part), *[self._queries(part)] * 3]

    def gradients(self, part: LentPart) -> Contents:
        return [self._queries(part), *[self._keys(part)] * 2]

    def _queries(self, part: LentPart) -> tuple[TensorSize, torch.dtype]:
        return (len(part.rows), self.heads, len(part.queries), self.head_size), self.dtype

    def _keys(self, part: LentPart) -> tuple[TensorSize, torch.dtype]:
        return (len(part.rows), self.kv_heads, len(part.keys), self.head_size), self.dtype

    def _lse(self, part: LentPart) -> tuple[TensorSize, torch.dtype]:
        return (len(part.rows), self.heads, len(part.queries)), wide(self.dtype)


def wide(dtype: torch.dtype) -> torch.dtype:
    """The type of a log-sum-exp."""
    return torch.promote_types(dtype, torch.float32)


def keys_number(layer: int) -> int:
    """Of the message with keys and values; in either direction number 0 says that an op can
    start."""
    return 1 + 2 * layer


def queries_number(layer: int) -> int:
    return 2 + 2 * layer


def result_number(layer: int) -> int:
    return 1 + layer


def join_tensors(tensors: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """One message of several tensors, each copied once."""
    sizes = [(tuple(tensor.shape), tensor.dtype) for tensor in tensors]
    flat = tensors[0].new_empty(sum(_elements(size, dtype) for size in sizes), dtype=dtype)
    for into, tensor in zip(_apart(flat, sizes), tensors):
        into.copy_(tensor)
    return flat


def send_joined(peer: Peer, number: int, tensors: Sequence[Tensor], dtype: torch.dtype) -> None:
    """Send several tensors as one message."""
    peer.send(number, join_tensors(tensors, dtype))


class Message(NamedTuple):
    """A message on its way here."""

    flat: Tensor
    parts: Sequence[Contents]
    pending: Pending

    @classmethod
    def expected(
        cls, peer: Peer, number: int, like: Tensor, parts: Sequence[Contents]
    ) -> "Message":
        """A message for which room is made; `like` has its type and device."""
        flat = like.new_empty(sum(_elements(size, like.dtype) for part in parts for size in part))
        return cls(flat, parts, peer.receive(number, flat))

    def arrive(self) -> Work[list[list[Tensor]]]:
        """Wait for it; returns the tensors of each part, which share its memory."""
        yield self.pending
        return self.tensors()

    def tensors(self) -> list[list[Tensor]]:
        found = iter(_apart(self.flat, [size for part in self.parts for size in part]))
        return [[next(found) for _ in part] for part in self.parts]


def ask(
    peer: Peer, layer: int, result: Sequence[Contents], tensors: Sequence[Tensor], like: Tensor
) -> Message:
    """Send what a device needs beside keys and values, and expect its result."""
    expected = Message.expected(peer, result_number(layer), like, result)
    send_joined(peer, queries_number(layer), tensors, like.dtype)
    return expected


def _apart(flat: Tensor, sizes: Contents) -> list[Tensor]:
    """The tensors that lie one after the other in a message."""
    parts = torch.split(flat, [_elements(size, flat.dtype) for size in sizes])
    return [part.view(dtype).view(size) for part, (size, dtype) in zip(parts, sizes)]


def _elements(size: tuple[TensorSize, torch.dtype], dtype: torch.dtype) -> int:
    """How many elements of a type a tensor takes."""
    shape, own = size
    return torch.Size(shape).numel() * own.itemsize // dtype.itemsize
