import time

import pytest

import clock
from clock import within


def test_what_takes_no_longer_than_its_limit_passes() -> None:
    with within(1.0):
        pass


def test_a_limit_is_missed_by_what_is_slow_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "slowness", lambda _: 2.0)
    missed = pytest.raises(AssertionError, match="which is more than")
    with missed, within(0.01, time.perf_counter):
        time.sleep(0.05)
    with missed, within(0.01, time.perf_counter):
        time.sleep(0.05)
        raise ValueError("no good")


def test_a_machine_that_is_slow_at_the_moment_has_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "slowness", lambda _: 20.0)
    with within(0.01, time.perf_counter):
        time.sleep(0.05)


def test_a_machine_is_never_faster_than_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    assert clock.slowness() >= 1.0
    now = [0.0, 4 * clock.USUAL]
    monkeypatch.setattr(clock, "_work", lambda: now.insert(0, now[0] + now[-1]))
    assert clock.slowness(lambda: now[0]) == pytest.approx(4.0)
