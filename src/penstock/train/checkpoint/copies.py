"""Who saves which tensor, and whether copies of it are equal.

Two ranks that save different values under one name are a silent loss: the storage keeps one of
them. So every name has one owner among the ranks of a pipeline, and where the pipeline is
replicated, the replicas' copies are compared byte by byte (their SHA-256) before anything is
written. The first replica then writes.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.errors import RunError
from penstock.train.checkpoint.ranks import Ranks


class Content(NamedTuple):
    """What one rank saves; the state is the same on all ranks."""

    step: int
    tensors: Mapping[str, Tensor]
    state: str


class Copy(NamedTuple):
    """What a rank has under a name, short enough to be sent around."""

    rank: int
    sha256: str


def capture(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The values of this moment, in memory of their own on the host."""
    return {
        name: torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())
        for name, tensor in tensors.items()
    }


def refuse_differences(tensors: Mapping[str, Tensor], replicas: int, ranks: Ranks) -> None:
    """Raise on all ranks where a name has two owners, or copies that are not equal."""
    compared = replicas > 1
    held = ranks.together(
        lambda: {name: digest_of_tensor(tensors[name]) if compared else "" for name in tensors}
    )
    devices = ranks.size // replicas
    first = _owners(held, range(devices))
    for replica in range(1, replicas):
        _compare(first, _owners(held, range(replica * devices, (replica + 1) * devices)))


def digest_of_tensor(tensor: Tensor) -> str:
    """SHA-256 of a host tensor: its type, its shape and its bytes."""
    sha = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
    sha.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def _owners(held: Sequence[Mapping[str, str]], members: range) -> dict[str, Copy]:
    """Which rank of one replica has each name."""
    owners: dict[str, Copy] = {}
    for rank in members:
        for name, sha in held[rank].items():
            if name in owners:
                raise RunError(
                    f"{name} is saved by rank {owners[name].rank} and by rank {rank}",
                    hint="within a pipeline every tensor has one owner",
                )
            owners[name] = Copy(rank, sha)
    return owners


def _compare(first: Mapping[str, Copy], other: Mapping[str, Copy]) -> None:
    for name in sorted(first.keys() ^ other.keys()):
        there = first.get(name) or other[name]
        raise RunError(
            f"{name} is saved by rank {there.rank}, but not by every replica",
            hint="replicas of a pipeline have the same tensors",
        )
    for name, copy in first.items():
        if copy.sha256 != other[name].sha256:
            raise RunError(
                f"{name} differs between rank {copy.rank} and rank {other[name].rank}, "
                "which should be copies",
                hint="the replicas are no longer equal; go back to the newest checkpoint",
            )
