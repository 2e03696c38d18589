"""Ops that wait: the makespan of a real run is that of the simulation."""

from math import inf
from time import perf_counter

import pytest

from penstock.bench.measure.emulate import Emulated, emulate, seconds_between
from penstock.bench.measure.emulated_shard import wait
from penstock.bench.measure.waiting_module import waiting_step
from penstock.core.schedule import Schedule
from penstock.run.launch.worker_pool import Crew
from penstock.schedules import build
from penstock.sim import simulate

pytestmark = pytest.mark.torch

NEAR, TRIES = 0.5, 8
"""A loaded machine wakes sleepers late, so one of some tries has to be near the simulation."""


@pytest.mark.parametrize(
    "schedule",
    [
        build("1f1b", devices=2, microbatches=3),
        build("zb-v", devices=2, microbatches=4),
        build("dualpipev", devices=2, microbatches=4),
        build("seq1f1b", devices=2, microbatches=2, slices=2),
        build("slimpipe-exchange", devices=2, microbatches=1, slices=4),
        build("po-f", devices=2, microbatches=2, chunks=2),
    ],
    ids=lambda schedule: schedule.name,
)
def test_a_waiting_run_takes_as_long_as_simulated(pair: Crew, schedule: Schedule) -> None:
    _takes_as_long(pair, schedule)


def test_so_does_one_with_copies_that_computing_waits_for(
    pair: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.bench.measure.emulate.COPY_TIMES", {"O": 8, "L": 8})
    schedule = build("sppo", devices=2, microbatches=1, slices=2)
    found = _takes_as_long(pair, schedule)
    assert found.simulated > 2 * found.unit * simulate(schedule).makespan


def _takes_as_long(pair: Crew, schedule: Schedule) -> Emulated:
    tries = [emulate(pair, schedule, shortest=0.02, spin=0.0)]
    while tries[-1].error >= NEAR and len(tries) < TRIES:
        tries.append(emulate(pair, schedule, shortest=0.02, spin=0.0))
    assert min(found.unit for found in tries) >= 0.02
    assert 0 <= min(found.error for found in tries) < NEAR, tries
    return tries[-1]


def test_the_other_runtime_waits_as_long_as_its_order_says(pair: Crew) -> None:
    least, tries = (3 + 1) * 3 * 0.02, [inf]
    while tries[-1] >= 1.6 * least and len(tries) <= TRIES:
        tries.append(seconds_between(pair.run(waiting_step, "Schedule1F1B", 3, 0.02, 0.0)))
    assert least <= min(tries) < 1.6 * least, tries


def test_a_wait_never_ends_early() -> None:
    for spin in (0.0, 0.001):
        start = perf_counter()
        wait(0.003, spin)
        assert perf_counter() - start >= 0.003
