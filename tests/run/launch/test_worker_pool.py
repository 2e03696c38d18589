"""A crew answers many jobs quickly, and says which rank is to blame when one goes wrong."""

import os
import time
from collections.abc import Iterator

import pytest

from clock import within
from penstock.errors import RunError, ShapeError
from penstock.run.launch.worker_pool import Crew
from run.launch import pool_jobs as jobs

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    with Crew(2) as members:
        yield members


def test_every_rank_knows_its_place(crew: Crew) -> None:
    answers = crew.run(jobs.whoami)
    assert [(rank, world) for rank, world, _ in answers] == [(0, 2), (1, 2)]


def test_the_ranks_stay_from_job_to_job(crew: Crew) -> None:
    assert crew.run(jobs.whoami) == crew.run(jobs.whoami)


def test_jobs_take_arguments_and_talk_to_each_other(crew: Crew) -> None:
    assert crew.run(jobs.total, 10.0) == [30.0, 30.0]
    assert crew.run(jobs.total, weight=1.0) == [3.0, 3.0]


def test_a_rank_computes_with_one_thread(crew: Crew) -> None:
    assert crew.run(jobs.threads) == [1, 1]


def test_results_may_be_large(crew: Crew) -> None:
    first, second = crew.run(jobs.hands_back, 32)
    assert first.shape == (32, 1 << 18)
    assert second.unique().tolist() == [1.0]


def test_a_job_costs_milliseconds(crew: Crew) -> None:
    crew.run(jobs.whoami)
    with within(100 * 0.02, time.monotonic):
        for _ in range(100):
            crew.run(jobs.whoami)


def test_an_error_comes_back_with_its_rank_and_traceback(crew: Crew) -> None:
    with pytest.raises(RunError, match="rank 0 of 2") as caught:
        crew.run(jobs.fails_everywhere)
    assert "ValueError: no good on rank 0" in str(caught.value)
    assert "in fails_everywhere" in str(caught.value)
    assert "in _answer" not in str(caught.value)


def test_a_result_that_cannot_travel_is_an_error(crew: Crew) -> None:
    with pytest.raises(RunError, match="rank 0 of 2"):
        crew.run(jobs.cannot_be_pickled)


def test_after_an_error_of_all_ranks_the_same_crew_goes_on(crew: Crew) -> None:
    before = crew.run(jobs.whoami)
    with pytest.raises(RunError):
        crew.run(jobs.fails_everywhere)
    assert crew.run(jobs.whoami) == before


def test_an_error_of_one_rank_does_not_leave_the_others_waiting(crew: Crew) -> None:
    with within(8, time.monotonic), pytest.raises(RunError, match="rank 1 of 2: Tr") as caught:
        crew.run(jobs.fails_on, 1)
    assert "ValueError: no good on rank 1" in str(caught.value)
    assert crew.run(jobs.total, 1.0) == [3.0, 3.0]


def test_a_killed_rank_is_named_and_the_next_job_finds_a_new_crew(crew: Crew) -> None:
    old = {process for _, _, process in crew.run(jobs.whoami)}
    killed = pytest.raises(RunError, match=r"rank 1 of 2.*: killed by signal 9")
    with within(8, time.monotonic), killed:
        crew.run(jobs.dies_on, 1)
    assert not any(os.path.exists(f"/proc/{process}") for process in old)
    assert crew.run(jobs.total, 1.0) == [3.0, 3.0]


def test_a_stopped_rank_is_named_long_before_the_job_takes_too_long(crew: Crew) -> None:
    begin = time.monotonic()
    with pytest.raises(RunError, match=r"rank 1 of 2: stopped for [34]\."):
        crew.run(jobs.stops_on, 1)
    assert time.monotonic() - begin < 10
    assert crew.run(jobs.total, 1.0) == [3.0, 3.0]


def test_a_job_that_takes_too_long_is_ended(crew: Crew) -> None:
    crew.limit = 0.5
    try:
        with pytest.raises(RunError, match=r"rank 1 of 2: no answer after 0\.5 s"):
            crew.run(jobs.sleeps_on, 1, 60.0)
    finally:
        crew.limit = 600.0


def test_a_crew_needs_a_rank() -> None:
    with pytest.raises(ShapeError, match="a crew of 0 ranks"):
        Crew(0)
