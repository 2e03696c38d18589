"""A batch cut into the units of a step plan, refused where the plan cannot take it."""

from collections.abc import Sequence

import torch

from penstock.data.batch import IGNORE, Microbatch
from penstock.errors import RunError
from penstock.model.attention.piece import Piece, pieces_of
from penstock.run.program.piece_levels import with_levels
from penstock.run.program.step_plan import StepPlan


def cut_batch(
    plan: StepPlan, batch: Sequence[Microbatch], *, scale: float, device: torch.device
) -> list[Piece]:
    """The pieces of a batch, numbered as the schedule numbers its units; whole microbatches where
    ranks form groups, each of which cuts its own tokens."""
    if len(batch) != len(plan.lengths):
        raise RunError(
            f"a batch of {len(batch)} microbatches for a plan of {len(plan.lengths)}",
            hint="give as many microbatches as the schedule has",
        )
    pieces: list[Piece] = []
    for mb, (microbatch, lengths) in enumerate(zip(batch, plan.lengths)):
        _refuse(plan, mb, microbatch, sum(lengths))
        moved = Microbatch(
            microbatch.tokens.to(device), microbatch.labels.to(device), microbatch.documents
        )
        cut = (sum(lengths),) if plan.groups else lengths
        pieces += pieces_of(mb, moved, cut, scale)
    if plan.layout.model.subsampling is not None:
        return with_levels(pieces, batch, plan.lengths, plan.layout.model.subsampling)
    if plan.layout.model.mixture is None:  # nothing else asks, and counting takes time
        return pieces
    shares = [microbatch.valid * scale for microbatch in batch]
    return [piece._replace(share=shares[piece.mb]) for piece in pieces]


def _refuse(plan: StepPlan, mb: int, microbatch: Microbatch, length: int) -> None:
    if (microbatch.rows, microbatch.length) != (plan.rows, length):
        raise RunError(
            f"microbatch {mb} has {microbatch.rows} row(s) of {microbatch.length} tokens, but the "
            f"plan has {plan.rows} of {length}",
            hint="cut the data to the length that the plan was made for",
        )
    for what, words in (("token", microbatch.tokens), ("label", microbatch.labels)):
        wrong = (words >= plan.layout.model.vocabulary) | (words < 0)
        if what == "label":
            wrong &= words != IGNORE
        if wrong.any():
            row, position = torch.nonzero(wrong)[0].tolist()
            raise RunError(
                f"{what} {int(words[row, position])} of microbatch {mb}, row {row}, position "
                f"{position} is outside the vocabulary of {plan.layout.model.vocabulary}",
                hint="take the tokenizer that belongs to the model, or a larger vocabulary",
            )
