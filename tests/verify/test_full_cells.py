"""Fully sharded weights in cells: the ranks that share are all that hold the same weights."""

from dataclasses import replace

import pytest

from loops import one_of
from penstock.arch.cell_shape import CellShape
from penstock.run.step.engine import Engine
from penstock.transform import shard
from penstock.verify.compare import TOLERANCE
from penstock.verify.trial import TrialPart, trial_part
from penstock.verify.variants import Trial
from verify.cell_ranks import on_threads
from verify.cell_samples import (
    MODEL,
    again_without_attention,
    cut_at_attention,
    from_right,
    sample,
    with_weights_sent,
)

pytestmark = [pytest.mark.torch, pytest.mark.long]

LIMIT = TOLERANCE["cpu"]["float64"]
TIED = replace(MODEL, tied=True)
CELLS = {
    "tensor": sample(CellShape(tensor=2), replicas=2, shard="full"),
    "uneven tensor": sample(CellShape(tensor=3), TIED, replicas=2, shard="full"),
    "replicated norms": sample(CellShape(tensor=2, norms="replicated"), replicas=2, shard="full"),
    "ulysses": sample(CellShape(ulysses=2), TIED, microbatches=2, shard="full"),
    "ring": sample(CellShape(ring=2), replicas=2, shard="full", rows=2),
    "ulysses in a ring": sample(CellShape(ulysses=2, ring=2), microbatches=2, shard="full"),
    "tensor and ulysses": sample(CellShape(tensor=2, ulysses=2), TIED, shard="full"),
    "attention apart": cut_at_attention(sample(CellShape(tensor=2, ulysses=2), shard="full")),
    "weights sent": again_without_attention(
        with_weights_sent(sample(CellShape(tensor=2, ulysses=2), shard="full"))
    ),
}


def owned_part(engine: Engine, trial: Trial) -> tuple[TrialPart, int, int]:
    """The result of a rank, what it owns of its stages and what there is of them."""
    stages = engine.weights.values()
    owned, whole = sum(w.own.elements for w in stages), sum(w.layout.stored for w in stages)
    return trial_part(engine, trial), owned, whole


@pytest.mark.parametrize("trial", one_of(2, ((trial,) for trial in CELLS.values())), ids=CELLS)
@pytest.mark.parametrize("buffers", [0, 1], ids=["as in a run", "one buffer"])
def test_a_cell_that_keeps_ranges_is_equal_to_the_oracle(trial: Trial, buffers: int) -> None:
    if buffers:
        few = shard(trial.schedule, weights=buffers, gradients=buffers)
        trial = replace(trial, schedule=few)
    found = [report.result for report in on_threads(trial, owned_part)]
    error = from_right(trial, [part for part, _, _ in found])
    assert error.beyond(LIMIT) == []
    copies = trial.replicas * trial.cell.sequence
    assert sum(owned for _, owned, _ in found) == sum(whole for _, _, whole in found) // copies
