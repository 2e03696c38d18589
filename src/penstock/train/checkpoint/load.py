"""Tensors out of a checkpoint, whoever wrote it.

A checkpoint knows tensors by the names they have in the whole model, not by the ranks that wrote
them. So each rank asks for what it owns now, under any schedule and any number of ranks. What is
asked and not there, there and not asked, or of another shape or type, is refused by name.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.errors import RunError, nearest
from penstock.train.checkpoint.find import Found
from penstock.train.checkpoint.ranks import Ranks

_SHOWN = 3
"""Names that a message lists."""


class TensorKind(NamedTuple):
    """What a stored tensor is."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{list(self.shape)} of {str(self.dtype).removeprefix('torch.')}"


def stored_kinds(found: Found) -> dict[str, TensorKind]:
    """Every tensor of a checkpoint, by name."""
    from penstock.train.checkpoint.storage import tensor_entries  # deferred: see there

    return {
        name: TensorKind(tuple(entry.size), entry.properties.dtype)
        for name, entry in tensor_entries(found.folder)
    }


def load_checkpoint(found: Found, tensors: Mapping[str, Tensor], ranks: Ranks) -> None:
    """Fill the tensors of all ranks; together they must ask for the whole checkpoint."""
    asked = set().union(*ranks.together(lambda: set(tensors)))
    ranks.together(lambda: _refuse_left(found, stored_kinds(found), asked))
    ranks.together(lambda: _fill(found, tensors))


def load_part(found: Found, tensors: Mapping[str, Tensor]) -> None:
    """Fill some tensors, in this process, and leave the rest of the checkpoint alone."""
    Ranks().together(lambda: _fill(found, tensors))


def _fill(found: Found, tensors: Mapping[str, Tensor]) -> None:
    from penstock.train.checkpoint.storage import read_tensors  # deferred: see there

    _refuse_misfits(found, stored_kinds(found), tensors)
    read_tensors(found.folder, tensors)


def _refuse_left(found: Found, have: Mapping[str, TensorKind], asked: set[str]) -> None:
    if left := have.keys() - asked:
        raise RunError(
            f"{found.folder.name} has {_some(left)}, which this run does not have",
            hint="resume with the model and the optimizer that were saved",
        )


def _refuse_misfits(
    found: Found, have: Mapping[str, TensorKind], tensors: Mapping[str, Tensor]
) -> None:
    if missing := tensors.keys() - have.keys():
        raise RunError(
            f"{found.folder.name} does not have {_some(missing)}",
            hint=nearest(min(missing), sorted(have)) if have else "it is empty",
        )
    for name, tensor in tensors.items():
        wanted = TensorKind(tuple(tensor.shape), tensor.dtype)
        if wanted != have[name]:
            raise RunError(
                f"{name} is {have[name]} in {found.folder.name}, but {wanted} in this run",
                hint="resume with the model that was saved",
            )


def _some(names: Collection[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(sorted(names)[:_SHOWN]) + more
