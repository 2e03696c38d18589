"""What ranks of a cell wait for each other, and that pairs change nothing else."""

from time import perf_counter_ns, sleep

import pytest

from bench.measure.plain_loss import plain_loss
from penstock.arch.cell_shape import CellShape
from penstock.arch.config import ModelConfig
from penstock.bench.measure.cell_waits import WaitingSteps, run_waiting, wait_clock
from penstock.bench.measure.real import TrainingWork
from penstock.bench.pairs import orders, waits_of
from penstock.run.comm.cell_group import StartedCollective
from penstock.run.launch.worker_pool import Crew

pytestmark = pytest.mark.torch

MODEL = ModelConfig(4, 32, 48, 4, 2, 8, 40, element_bytes=4)
WORK = TrainingWork(MODEL, 24, 2)
SETTINGS = {"microbatches": 2, "schedules": [{"schedule": "stp"}, {"schedule": "1f1b"}]}


def test_a_schedule_with_pairs_is_run_with_and_without_them() -> None:
    found = [(order, built.name, bool(built.pairs)) for order, built in orders(SETTINGS, 1)]
    assert found == [
        ("in turn", "stp", True),
        ("one by one", "stp", False),
        ("no pairs", "1f1b", False),
    ]


def test_both_orders_have_one_loss_and_some_waits(pair: Crew) -> None:
    (_, braided), (_, plain), _ = orders(SETTINGS, 1)
    cell = CellShape(tensor=2)
    in_turn = waits_of(pair.run(run_waiting, WORK, braided, cell, 1))
    one_by_one = waits_of(pair.run(run_waiting, WORK, plain, cell, 1))
    assert in_turn["loss"] == one_by_one["loss"] == pytest.approx(plain_loss(WORK), rel=1e-5)
    for found in (in_turn, one_by_one):
        assert 0 < found["waited"] < found["seconds"]
        assert found["share"] == found["waited"] / found["seconds"]


def test_a_step_takes_as_long_as_its_slowest_rank_and_waits_are_a_mean() -> None:
    ranks = [WaitingSteps([1.0, 3.0, 2.0], 0.5, 7.0), WaitingSteps([2.0, 1.0, 2.0], 0.1, 7.0)]
    assert waits_of(ranks) == {"seconds": 2.0, "waited": 0.3, "share": 0.15, "loss": 7.0}


def test_a_wait_inside_a_wait_is_counted_once() -> None:
    class Slow:
        def wait(self) -> None:
            sleep(0.02)

    with wait_clock() as clock:
        begun = perf_counter_ns()
        StartedCollective(StartedCollective(Slow(), None), None).wait()
        assert 20_000_000 <= clock.nanoseconds <= perf_counter_ns() - begun


def test_the_clock_is_gone_after_the_measurement() -> None:
    wait = StartedCollective.wait
    with wait_clock():
        assert StartedCollective.wait is not wait
    assert StartedCollective.wait is wait
