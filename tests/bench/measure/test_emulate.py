"""Ops that wait: the makespan of a real run is that of the simulation."""

from time import perf_counter

import pytest

from penstock.bench.measure.emulate import emulate, seconds_between, wait
from penstock.bench.measure.waiting_module import waiting_step
from penstock.core.schedule import Schedule
from penstock.run.launch.worker_pool import Crew
from penstock.schedules import build

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    "schedule",
    [
        build("1f1b", devices=2, microbatches=3),
        build("zb-v", devices=2, microbatches=4),
        build("dualpipev", devices=2, microbatches=4),
        build("seq1f1b", devices=2, microbatches=2, slices=2),
        build("slimpipe-exchange", devices=2, microbatches=1, slices=4),
    ],
    ids=lambda schedule: schedule.name,
)
def test_a_waiting_run_takes_as_long_as_simulated(pair: Crew, schedule: Schedule) -> None:
    found = min(
        (emulate(pair, schedule, shortest=0.02, spin=0.0) for _ in range(2)),
        key=lambda run: run.measured,
    )
    assert found.unit >= 0.02
    assert 0 <= found.error < 0.5  # a loaded machine wakes sleepers late


def test_the_other_runtime_waits_as_long_as_its_order_says(pair: Crew) -> None:
    seconds = seconds_between(pair.run(waiting_step, "Schedule1F1B", 3, 0.02, 0.0))
    assert (3 + 1) * 3 * 0.02 <= seconds < (3 + 1) * 3 * 0.02 * 1.6


def test_a_wait_never_ends_early() -> None:
    for spin in (0.0, 0.001):
        start = perf_counter()
        wait(0.003, spin)
        assert perf_counter() - start >= 0.003
