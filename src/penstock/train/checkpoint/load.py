"""Tensors out of a checkpoint, whoever wrote it.

A checkpoint knows tensors by the names they have in the whole model, not by the ranks that wrote
them. So each rank asks for the blocks that it has now, under any schedule and any number of ranks,
whatever the blocks were when they were written. What is asked and not there, there and not asked,
asked for in part only, or of another shape or type, is refused by name.
"""

from collections.abc import Collection, Mapping

from penstock.errors import RunError, nearest
from penstock.model.io.tensor_block import TensorBlocks, Tensors, blocks_by_name
from penstock.train.checkpoint.find import Found
from penstock.train.checkpoint.outline import (
    Outline,
    TensorKind,
    outlines_of,
    refuse_gaps,
    spread_over,
)
from penstock.train.checkpoint.ranks import Ranks

_SHOWN = 3
"""Names that a message lists."""


def stored_kinds(found: Found) -> dict[str, TensorKind]:
    """Every tensor of a checkpoint, by name."""
    from penstock.train.checkpoint.storage import tensor_entries  # deferred: see there

    return {
        name: TensorKind(tuple(entry.size), entry.properties.dtype)
        for name, entry in tensor_entries(found.folder)
    }


def load_checkpoint(found: Found, tensors: Tensors, ranks: Ranks) -> None:
    """Fill the tensors of all ranks; together they must ask for the whole checkpoint."""
    blocks = blocks_by_name(tensors)
    asked = spread_over(ranks.together(lambda: outlines_of(blocks)))
    ranks.together(lambda: _refuse_left(found, stored_kinds(found), asked.keys()))
    refuse_gaps(asked, "no rank asks for")
    ranks.together(lambda: _fill(found, blocks))


def load_part(found: Found, tensors: Tensors) -> None:
    """Fill some tensors, in this process, and leave the rest of the checkpoint alone."""
    Ranks().together(lambda: _fill(found, blocks_by_name(tensors)))


def _fill(found: Found, blocks: TensorBlocks) -> None:
    from penstock.train.checkpoint.storage import read_tensors  # deferred: see there

    _refuse_misfits(found, stored_kinds(found), outlines_of(blocks))
    read_tensors(found.folder, blocks)


def _refuse_left(found: Found, have: Mapping[str, TensorKind], asked: Collection[str]) -> None:
    if left := have.keys() - set(asked):
        raise RunError(
            f"{found.folder.name} has {_some(left)}, which this run does not have",
            hint="resume with the model and the optimizer that were saved",
        )


def _refuse_misfits(
    found: Found, have: Mapping[str, TensorKind], wanted: Mapping[str, Outline]
) -> None:
    if missing := wanted.keys() - have.keys():
        raise RunError(
            f"{found.folder.name} does not have {_some(missing)}",
            hint=nearest(min(missing), sorted(have)) if have else "it is empty",
        )
    for name, outline in wanted.items():
        if outline.kind != have[name]:
            raise RunError(
                f"{name} is {have[name]} in {found.folder.name}, but {outline.kind} in this run",
                hint="resume with the model that was saved",
            )


def _some(names: Collection[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(sorted(names)[:_SHOWN]) + more
