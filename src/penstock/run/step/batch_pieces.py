"""A batch as an engine needs it: its labels counted over replicas, its slices for this rank."""

from collections.abc import Sequence

import torch

from penstock.data.batch import Microbatch
from penstock.model.attention.piece import Piece, take_positions
from penstock.model.attention.positions import own_positions
from penstock.model.parallel.cell import Cell
from penstock.run.comm.collective import add_up
from penstock.run.comm.mesh import Mesh
from penstock.run.program.pieces import cut_batch
from penstock.run.program.step_plan import StepPlan


def count_labels(batch: Sequence[Microbatch], mesh: Mesh) -> int:
    """Labels that count in the global batch."""
    count = torch.tensor(sum(microbatch.valid for microbatch in batch))
    add_up(count, mesh.along("replica"))
    return int(count)


def own_pieces(
    plan: StepPlan, batch: Sequence[Microbatch], labels: int, device: torch.device, cell: Cell
) -> list[Piece]:
    """The slices of a batch in which so many labels count, with the tokens of this rank of a
    cell."""
    scale = 1 / max(labels, 1)
    pieces = cut_batch(plan, batch, scale=scale, device=device)
    if plan.layout.cell.sequence == 1:
        return pieces
    return [take_positions(each, own_positions(each.start, each.end, cell)) for each in pieces]
