"""The learning rate of every step, exactly."""

from math import cos, pi
from typing import get_args

import pytest

from penstock.errors import ShapeError
from penstock.train.config.sections import OptimizerSettings
from penstock.train.config.settings import Settings
from penstock.train.loop.learning_rate import CURVES, kept_steps, plan_notes, rate_at
from train.samples import short


def run(steps: int, schedule: str, **changes: float) -> Settings:
    overrides = [f"optimizer.{key}={value}" for key, value in changes.items()]
    return short(f"run.steps={steps}", f"optimizer.schedule={schedule}", *overrides)


def rates(settings: Settings) -> list[float]:
    return [rate(settings, step) for step in range(settings.run.steps)]


def rate(settings: Settings, step: int) -> float:
    return rate_at(settings.optimizer, step, settings.planned_steps)


def test_a_warm_up_rises_in_equal_parts_and_its_last_step_has_the_full_rate() -> None:
    settings = run(6, "constant", learning_rate=1.0, warmup_steps=4)
    assert rates(settings) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_without_a_warm_up_the_first_step_has_the_full_rate() -> None:
    for schedule, decay in (("constant", 0), ("cosine", 0), ("wsd", 1)):
        assert rate(run(4, schedule, learning_rate=0.5, decay_steps=decay), 0) == 0.5


def test_a_cosine_falls_from_the_full_rate_to_the_minimum() -> None:
    found = rates(run(7, "cosine", learning_rate=2.0, warmup_steps=2, minimum_factor=0.25))
    assert found[:3] == [1.0, 2.0, 2.0]
    assert found[4] == pytest.approx(2 * (0.25 + 0.75 * (1 + cos(pi / 2)) / 2), abs=1e-15)
    assert found[-1] == 0.5
    assert found[2:] == sorted(found[2:], reverse=True)


def test_wsd_is_stable_and_falls_in_a_straight_line_to_the_minimum() -> None:
    found = rates(
        run(8, "wsd", learning_rate=4.0, warmup_steps=2, decay_steps=4, minimum_factor=0.5)
    )
    assert found == [2.0, 4.0, 4.0, 4.0, 3.5, 3.0, 2.5, 2.0]


@pytest.mark.parametrize("schedule", ["cosine", "wsd"])
def test_the_last_step_has_exactly_the_minimum(schedule: str) -> None:
    for steps in (2, 3, 10, 97):
        settings = run(
            steps, schedule, learning_rate=1.0, minimum_factor=0, decay_steps=int(schedule == "wsd")
        )
        assert rate(settings, steps - 1) == 0.0


@pytest.mark.parametrize(("steps", "warmup"), [(1, 0), (3, 2), (3, 3)])
def test_a_cosine_without_room_keeps_the_full_rate(steps: int, warmup: int) -> None:
    assert rate(run(steps, "cosine", learning_rate=1.0, warmup_steps=warmup), steps - 1) == 1.0


def test_a_warm_up_longer_than_the_run_is_refused() -> None:
    with pytest.raises(
        ShapeError, match=r"optimizer\.warmup_steps 5 and optimizer\.decay_steps 0 take 5 steps"
    ):
        run(4, "cosine", warmup_steps=5)
    with pytest.raises(ShapeError, match=r"take 5 steps, but run\.steps is 4"):
        run(4, "wsd", warmup_steps=2, decay_steps=3)


def test_a_step_before_the_run_is_refused() -> None:
    settings = run(4, "constant")
    with pytest.raises(ShapeError, match="step -1 has no learning rate"):
        rate(settings, -1)


def test_the_rate_stays_behind_the_last_step_that_it_is_planned_for() -> None:
    settings = run(6, "cosine", learning_rate=1.0, warmup_steps=1, schedule_steps=4)
    shorter = run(4, "cosine", learning_rate=1.0, warmup_steps=1)
    assert rates(settings) == [*rates(shorter), 0.1, 0.1]
    with pytest.raises(ShapeError, match=r"but optimizer\.schedule_steps is 4"):
        run(6, "cosine", warmup_steps=5, schedule_steps=4)


def test_a_run_that_goes_on_to_more_steps_keeps_its_plan_and_says_so() -> None:
    longer, stored = run(8, "cosine", learning_rate=1.0), {"schedule_steps": 4}
    assert kept_steps(longer, stored) == 4
    (said,) = plan_notes(longer, stored, done=4)
    assert said.startswith("the learning rate keeps its plan of 4 steps, though run.steps is 8")
    assert "0.1 in step 5; optimizer.schedule_steps=8 plans it again" in said


def test_a_plan_that_is_made_anew_is_said_with_the_rate_before_and_after() -> None:
    anew, stored = run(8, "cosine", learning_rate=1.0, schedule_steps=8), {"schedule_steps": 4}
    assert kept_steps(anew, stored) == 8
    (said,) = plan_notes(anew, stored, done=4)
    assert "over 8 steps instead of 4: it was 0.1 in step 4 and is 0.4499 in step 5" in said


def test_a_plan_that_changes_nothing_is_not_talked_about() -> None:
    stored = {"schedule_steps": 4}
    assert plan_notes(run(4, "cosine"), stored, done=2) == []
    assert plan_notes(run(8, "constant"), stored, done=4) == []
    assert plan_notes(run(4, "cosine", schedule_steps=8), stored, done=4) == []
    assert plan_notes(run(8, "cosine"), {}, done=4) == []


def test_every_schedule_of_the_settings_has_its_curve() -> None:
    assert get_args(OptimizerSettings.model_fields["schedule"].annotation) == tuple(CURVES)
