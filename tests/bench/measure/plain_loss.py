"""What every run of a comparison has to arrive at."""

import torch

from penstock.bench.measure.plain_model import plain_stage, summed_loss
from penstock.bench.measure.real import TrainingWork


def plain_loss(work: TrainingWork) -> float:
    """The mean loss of the plain model in one piece."""
    whole = plain_stage(work.model, range(work.model.layers), work.length)
    with torch.no_grad():
        found = sum(summed_loss(whole(b.tokens), b.labels).item() for b in work.batch())
    return found * work.scale
