"""The learning rate of every step, exactly."""

from math import cos, pi

import pytest

from penstock.errors import ShapeError
from penstock.train.config.keys import keys_of
from penstock.train.config.kinds import Choice
from penstock.train.config.settings import OptimizerSettings, Settings
from penstock.train.loop.learning_rate import CURVES, rate_at
from train.samples import short


def run(steps: int, schedule: str, **changes: float) -> Settings:
    overrides = [f"optimizer.{key}={value}" for key, value in changes.items()]
    return short(f"run.steps={steps}", f"optimizer.schedule={schedule}", *overrides)


def rates(settings: Settings) -> list[float]:
    return [rate_at(settings, step) for step in range(settings.run.steps)]


def test_a_warm_up_rises_in_equal_parts_and_its_last_step_has_the_full_rate() -> None:
    settings = run(6, "constant", rate=1.0, warmup=4)
    assert rates(settings) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_without_a_warm_up_the_first_step_has_the_full_rate() -> None:
    for schedule, decay in (("constant", 0), ("cosine", 0), ("wsd", 1)):
        assert rate_at(run(4, schedule, rate=0.5, decay=decay), 0) == 0.5


def test_a_cosine_falls_from_the_full_rate_to_the_minimum() -> None:
    found = rates(run(7, "cosine", rate=2.0, warmup=2, minimum=0.25))
    assert found[:3] == [1.0, 2.0, 2.0]
    assert found[4] == pytest.approx(2 * (0.25 + 0.75 * (1 + cos(pi / 2)) / 2), abs=1e-15)
    assert found[-1] == 0.5
    assert found[2:] == sorted(found[2:], reverse=True)


def test_wsd_is_stable_and_falls_in_a_straight_line_to_the_minimum() -> None:
    found = rates(run(8, "wsd", rate=4.0, warmup=2, decay=4, minimum=0.5))
    assert found == [2.0, 4.0, 4.0, 4.0, 3.5, 3.0, 2.5, 2.0]


@pytest.mark.parametrize("schedule", ["cosine", "wsd"])
def test_the_last_step_has_exactly_the_minimum(schedule: str) -> None:
    for steps in (2, 3, 10, 97):
        settings = run(steps, schedule, rate=1.0, minimum=0, decay=int(schedule == "wsd"))
        assert rate_at(settings, steps - 1) == 0.0


@pytest.mark.parametrize(("steps", "warmup"), [(1, 0), (3, 2), (3, 3)])
def test_a_cosine_without_room_keeps_the_full_rate(steps: int, warmup: int) -> None:
    assert rate_at(run(steps, "cosine", rate=1.0, warmup=warmup), steps - 1) == 1.0


def test_a_warm_up_longer_than_the_run_is_refused() -> None:
    with pytest.raises(
        ShapeError, match=r"optimizer\.warmup 5 and optimizer\.decay 0 take 5 steps"
    ):
        run(4, "cosine", warmup=5)
    with pytest.raises(ShapeError, match=r"take 5 steps, but run\.steps is 4"):
        run(4, "wsd", warmup=2, decay=3)


@pytest.mark.parametrize("step", [-1, 4])
def test_a_step_outside_the_run_is_refused(step: int) -> None:
    with pytest.raises(ShapeError, match=f"step {step} has no learning rate"):
        rate_at(run(4, "constant"), step)


def test_every_schedule_of_the_settings_has_its_curve() -> None:
    (kind,) = (key.kind for key in keys_of(OptimizerSettings) if key.name == "schedule")
    assert kind == Choice(tuple(CURVES))
