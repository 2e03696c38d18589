"""A batch of a loop that somebody else has written, cut into what the ops of a schedule work on.

Inputs, targets and keywords are tensors, or tensors in tuples and dictionaries, which are cut along
their first axis into microbatches, and along the second one into slices where a schedule has them.
Each piece knows its share of the loss: a mean over microbatches, unless the caller says what each
of them counts. Shares add up to 1 over all replicas, so losses and gradients are added, never
averaged, and a microbatch in which nothing counts adds nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from penstock.errors import RunError
from penstock.model.attention.piece import Piece
from penstock.model.stages.module_stage import Loss
from penstock.model.stages.value_tree import (
    cut,
    differentiable,
    first_axes,
    leaves,
    map_leaves,
    words_of,
)
from penstock.plan.slices import even
from penstock.run.comm.collective import add_up
from penstock.run.comm.mesh import Mesh

Weight = Callable[[Any], float | Tensor]
"""How much a microbatch counts, from its targets; for example how many of them count."""


class WeighedTarget(NamedTuple):
    """The targets of a piece, and what its loss is multiplied with."""

    targets: Any
    share: float


class ModuleBatch(NamedTuple):
    """What a step is given."""

    inputs: Any
    targets: Any
    keywords: Mapping[str, Any]

    @property
    def words(self) -> str:
        """Sizes and types, by which ranks agree."""
        return words_of(tuple(self))

    def on(self, device: torch.device) -> "ModuleBatch":
        def move(value: Any) -> Any:
            return map_leaves(lambda leaf: leaf.to(device), value)

        return ModuleBatch(move(self.inputs), move(self.targets), move(self.keywords))


def read_batch(given: Sequence[Any], keywords: Mapping[str, Any], microbatches: int) -> ModuleBatch:
    """Inputs and targets, given one by one or as a pair."""
    pair = given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
    if len(pair) != 2:
        raise RunError(
            f"a batch of {len(pair)} parts, but it has two: inputs and targets",
            hint="give step(inputs, targets) or step((inputs, targets)); each may be a tuple or a "
            "dictionary of tensors",
        )
    batch = ModuleBatch(pair[0], pair[1], keywords)
    _refuse_other_values(batch)
    _refuse_uneven(batch, microbatches)
    return batch


def shares_of_loss(
    batch: ModuleBatch, slices: Sequence[int], weight: Weight | None, mesh: Mesh
) -> list[float]:
    """What the loss of each piece is multiplied with: its weight over those of all replicas."""
    weights = [_weight_of(piece, weight) for piece in _cut_pieces(batch, slices)]
    total = torch.tensor([sum(weights)], dtype=torch.float64)
    add_up(total, mesh.along("replica"))
    if not float(total):
        raise RunError(
            "nothing counts in the whole batch, so it has no loss",
            hint="look at the weight that the pipeline was given, and at the targets",
        )
    return [own / float(total) for own in weights]


def pieces_of_batch(
    batch: ModuleBatch, slices: Sequence[int], shares: Sequence[float]
) -> list[Piece]:
    """The units of the batch in the order of microbatches and slices, with their shares of the
    loss; `slices` has their number for each microbatch."""
    return [
        piece._replace(labels=cast(Tensor, WeighedTarget(piece.labels, share)))
        for piece, share in zip(_cut_pieces(batch, slices), shares)
    ]


def _cut_pieces(batch: ModuleBatch, slices: Sequence[int]) -> list[Piece]:
    inputs, targets = (cut(each, len(slices)) for each in batch[:2])
    if max(slices) == 1:
        pairs = enumerate(zip(inputs, targets))
        return [Piece(mb, 0, 1, 0, 1, 1, x, wanted, (), 1.0) for mb, (x, wanted) in pairs]
    return [
        piece
        for mb, count in enumerate(slices)
        for piece in _slices_of(mb, inputs[mb], targets[mb], count)
    ]


def weigh_loss(loss: Loss) -> Loss:
    """The loss of a piece times its share."""

    def of_piece(out: Any, target: WeighedTarget) -> Tensor:
        if not target.share:  # a mean over nothing is no number
            return cast(Tensor, sum(leaf.sum() for leaf in differentiable(out)) * 0.0)
        return loss(out, target.targets) * target.share

    return of_piece


def _slices_of(mb: int, inputs: Any, targets: Any, count: int) -> list[Piece]:
    """Pieces of whole sequences, [rows, tokens], cut as evenly as can be."""
    sizes = [each.shape[:2] if isinstance(each, Tensor) else () for each in (inputs, targets)]
    if len(sizes[0]) != 2 or sizes[0] != sizes[1] or sizes[0][1] < count:
        raise RunError(
            f"microbatch {mb} has inputs {words_of(inputs)} and targets {words_of(targets)}, which "
            f"cannot be cut into {count} slices",
            hint="give tensors [rows, tokens] of one size, with a token or more for each slice",
        )
    rows, length = sizes[0]
    found, start = [], 0
    for slice, tokens in enumerate(even(length, count)):
        end = start + tokens
        own = (inputs[:, start:end], targets[:, start:end])
        found.append(Piece(mb, slice, count, start, end, length, *own, ((0,),) * rows, 1.0))
        start = end
    return found


def _weight_of(piece: Piece, weight: Weight | None) -> float:
    """What a piece counts: as the caller says, or its part of a microbatch."""
    if weight is None:
        return (piece.end - piece.start) / piece.length
    found = float(weight(piece.labels))
    if not found >= 0:
        raise RunError(
            f"the weight of microbatch {piece.mb} is {found:g}",
            hint="a weight is 0 or more, for example how many targets count",
        )
    return found


def _refuse_other_values(batch: ModuleBatch) -> None:
    for name, value in zip(("inputs", "targets", "keywords"), batch):
        others = [leaf for leaf in leaves(value) if not isinstance(leaf, Tensor)]
        if others:
            raise RunError(
                f"the {name} of a batch have a {type(others[0]).__name__}",
                hint="give tensors, or tuples and dictionaries of tensors, whose first axis is the "
                "batch; what is the same for all microbatches belongs into the module",
            )


def _refuse_uneven(batch: ModuleBatch, microbatches: int) -> None:
    rows = [first_axes(value) for value in batch]
    counts = {count for each in rows for count in each}
    if len(counts) != 1 or 0 in counts or counts.pop() % microbatches or not all(rows[:2]):
        first = [each[0] if each else 0 for each in rows]
        beside = f", keywords of {', '.join(map(str, rows[2]))}" if rows[2] else ""
        raise RunError(
            f"a batch of {first[0]} inputs and {first[1]} targets{beside} cannot be cut into "
            f"{microbatches} microbatches of equal size",
            hint=f"give as many targets as inputs, a multiple of {microbatches}",
        )
