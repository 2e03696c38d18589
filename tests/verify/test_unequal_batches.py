"""ChunkFlow's "it works when": gradients of unequal sequences equal those of each run alone."""

import random

import pytest

from loops import one_of
from penstock.arch.cell_shape import CellShape
from penstock.run.launch.worker_pool import Crew
from penstock.verify.compare import TOLERANCE, difference
from verify.unequal_jobs import (
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
    for number, batch in enumerate(batches):
        parts = parts_of_batch(reports, number)
        held = [gradient for part in parts for gradient in part.held]
        found = difference(parts[0].loss, held, right_answer(batch))
        assert found.beyond(TOLERANCE["cpu"]["float64"]) == [], batch
