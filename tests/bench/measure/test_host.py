"""Both runtimes do the same work while their own cost is measured."""

import pytest

from penstock.bench.measure import host
from penstock.bench.measure.torch_pipeline import schedule_class, torch_stages
from penstock.errors import RunError
from penstock.run.launch.worker_pool import Crew
from penstock.schedules import build

pytestmark = pytest.mark.torch


def test_both_runtimes_come_to_the_same_loss(pair: Crew) -> None:
    ours = pair.run(host.host_time_of_ours, build("1f1b", devices=2, microbatches=4), 1)
    assert ours[0].loss == 0
    for name in ("Schedule1F1B", "ScheduleInterleaved1F1B"):
        theirs = pair.run(host.theirs, name, 4, 1)
        assert theirs[1].loss == pytest.approx(ours[1].loss, rel=1e-6)
        assert min(part.microseconds for part in (*ours, *theirs)) > 0


def test_a_schedule_that_torch_does_not_have_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(RunError, match="no Schedule1F1C") as refused:
        schedule_class("Schedule1F1C")
    assert "Schedule1F1B" in refused.value.hint


def test_stages_go_round_or_in_a_v() -> None:
    assert torch_stages("ScheduleInterleaved1F1B", 1, 4, 2) == [1, 5]
    assert torch_stages("ScheduleZBVZeroBubble", 1, 4, 2) == [1, 6]
