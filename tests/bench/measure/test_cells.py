"""Whole steps over cells: ours and PyTorch's tensor parallelism train the same model."""

import pytest

from bench.measure.plain_loss import plain_loss
from penstock.arch.cell_shape import CellShape
from penstock.arch.config import ModelConfig
from penstock.bench.cells import devices_of, with_ratios
from penstock.bench.measure.cells import run_our_cells
from penstock.bench.measure.real import TrainingWork, join_ranks
from penstock.errors import ShapeError
from penstock.run.launch.worker_pool import Crew
from penstock.schedules import build

pytestmark = pytest.mark.torch

MODEL = ModelConfig(4, 32, 48, 4, 2, 8, 40, element_bytes=4)
WORK = TrainingWork(MODEL, 24, 2)


@pytest.fixture(scope="module")
def loss() -> float:
    return plain_loss(WORK)


@pytest.mark.parametrize(
    ("cell", "slices"),
    [(CellShape(tensor=2), (24,)), (CellShape(ulysses=2), (12, 12))],
    ids=["tensor", "ulysses"],
)
def test_our_step_over_a_cell_has_the_loss_of_the_plain_model(
    pair: Crew, loss: float, cell: CellShape, slices: tuple[int, ...]
) -> None:
    schedule = build("seq1f1b", devices=1, microbatches=2, slices=len(slices))
    measured = join_ranks(None, pair.run(run_our_cells, WORK, schedule, slices, cell, 1))
    assert measured.loss == pytest.approx(loss, rel=1e-5)
    assert measured.seconds > 0


def test_their_step_over_a_cell_has_the_loss_of_the_plain_model(pair: Crew, loss: float) -> None:
    from penstock.bench.measure.torch_cells import run_their_cells  # deferred: it takes long

    measured = join_ranks(None, pair.run(run_their_cells, WORK, "Schedule1F1B", 2, 1))
    assert measured.loss == pytest.approx(loss, rel=1e-5)
    assert measured.seconds > 0


def test_each_run_of_ours_is_compared_with_the_fastest_of_theirs() -> None:
    rows = [
        {"side": "torch", "reason": None, "seconds": 6.0},
        {"side": "torch", "reason": None, "seconds": 4.0},
        {"side": "penstock", "reason": None, "seconds": 2.0},
        {"side": "penstock", "reason": "no"},
    ]
    assert [row["ratio"] for row in with_ratios(rows)] == [None, None, 2.0, None]
    assert [row["ratio"] for row in with_ratios(rows[2:])] == [None, None]


def test_ranks_that_do_not_make_whole_cells_are_refused() -> None:
    assert devices_of(8, 2) == 4
    with pytest.raises(ShapeError, match="7 ranks cannot be divided into cells of 2"):
        devices_of(7, 2)
