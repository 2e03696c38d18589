"""A batch as an engine needs it: its labels counted over replicas, its slices for this rank."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch

from penstock.arch.dealing import deal_sizes
from penstock.data.batch import Microbatch
from penstock.errors import RunError
from penstock.model.attention.piece import (
    Piece,
    PieceSharers,
    pieces_of,
    take_positions,
    take_tokens,
)
from penstock.model.attention.positions import own_positions, shared_positions
from penstock.model.parallel.cell import Cell
from penstock.model.parallel.group import RankGroup
from penstock.run.comm.collective import add_up
from penstock.run.comm.mesh import Mesh
from penstock.run.program.piece_levels import with_moment
from penstock.run.program.pieces import cut_batch
from penstock.run.program.step_plan import StepPlan
from penstock.run.program.token_groups import MicrobatchGroups, place_in
from penstock.run.step.optimizer import StageOptimizer

Sharers = Mapping[int, RankGroup | None]
"""The group of a rank by how many ranks it has, of those that exchange tokens for heads."""


def count_labels(batch: Sequence[Microbatch], mesh: Mesh) -> int:
    """Labels that count in the global batch."""
    count = torch.tensor(sum(microbatch.valid for microbatch in batch))
    add_up(count, mesh.along("replica"))
    return int(count)


def own_pieces(
    plan: StepPlan,
    batch: Sequence[Microbatch],
    labels: int,
    device: torch.device,
    cell: Cell,
    sharers: Sharers,
) -> list[Piece]:
    """The slices of a batch in which so many labels count, with the tokens of this rank of a cell;
    `sharers` has its group of each size."""
    scale = 1 / max(labels, 1)
    pieces = cut_batch(plan, batch, scale=scale, device=device)
    if plan.groups:
        slices = plan.schedule.shape.slices
        return [
            own
            for whole in pieces
            for own in _of_group(whole, plan.groups[whole.mb], slices[whole.mb], cell, sharers)
        ]
    if plan.layout.cell.sequence == 1:
        return pieces
    return [take_positions(each, own_positions(each.start, each.end, cell)) for each in pieces]


def in_step(
    pieces: list[Piece], plan: StepPlan, optimizers: Iterable[StageOptimizer], mesh: Mesh
) -> list[Piece]:
    """The pieces as a training step works on them; what a step draws depends on how many updates
    came before it, which is asked only where something is drawn."""
    subsampling = plan.layout.model.subsampling
    if subsampling is None:
        return pieces
    step = max((each.steps for each in optimizers), default=0)
    return with_moment(pieces, subsampling, step, mesh.replica * len(plan.lengths))


def _of_group(
    whole: Piece, groups: MicrobatchGroups, slices: int, cell: Cell, sharers: Sharers
) -> Iterator[Piece]:
    """The slices of a microbatch with the tokens of this rank, of the documents that its group
    has."""
    place = place_in(groups, cell.ulysses.index if cell.ulysses else 0)
    if place.tokens and place.tokens.start not in whole.documents[0]:
        raise RunError(
            f"a group of {place.ranks} ranks begins at token {place.tokens.start} of microbatch "
            f"{whole.mb}, in the middle of a document",
            hint="give every group whole documents",
        )
    group = sharers.get(place.ranks)
    cut = deal_sizes(len(place.tokens), slices)
    for piece in pieces_of(whole.mb, take_tokens(whole, place.tokens), cut, whole.scale):
        shared = piece._replace(sharers=PieceSharers(group), share=whole.share)
        yield take_positions(shared, shared_positions(piece.start, piece.end, cell, group))
