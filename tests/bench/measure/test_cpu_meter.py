"""A meter parts the CPU of a thread into that inside wrapped calls and the rest."""

from time import sleep, thread_time

import pytest
import torch
from torch import nn

from penstock.bench.measure.cpu_meter import CpuMeter, MeteredModule, metered_backward

pytestmark = pytest.mark.torch


def burn(seconds: float) -> None:
    end = thread_time() + seconds
    while thread_time() < end:
        sum(range(100))


def test_only_cpu_outside_wrapped_calls_is_counted() -> None:
    meter = CpuMeter()
    inside = meter.wrap(burn)

    def work() -> None:
        inside(0.05)
        burn(0.02)
        sleep(0.02)

    assert 0.02 <= meter.outside(work) / 1e9 < 0.03
    assert 0.05 <= meter.inside / 1e9 < 0.06


def test_calls_of_a_module_and_of_autograd_are_counted() -> None:
    meter = CpuMeter()
    module = MeteredModule(nn.Linear(3, 3), meter)
    out = module(torch.ones(2, 3))
    after_call = meter.inside
    with metered_backward(meter):
        torch.autograd.backward(out, torch.ones(2, 3))
    assert 0 < after_call < meter.inside
    counted = meter.inside
    torch.autograd.backward(module.module(torch.ones(2, 3)), torch.ones(2, 3))
    assert meter.inside == counted
