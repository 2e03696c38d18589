"""Progress under failures: the formula against its derivation, limits and drawn failures."""

from dataclasses import dataclass
from math import exp, inf, sqrt

import numpy as np
import pytest

from penstock.errors import ShapeError
from penstock.plan.goodput import Failures, best_goodput, best_interval, goodput

CLUSTER = Failures(1024, mtbf_hours=50_000, checkpoint_seconds=60, restart_seconds=600)
ROUGH = Failures(16_384, mtbf_hours=10_000, checkpoint_seconds=120, restart_seconds=300)


def test_failures_of_all_devices_come_as_often_as_they_are_many() -> None:
    assert CLUSTER.between == 50_000 * 3600 / 1024
    assert best_goodput(10.0, CLUSTER).failures_per_day == pytest.approx(1024 * 24 / 50_000)


@pytest.mark.parametrize("failures", [CLUSTER, ROUGH])
def test_the_best_interval_fulfils_its_equation(failures: Failures) -> None:
    x = best_interval(failures) / failures.between
    ratio = failures.checkpoint_seconds / failures.between
    assert (1 - x) * exp(x + ratio) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("failures", [CLUSTER, ROUGH])
def test_no_other_number_of_steps_makes_more_progress(failures: Failures) -> None:
    best = best_goodput(10.0, failures)
    others = (goodput(10.0, steps, failures).progress for steps in range(1, 4 * best.steps))
    assert best.progress == max(others)


def test_rare_failures_have_the_interval_of_the_square_root_rule() -> None:
    rare = Failures(1, 50_000, checkpoint_seconds=1.0)
    assert best_interval(rare) == pytest.approx(sqrt(2 * rare.between), rel=1e-3)


def test_the_parts_are_all_of_the_time() -> None:
    found = best_goodput(7.5, ROUGH)
    assert found.progress + found.checkpoints + found.lost == pytest.approx(1)
    assert min(found.progress, found.checkpoints, found.lost) > 0


@dataclass
class Clock:
    """Failures that come at random at a constant rate."""

    random: np.random.Generator
    mean: float
    now: float = 0.0

    def __post_init__(self) -> None:
        self.failure = self.random.exponential(self.mean)

    def pass_by(self, seconds: float) -> bool:
        """Let time pass; false where a failure cuts it off."""
        if self.now + seconds <= self.failure:
            self.now += seconds
            return True
        self.now, self.failure = self.failure, self.failure + self.random.exponential(self.mean)
        return False


def test_drawn_failures_leave_the_same_progress() -> None:
    found = best_goodput(10.0, ROUGH)
    clock, segments = Clock(np.random.default_rng(5), ROUGH.between), 20_000
    for _ in range(segments):
        while not clock.pass_by(found.steps * 10.0 + ROUGH.checkpoint_seconds):
            while not clock.pass_by(ROUGH.restart_seconds):
                pass
    drawn = segments * found.steps * 10.0 / clock.now
    assert found.progress == pytest.approx(drawn, rel=0.01)


def test_a_cluster_that_never_reaches_a_checkpoint_makes_no_progress() -> None:
    broken = Failures(1_000_000, mtbf_hours=0.1, checkpoint_seconds=600)
    assert best_goodput(10.0, broken).progress == 0.0


@pytest.mark.parametrize(
    ("step", "failures", "words"),
    [
        (0.0, CLUSTER, "a step takes 0"),
        (1.0, CLUSTER._replace(mtbf_hours=-1.0), "between failures takes -1"),
        (1.0, CLUSTER._replace(mtbf_hours=inf), "between failures takes inf"),
        (1.0, CLUSTER._replace(checkpoint_seconds=-2.0), "a checkpoint takes -2 s"),
    ],
)
def test_times_that_cannot_be_are_refused(step: float, failures: Failures, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        best_goodput(step, failures)
