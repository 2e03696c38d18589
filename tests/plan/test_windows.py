from fractions import Fraction

import pytest

from penstock.cost.model import UnitCost
from penstock.plan.windows import resting_stages, update_windows
from penstock.schedules import build
from penstock.sim import simulate
from penstock.sim.timeline import Timeline


def step(p: int, name: str = "chronos") -> Timeline:
    """Two stages per device, 4p microbatches; a stage's forward takes 1, its backward 2."""
    times = {"F": Fraction(2), "I": Fraction(4), "W": Fraction(0)}
    schedule = build(name, devices=p, microbatches=4 * p, chunks=2, prices=times)
    return simulate(schedule, UnitCost(times=times))


@pytest.mark.parametrize(
    ("p", "makespan", "deep", "shallow"), [(4, 114, (12, 21), (0, 9)), (8, 234, (24, 45), (0, 21))]
)
def test_the_published_windows(
    p: int, makespan: int, deep: tuple[int, int], shallow: tuple[int, int]
) -> None:
    """arXiv:2503.03182, section 5: on the first and on the last device."""
    timeline = step(p)
    windows = update_windows(timeline)
    assert timeline.makespan == makespan
    assert (windows[p], windows[2 * p - 1]) == deep
    assert (windows[0], windows[p - 1]) == shallow


@pytest.mark.parametrize("name", ["chronos", "chronos-recompute", "interleaved", "breadth-first"])
def test_last_stages_rest_longest(name: str) -> None:
    windows = update_windows(step(4, name))
    assert [windows[stage] for stage in range(8)] == sorted(windows.values())
    assert windows[0] == 0


def test_stages_with_time_for_their_update_are_named_last_first() -> None:
    windows = update_windows(step(4))
    assert windows == dict(enumerate((0, 3, 6, 9, 12, 15, 18, 21)))
    assert resting_stages(windows, dict.fromkeys(windows, Fraction(12))) == (7, 6, 5, 4)
    assert resting_stages(windows, dict.fromkeys(windows, Fraction(22))) == ()


def test_stages_without_weights_have_nothing_to_update() -> None:
    schedule = build("helixpipe", devices=2, microbatches=4)
    assert list(update_windows(simulate(schedule))) == [0, 2, 4]
