"""Live bytes: every storage from the operation that makes it until it is freed, once."""

import threading

import pytest
import torch
from torch import Tensor

from penstock.lower import lower
from penstock.run.observe.memory_meter import LiveBytes, MemoryRecorder, Sample, record_memory
from penstock.run.program.compile import compile_lane
from penstock.schedules import build

pytestmark = pytest.mark.torch


def test_storages_count_once_whatever_views_there_are() -> None:
    with LiveBytes() as meter:
        x = torch.zeros(10, 10)
        views = [x[1:], x.t(), x.view(-1), x.add_(1)]
        assert meter.level == 400
        del x
        assert meter.level == 400
        del views
        assert meter.level == 0
    assert meter.peak == 400


def test_the_peak_is_the_most_since_the_last_reset() -> None:
    with LiveBytes() as meter:
        x = torch.zeros(100)
        y = x + 1
        del y
        assert (meter.level, meter.peak) == (400, 800)
        meter.reset()
        assert meter.peak == 400
        del x
    assert meter.level == 0


def test_what_was_there_before_is_not_counted_if_it_is_named() -> None:
    there = torch.zeros(100)
    with LiveBytes() as meter:
        meter.ignore(there)
        there.add_(1)
        view = there[3:]
        assert meter.level == 0
        del there, view
        assert meter.level == 0


def test_an_address_that_is_used_again_is_counted_again() -> None:
    with LiveBytes() as meter:
        for _ in range(50):
            x = torch.empty(1000)
            assert meter.level == 4000
            del x
            assert meter.level == 0


def test_what_another_thread_lets_go_of_is_no_longer_counted() -> None:
    held: list[Tensor] = []
    with LiveBytes() as meter:
        held += [torch.zeros(25) for _ in range(400)]
        thread = threading.Thread(target=held.clear)
        thread.start()
        made = [torch.zeros(25) for _ in range(400)]
        thread.join()
        assert meter.level == 400 * 100
        del made
        assert meter.level == 0


def test_a_recorder_notes_each_op() -> None:
    first, second = compile_lane(lower(build("1f1b", devices=1, microbatches=1)), 0).calls
    with record_memory() as recorder:
        x = torch.zeros(100)
        recorder.runs(first)
        y = torch.zeros(50)
        z = torch.zeros(25)
        del z
        recorder.ran(first)
        del x, y
        recorder.runs(second)
        recorder.ran(second)
    assert recorder.samples == {first.op: Sample(400, 700, 600), second.op: Sample(0, 0, 0)}


def test_a_recorder_leaves_out_what_was_there() -> None:
    there = torch.zeros(100)
    with record_memory(there) as recorder:
        assert isinstance(recorder, MemoryRecorder)
        there.mul_(2)
        assert recorder.meter.level == 0
