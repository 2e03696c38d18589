"""Marks around ops, by the host's clock or in a GPU's stream."""

from itertools import count
from time import perf_counter_ns

import pytest
import torch

from penstock.lower import lower
from penstock.run.execute.spans import Spans, clock_of, gpu_mark
from penstock.run.program.compile import compile_lane
from penstock.run.program.step_end import end_step
from penstock.schedules import build

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


LANE = compile_lane(lower(build("1f1b", devices=1, microbatches=1)), 0)
"""A forward and a backward."""


def spans_of(origin: object, began: int, start: list[object], end: list[object]) -> Spans:
    return Spans(perf_counter_ns, LANE.calls, origin, began, start, end)


def test_marks_of_the_host_are_its_nanoseconds() -> None:
    spans = spans_of(0, 0, start=[10, 30], end=[20, 60])
    assert spans.nanoseconds() == ([10, 30], [20, 60])
    assert spans.seconds() == pytest.approx(40e-9)


def test_marks_of_a_gpu_are_laid_on_the_clock_of_the_host() -> None:
    start, end = [Event(1.5), Event(3.0)], [Event(2.5), Event(7)]
    spans = spans_of(Event(1.0), 5_000_000, start, end)
    assert spans.nanoseconds() == ([5_500_000, 7_000_000], [6_500_000, 11_000_000])
    assert spans.seconds() == pytest.approx(5e-3)


def test_the_extent_has_the_pauses_between_ops_too() -> None:
    assert spans_of(0, 0, start=[10, 30], end=[20, 60]).extent() == pytest.approx(50e-9)
    events = spans_of(Event(1.0), 0, [Event(1.5), Event(3.0)], [Event(2.5), Event(7)])
    assert events.extent() == pytest.approx(5.5e-3)
    assert Spans.begin(perf_counter_ns, ()).extent() == 0.0


def test_the_end_of_a_step_is_no_part_of_its_lane() -> None:
    lane = compile_lane(lower(end_step(build("1f1b", devices=1, microbatches=1), reduced=True)), 0)
    assert [call.op.kind for call in lane.calls] == ["F", "B", "Z", "V", "U"]
    marks = [0, 10, 30, 70, 150, 310]
    spans = Spans(perf_counter_ns, lane.calls, 0, 0, list(marks[:5]), list(marks[1:]))
    assert spans.seconds() == spans.extent() == pytest.approx(30e-9)


def test_spans_begin_with_a_mark_of_their_clock() -> None:
    ticks = count(7)
    before = perf_counter_ns()
    spans = Spans.begin(lambda: next(ticks), LANE.calls)
    assert spans.origin == 7
    assert before <= spans.began <= perf_counter_ns()
    assert (spans.start, spans.end) == ([None, None], [None, None])


def test_each_device_has_its_clock() -> None:
    assert clock_of(torch.device("cpu")) is perf_counter_ns
    assert clock_of(torch.device("cuda", 1)) is gpu_mark
