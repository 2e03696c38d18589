"""Mistakes in what stages tell each other about brackets, put into every process of a trial."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import Tensor

from penstock.arch.draws import Moment, Purpose
from penstock.model.attention.piece import Piece
from penstock.model.stages.carried_levels import BracketGradient, CarriedLevels
from penstock.model.stages.kept_tokens import KeptRegions
from penstock.run.process.rendezvous import Connection
from penstock.verify.trial import TrialPart, run_trial
from penstock.verify.variants import Trial


def forgotten_gradient(connection: Connection, trial: Trial) -> TrialPart:
    """What went past a bracket has no gradient on its way back."""
    right = CarriedLevels.joined_gradients

    def joined(self: CarriedLevels, rows: Tensor, brackets: list[BracketGradient]) -> Tensor:
        return right(self, rows, [each._replace(x=torch.zeros_like(each.x)) for each in brackets])

    with patch.object(CarriedLevels, "joined_gradients", joined):
        return run_trial(connection, trial)


def places_for_positions(connection: Connection, trial: Trial) -> TrialPart:
    """Kept tokens are turned by their place among kept ones."""
    right = KeptRegions.kept

    def kept(self: KeptRegions, piece: Piece, *rest: object) -> object:
        found = right(self, piece, *rest)  # type: ignore[arg-type]
        places = torch.arange(found.positions.shape[1])
        return found._replace(positions=places.expand_as(found.positions).contiguous())

    with patch.object(KeptRegions, "kept", kept):
        return run_trial(connection, trial)


@contextmanager
def _drawing_by_order() -> Iterator[None]:
    """Draws that depend on how many were made before, as those of a usual generator."""
    count = iter(range(1 << 30))

    def draw(self: Moment, module: int, purpose: Purpose) -> float:
        return (next(count) * 0.37) % 1

    with patch.object(Moment, "draw", draw):
        yield


def draws_by_order(connection: Connection, trial: Trial) -> TrialPart:
    with _drawing_by_order():
        return run_trial(connection, trial)
