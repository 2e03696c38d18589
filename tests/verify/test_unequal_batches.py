"""ChunkFlow's "it works when": gradients of unequal sequences equal those of each run alone."""

import random
from collections.abc import Iterator, Sequence

import pytest

from loops import one_of
from penstock.arch.cell_shape import CellShape
from penstock.plan.ragged_batch import SliceRule
from penstock.run.launch.worker_pool import Crew
from penstock.verify.compare import TOLERANCE, Difference, difference
from penstock.verify.trial import TrialPart
from verify.mistakes import batches_with_relay_of_zeros
from verify.unequal_jobs import (
    RAGGED,
    UnequalBatch,
    UnequalCase,
    gradients_of_batches,
    parts_of_batch,
    random_batch,
    right_answer,
)

pytestmark = pytest.mark.torch

BATCHES = 8
"""Random batches on each mesh."""
MESHES = {
    "4 devices": (4, 1, CellShape(), "none"),
    "2 devices, 2 replicas": (2, 2, CellShape(), "none"),
    "2 devices, 2 replicas that share the optimizer": (2, 2, CellShape(), "optimizer"),
    "2 devices, 2 replicas that share weights": (2, 2, CellShape(), "full"),
    "2 devices of 2 tensor ranks": (2, 1, CellShape(tensor=2), "none"),
    "2 devices of 2 ulysses ranks": (2, 1, CellShape(ulysses=2), "none"),
    "2 devices of 2 ring ranks": (2, 1, CellShape(ring=2), "none"),
    "1 device, 4 replicas": (1, 4, CellShape(), "none"),
}


@pytest.mark.parametrize("mesh", one_of(8, ((mesh,) for mesh in MESHES)))
def test_section_9_gradients_equal_those_of_running_every_sequence_alone(
    ranks: Crew, mesh: str
) -> None:
    numbers = random.Random(mesh)
    batches = tuple(random_batch(numbers) for _ in range(BATCHES))
    reports = ranks.run(gradients_of_batches, UnequalCase(batches, *MESHES[mesh]))
    for found, batch in zip(differences(reports, batches), batches, strict=True):
        assert found.beyond(TOLERANCE["cpu"]["float64"]) == [], batch


def differences(
    reports: Sequence[list[TrialPart]], batches: Sequence[UnequalBatch]
) -> Iterator[Difference]:
    """How far each batch lies from every sequence alone."""
    for number, batch in enumerate(batches):
        parts = parts_of_batch(reports, number)
        held = [gradient for part in parts for gradient in part.held]
        yield difference(parts[0].loss, held, right_answer(batch))


@pytest.mark.parametrize("name", [spec.name for spec in RAGGED])
def test_section_9_a_missing_relay_of_key_value_gradients_makes_gradients_wrong(
    pair: Crew, name: str
) -> None:
    """Everything else runs as it should: the loss is right, and all is where nothing is cut."""
    lengths = (12, 3, 2)
    rules = [SliceRule(4, retain) for retain in (1, 2, 3)]
    cut = [UnequalBatch(lengths, rule, name) for rule in rules]
    batches = (*cut, UnequalBatch(lengths, SliceRule(12), name))
    reports = pair.run(batches_with_relay_of_zeros, UnequalCase(batches, 2))
    *wrong, whole = differences(reports, batches)
    assert whole.within(TOLERANCE["cpu"]["float64"])
    for found in wrong:
        assert found.gradient > 1e-3
        assert found.loss < TOLERANCE["cpu"]["float64"].loss
        assert "model.layers." in found.parameter
