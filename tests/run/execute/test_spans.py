"""Marks around ops, by the host's clock or in a GPU's stream."""

from itertools import count
from time import perf_counter_ns

import pytest
import torch

from penstock.run.execute.spans import Spans, clock_of, gpu_mark

pytestmark = pytest.mark.torch


class Event:
    """A mark of a GPU that lies `at` milliseconds after its origin."""

    def __init__(self, at: float) -> None:
        self.at = at
        self.waited = False

    def synchronize(self) -> None:
        self.waited = True

    def elapsed_time(self, other: "Event") -> float:
        assert other.waited  # an event that has not happened has no time
        return other.at - self.at


def test_marks_of_the_host_are_its_nanoseconds() -> None:
    spans = Spans(0, 0, start=[10, 30], end=[20, 60])
    assert spans.nanoseconds() == ([10, 30], [20, 60])
    assert spans.seconds() == pytest.approx(40e-9)


def test_marks_of_a_gpu_are_laid_on_the_clock_of_the_host() -> None:
    spans = Spans(Event(1.0), 5_000_000, start=[Event(1.5), Event(3.0)], end=[Event(2.5), Event(7)])
    assert spans.nanoseconds() == ([5_500_000, 7_000_000], [6_500_000, 11_000_000])
    assert spans.seconds() == pytest.approx(5e-3)


def test_the_extent_has_the_pauses_between_ops_too() -> None:
    assert Spans(0, 0, start=[10, 30], end=[20, 60]).extent() == pytest.approx(50e-9)
    events = Spans(Event(1.0), 0, start=[Event(1.5), Event(3.0)], end=[Event(2.5), Event(7)])
    assert events.extent() == pytest.approx(5.5e-3)
    assert Spans(0, 0).extent() == 0.0


def test_spans_begin_with_a_mark_of_their_clock() -> None:
    ticks = count(7)
    before = perf_counter_ns()
    spans = Spans.begin(lambda: next(ticks))
    assert spans.origin == 7
    assert before <= spans.began <= perf_counter_ns()
    assert (spans.start, spans.end) == ([], [])


def test_each_device_has_its_clock() -> None:
    assert clock_of(torch.device("cpu")) is perf_counter_ns
    assert clock_of(torch.device("cuda", 1)) is gpu_mark
