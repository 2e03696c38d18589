"""What ops work in a real step: their CPU time, and losses that loans do not change."""

import pytest

from bench.measure.late_messages import LATE, run_late
from bench.measure.plain_loss import plain_loss
from penstock.arch.config import ModelConfig
from penstock.bench.imbalance import rounds_of
from penstock.bench.loans import figures, measured_loads, profile_without_loans, schedules_of
from penstock.bench.measure.op_work import WorkingSteps, run_working
from penstock.bench.measure.real import TrainingWork
from penstock.core.ops import parse_op
from penstock.run.launch.worker_pool import Crew
from penstock.schedules import build

pytestmark = pytest.mark.torch

MODEL = ModelConfig(4, 32, 48, 4, 2, 8, 40, element_bytes=4)
WORK = TrainingWork(MODEL, 24, 2)
LENGTHS = (6,) * 4
SETTINGS = {
    "ranks": 2,
    "microbatches": 2,
    "slices": 4,
    "schedules": ["slimpipe", "slimpipe-exchange", "slimpipe-level"],
}


def test_every_op_is_measured_and_loans_do_not_change_the_loss(pair: Crew) -> None:
    for schedule in schedules_of(SETTINGS):
        found = pair.run(run_working, WORK, schedule, LENGTHS, 2)
        assert sum(rank.loss for rank in found) == pytest.approx(plain_loss(WORK), rel=1e-5)
        assert [len(rank.seconds) for rank in found] == [2, 2]
        assert all(load > 0 for load in measured_loads(schedule, found))
        row = figures(schedule, found, profile_without_loans(schedule, found))
        assert row["rounds"] == len(rounds_of(schedule)) == 14
        assert row["imbalance"] == pytest.approx(row["longest"] / row["mean"])
        assert row["imbalance"] >= 1


def test_a_wait_for_a_message_is_no_work(pair: Crew) -> None:
    schedule = build("slimpipe-level", devices=2, microbatches=2, slices=4)
    found = pair.run(run_late, WORK, schedule, LENGTHS)
    work = {op: time for rank in found for op, time in rank.work.items()}
    ends = {op for loan in schedule.loans for op in (loan.heavy, loan.light)}
    assert ends
    assert max(work[op] for op in ends) < LATE * 1e9
    assert min(rank.seconds[0] for rank in found) > len(schedule.loans) * LATE


def test_the_figures_of_a_step_by_hand() -> None:
    schedule = build("slimpipe", devices=2, microbatches=1, slices=2)
    times = {"0F0": 2, "0F0.1": 3, "0B0.1": 6, "0B0": 4, "1F0": 1, "1F0.1": 3, "1B0.1": 6, "1B0": 2}
    work = {parse_op(text): time * 10**9 for text, time in times.items()}
    ranks = [
        WorkingSteps(seconds, 0.5, {op: time for op, time in work.items() if op.stage == rank})
        for rank, seconds in enumerate(([9.0, 30.0, 20.0], [25.0, 8.0, 21.0]))
    ]
    row = figures(schedule, ranks, profile_without_loans(schedule, ranks))
    assert (row["seconds"], row["rounds"]) == (25.0, 2)
    assert (row["longest"], row["mean"]) == (9.0, 6.0)  # 0F0.1 beside 1F0, 0B0.1 beside 1B0
    assert row["imbalance"] == row["predicted"] == 1.5
    assert row["difference"] == 0.0
    assert row["attention"] == pytest.approx(2 * (1 + 2 + 2 + 4) / 27)
