"""Whole steps: ours and PyTorch's train the same model, and costs of a run predict it."""

import pytest

from bench.measure.plain_loss import plain_loss
from penstock.arch.config import ModelConfig
from penstock.bench.measure.breakdown import breakdown, one_stage
from penstock.bench.measure.real import Timed, TrainingWork, join_ranks, run_ours, run_theirs
from penstock.core.ops import Op
from penstock.plan.slices import equal_flops_of_model
from penstock.run.launch.worker_pool import Crew
from penstock.schedules import build

pytestmark = pytest.mark.torch

MODEL = ModelConfig(4, 32, 48, 4, 2, 8, 40, element_bytes=4)
WORK = TrainingWork(MODEL, 24, 4)


@pytest.fixture(scope="module")
def loss() -> float:
    return plain_loss(WORK)


@pytest.mark.parametrize(("name", "slices"), [("1f1b", None), ("seq1f1b", 3)])
def test_our_step_has_the_loss_of_the_plain_model(
    pair: Crew, loss: float, name: str, slices: int | None
) -> None:
    schedule = build(name, devices=2, microbatches=4, slices=slices)
    lengths = equal_flops_of_model(MODEL, 24, slices or 1)
    measured = join_ranks(schedule, pair.run(run_ours, WORK, schedule, lengths, 1))
    assert measured.loss == pytest.approx(loss, rel=1e-5)
    assert measured.predicted > 0
    assert 0 < measured.makespan <= measured.seconds * 1.5


@pytest.mark.parametrize(
    ("name", "chunks"), [("Schedule1F1B", 1), ("ScheduleInterleaved1F1B", 2),
                         ("ScheduleZBVZeroBubble", 2)]
)  # fmt: skip
def test_their_step_has_the_loss_of_the_plain_model(
    pair: Crew, loss: float, name: str, chunks: int
) -> None:
    measured = join_ranks(None, pair.run(run_theirs, WORK, name, chunks, 1))
    assert measured.loss == pytest.approx(loss, rel=1e-5)
    assert measured.seconds > 0


def test_the_slowest_rank_of_the_median_step_counts() -> None:
    parts = [Timed([3.0, 1.0, 2.0], 0.25, []), Timed([1.0, 5.0, 4.0], 0.5, [])]
    assert join_ranks(None, parts)[:2] == (4.0, 0.75)


def test_an_op_costs_the_mean_of_its_kind_stage_and_slice() -> None:
    schedule = one_stage(2, 1)
    ends = {"F": (10_000, 30_000), "B": (50_000, 50_000)}
    spans = [(Op(kind, 0, mb, 0), 0, ends[kind][mb]) for kind in "FB" for mb in range(2)]
    found = join_ranks(schedule, [Timed([1.0], 0.0, spans)])
    assert found.predicted == pytest.approx((2 * 20 + 2 * 50) * 1e-6)
    assert found.makespan == pytest.approx(50e-6)


def test_a_breakdown_names_the_operations_of_a_stage(pair: Crew) -> None:
    found = pair.run(breakdown, TrainingWork(MODEL, 24, 1), (12, 12), 1)[0]
    assert found.kinds.keys() == {"F", "B"}
    assert found.seconds == pytest.approx(sum(found.kinds.values()))
    assert found.operations["aten::mm"] > 0
    assert list(found.operations.values()) == sorted(found.operations.values(), reverse=True)
