"""Steps with other times than planned: what drawn times and one slow device do to a schedule."""

from fractions import Fraction

import numpy as np
import pytest

from penstock.cost.model import UnitCost
from penstock.errors import ShapeError
from penstock.schedules import build
from penstock.sim import simulate
from penstock.sim.timeline import Timeline
from penstock.sim.variation import slow_down, vary


def _timeline(name: str, devices: int = 4, microbatches: int = 8) -> Timeline:
    return simulate(build(name, devices=devices, microbatches=microbatches))


def test_one_device_is_the_sum_of_its_ops() -> None:
    """2,048 ops: their sum varies by a 45th of what each does."""
    found = vary(_timeline("1f1b", devices=1, microbatches=1024), jitter=0.2, draws=400)
    times = np.repeat((1, 2), 1024)
    wanted = 0.2 * np.sqrt((times**2).sum()) / times.sum()
    assert found.mean == pytest.approx(1, abs=4 * wanted / 20)
    assert found.ratios.std() == pytest.approx(wanted, rel=0.15)


@pytest.mark.parametrize("name", ["1f1b", "zb-v", "stp", "sppo-msp", "slimpipe-level", "po-h"])
def test_without_jitter_nothing_varies(name: str) -> None:
    found = vary(_timeline(name, microbatches=12), jitter=0.0, draws=2)
    assert found.ratios.tolist() == [1.0, 1.0]


def test_a_pipeline_waits_for_whoever_is_late() -> None:
    found = vary(_timeline("1f1b"), jitter=0.1, draws=200)
    assert found.mean > 1.02
    assert found.percentile(5) < found.percentile(50) < found.percentile(95)
    assert found.draws_per_second > 0


def test_the_same_seed_draws_the_same_times() -> None:
    one, same, other = (vary(_timeline("zb-v"), 0.1, 3, seed).ratios for seed in (1, 1, 2))
    assert (one == same).all()
    assert (one != other).all()


def test_a_slow_device_of_gpipe_takes_longer_for_each_of_its_ops() -> None:
    """m forwards and m backwards wait for it; the ops of others on the way are as before."""
    slow = slow_down(_timeline("gpipe"), 1.5)
    assert slow == pytest.approx([(3 * 8 * 1.5 + 3 * 3) / 33] * 4)


def test_a_device_that_takes_as_long_as_planned_changes_nothing() -> None:
    assert slow_down(_timeline("zb-v"), 1.0) == [1.0] * 4


@pytest.mark.parametrize(("jitter", "draws"), [(-0.1, 5), (float("nan"), 5), (10.0, 5), (0.1, 0)])
def test_numbers_that_cannot_be_drawn_with_are_refused(jitter: float, draws: int) -> None:
    with pytest.raises(ShapeError):
        vary(_timeline("1f1b"), jitter, draws)


def test_a_device_that_is_quicker_than_planned_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"0\.9 times as long"):
        slow_down(_timeline("1f1b"), 0.9)


def test_ops_without_times_are_refused() -> None:
    times = dict.fromkeys("FIW", Fraction(0))
    free = simulate(build("gpipe", devices=2, microbatches=2), UnitCost(times=times))
    with pytest.raises(ShapeError, match="no op of gpipe takes any time"):
        vary(free, 0.1, 1)
