"""The loss of a batch: what counts in it, and the sum of what stages met."""

from collections.abc import Sequence

import torch
from torch import Tensor

from penstock.errors import RunError


def refuse_unlabelled(what: str, labels: int) -> None:
    """A mean over nothing is no loss, and an update by it would still let the weights decay."""
    if not labels:
        raise RunError(
            f"no label of {what} counts, so it has no loss",
            hint="documents of a single token have nothing to predict, and labels that are all "
            "masked neither: leave such documents out, or take larger batches",
        )


def sum_losses(losses: Sequence[Tensor]) -> Tensor:
    """The sum on the host, in lane order; zero on devices that meet no loss."""
    total = torch.zeros((), dtype=torch.float64)
    for loss in losses:
        total += loss.cpu()
    return total
